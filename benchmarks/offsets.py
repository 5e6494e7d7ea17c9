"""Data far from zero: free energies and their gradients at a growing offset. `python benchmarks/offsets.py [--quick]`

Every model is conjugate, with noise of standard deviation 0.1 and means that move with the data, so that the free
energy does not depend on the offset. What is right comes from float64 on the same data, as rounded, less the offset.
The gradient is that in the log-variance of the noise.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import MvNormal, Normal, dot  # noqa: E402

NOISE = 0.1
OFFSETS = {np.float32: (0.0, 1e2, 1e3, 1e4), np.float64: (0.0, 1e3, 1e5, 1e7, 1e9)}
RNG = np.random.default_rng(0)


def level(y: Any, offset: Any, variance: Any) -> None:
    z = ngmp.sample("z0", Normal(offset, variance=1.0))

    def step(z: Any, y_k: Any) -> Any:
        z = ngmp.sample("z", Normal(z, std=0.05))
        ngmp.sample("y", Normal(z, variance=variance), obs=y_k)
        return z, None

    ngmp.scan(step, z, y)


def trend(y: Any, offset: Any, variance: Any) -> None:
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])
    x = ngmp.sample("x0", MvNormal(jnp.stack([offset, jnp.zeros_like(offset)]), covariance=np.eye(2)))

    def step(x: Any, y_k: Any) -> Any:
        x = ngmp.sample("x", MvNormal(transition @ x, covariance=np.diag([1e-3, 1e-4])))
        ngmp.sample("y", Normal(dot(np.array([1.0, 0.0]), x), variance=variance), obs=y_k)
        return x, None

    ngmp.scan(step, x, y)


FEATURES = np.concatenate([np.ones((200, 1)), RNG.normal(size=(200, 4))], 1)


def regression(y: Any, offset: Any, variance: Any) -> None:
    mean = jnp.zeros(5, offset.dtype).at[0].set(offset)
    w = ngmp.sample("w", MvNormal(mean, covariance=4.0))
    ngmp.sample("y", Normal(dot(FEATURES[: y.shape[0]], w), variance=variance), obs=y)


def intercepts(y: Any, offset: Any, variance: Any) -> None:
    """Schools in districts: a tree of depth three."""
    top = ngmp.sample("top", Normal(offset, variance=1.0))
    district = ngmp.sample("district", Normal(top, variance=np.full(5, 0.2)))
    school = ngmp.sample("school", Normal(district[np.repeat(np.arange(5), 4)], variance=0.1))
    ngmp.sample("y", Normal(school[np.arange(y.shape[0]) % 20], variance=variance), obs=y)


def lattice(y: Any, offset: Any, variance: Any) -> None:
    z = ngmp.sample("z", Normal(offset, variance=np.full((12, 12), 1.0)))
    ngmp.sample("right", Normal(z[:, 1:] - z[:, :-1], variance=0.05), obs=np.zeros((12, 11)))
    ngmp.sample("down", Normal(z[1:] - z[:-1], variance=0.05), obs=np.zeros((11, 12)))
    ngmp.sample("y", Normal(z, variance=variance), obs=y.reshape(12, 12))


def sums(y: Any, offset: Any, variance: Any) -> None:
    shared = ngmp.sample("shared", Normal(offset, variance=1.0))
    parts = [ngmp.sample(f"part{k}", Normal(0.0, variance=np.full(y.shape[0], 0.1))) for k in range(3)]
    ngmp.sample("y", Normal(shared + sum(parts[1:], parts[0]), variance=variance), obs=y)


def alone(y: Any, offset: Any, variance: Any) -> None:
    z = ngmp.sample("z", Normal(offset, variance=np.full(y.shape[0], 1.0)))
    ngmp.sample("y", Normal(z, variance=variance), obs=y)


def _walk(n: int) -> np.ndarray:
    return np.cumsum(0.05 * RNG.normal(size=n)) + NOISE * RNG.normal(size=n)


MODELS: dict[str, tuple[Callable, np.ndarray]] = {
    "local level, 100 steps": (level, _walk(100)),
    "local level, 3288 steps": (level, _walk(3288)),
    "local linear trend, 200 steps": (trend, _walk(200)),
    "regression, 200 rows": (regression, FEATURES @ RNG.normal(size=5) + NOISE * RNG.normal(size=200)),
    "random intercepts, a tree": (intercepts, RNG.normal(size=100)),
    "lattice, 12 x 12": (lattice, 0.3 * RNG.normal(size=144)),
    "sums of scalars": (sums, 0.3 * RNG.normal(size=50)),
    "scalars alone": (alone, RNG.normal(size=50)),
}


def measure(model: Callable, data: np.ndarray, offsets: dict[Any, tuple[float, ...]]) -> list[list[Any]]:
    """By precision and offset: the free energy, its error, its gradient, and the relative error of that."""
    program = ngmp.compile(model)

    @jax.jit
    def energy(log_variance: Any, y: Any, offset: Any) -> tuple[Any, Any]:
        return jax.value_and_grad(lambda s: program(y, offset, jnp.exp(s)).free_energy)(log_variance)

    rows = []
    for dtype, several in offsets.items():
        for offset in several:
            y = (data + offset).astype(dtype)
            found, slope = energy(dtype(2 * np.log(NOISE)), y, dtype(offset))
            right, steep = energy(np.float64(2 * np.log(NOISE)), y.astype(float) - offset, np.float64(0.0))
            error, relative = abs(float(found) - float(right)), abs(float(slope) / float(steep) - 1)
            rows.append([dtype.__name__, offset / NOISE, float(found), error, float(slope), relative])
    return rows


HEADER = ["model", "precision", "offset / sd", "free energy", "error", "gradient", "relative error"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore", "the whole model is computed in float32")
    chosen = [name for name in MODELS if name.startswith(("local level, 100", "regression"))] if quick else list(MODELS)
    rows = []
    for name in chosen:
        found = [[name, *row] for row in measure(*MODELS[name], OFFSETS)]
        print(table(name, HEADER[1:], [row[1:] for row in found]), flush=True)
        rows += found
    if not quick:
        save("offsets", {"header": HEADER, "rows": rows})


if __name__ == "__main__":
    main()
