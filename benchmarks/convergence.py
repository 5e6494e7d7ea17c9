"""Sweeps to convergence, solver by solver: `python benchmarks/convergence.py`

Poisson chains simulated from the model (sigma^2 = 0.1; 20 seeds at each of four lengths) and one zero-heavy chain whose
log-rate drifts to -20: does the default solver converge where damping and momentum fail? Then the default beside
`ngmp.anderson()` on models of the gallery, five seeds of each: sweeps, whether both end at the same leaves, and CPU
time of a warm run. Every solver runs to the same relative residual of 1e-8, at most 500 sweeps, behind the same guard.
"""

import statistics
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from published_models import EMISSION, TABLES, TRANSITION, gaussian_filter  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_models import poisson_chain  # noqa: E402

SOLVERS = {
    "default": None,
    "anderson": ngmp.anderson(),
    "heavy ball 0.5, 0.2": optax.sgd(0.5, momentum=0.2),
    "damping 0.25": optax.sgd(0.25),
    "undamped": optax.sgd(1.0),
}


def simulated(n: int, seed: int) -> np.ndarray:
    """Counts of a Poisson chain: z a random walk from 0 with variance 0.1 a step."""
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(np.cumsum(np.sqrt(0.1) * rng.standard_normal(n))))


def zero_heavy(n: int = 1000) -> np.ndarray:
    """Counts whose log-rate drifts from 2 down to -20 and back up to 0."""
    rng = np.random.default_rng(7)
    return rng.poisson(np.exp(np.concatenate([np.linspace(2, -20, n // 2), np.linspace(-20, 0, n - n // 2)])))


def hierarchy(levels: int, seed: int, n: int = 40, d: int = 8) -> dict[str, Any]:
    """A sine under noise of heavy tails that grows with x; d features a level, the last one constant."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2, 2, n))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * np.exp(0.5 * x[:, 0]) * rng.standard_t(3, size=n)
    keys = jax.random.split(jax.random.key(0), levels + 1)
    maps = [ngmp_models.fourier_map(k, 1, d - 1, kernel=ngmp_models.matern32) for k in keys]
    means = tuple(jnp.zeros(d).at[-1].set(1.0 if level == 0 else np.log(25.0)) for level in range(levels))
    features = tuple(ngmp_models.fourier_features(m, jnp.asarray(x), constant=True) for m in maps)
    return {"features": features, "y": jnp.asarray(y), "w_mean": means, "w_variance": 0.16}


def regression(seed: int, n: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    phi, psi = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    y = phi @ np.array([1.0, -2.0, 0.5]) + np.exp(-0.5 * psi @ np.array([0.8, -0.5])) * rng.normal(size=n)
    return {"phi": phi, "psi": psi, "y": y}


def returns(seed: int, n: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    s = np.cumsum(np.sqrt(0.05) * rng.standard_normal(n))
    return {"r": np.exp(-0.5 * s) * rng.standard_normal(n)}


def volatile(seed: int, n: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    z = np.cumsum(0.2 * rng.standard_normal(n))
    return {"y": np.cumsum(np.exp(0.5 * z) * rng.standard_normal(n)) + 0.1 * rng.standard_normal(n)}


def coins(seed: int, n: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 5))
    odds = features @ np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    return {"features": features, "y": (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)}


def symbols(seed: int, n: int = 250) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    z, y = int(rng.integers(3)), []
    for _ in range(n):
        z = int(rng.choice(3, p=TRANSITION[z]))
        y.append(int(rng.choice(3, p=EMISSION[z])))
    return {"y": np.array(y), **TABLES}


FIELD = {"method": ngmp.NCVMP(), "factorise": [("v", ("w1", "s1"), ("w2", "s2"))]}
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {  # the model, its inputs by seed, options
    "Poisson chain, N = 3288": (poisson_chain, lambda seed: {"y": simulated(3288, seed)}, {}),
    "hierarchy, 2 levels": (ngmp_models.precision_hierarchy, lambda seed: hierarchy(2, seed), {}),
    "hierarchy, 3 levels": (ngmp_models.precision_hierarchy, lambda seed: hierarchy(3, seed), {}),
    "hierarchy, 2 levels, mean field": (ngmp_models.precision_hierarchy, lambda seed: hierarchy(2, seed), FIELD),
    "heteroscedastic": (ngmp_models.heteroscedastic, regression, {}),
    "mean and precision": (
        ngmp_models.mean_precision, lambda seed: {"y": np.random.default_rng(seed).normal(2.0, 3.0, 12)}, {},
    ),
    "stochastic volatility": (ngmp_models.stochastic_volatility, returns, {}),
    "hierarchical Gaussian filter": (gaussian_filter, volatile, {}),
    "logistic regression": (ngmp_models.logistic_regression, coins, {}),
    "HMM, learned tables": (ngmp_models.learned_hmm, symbols, {}),
}  # fmt: skip


def chains() -> list[list[Any]]:
    rows = []
    for n in (100, 250, 500, 1000):
        counts = np.stack([simulated(n, 42 + s) for s in range(20)] + ([zero_heavy()] if n == 1000 else []))
        for name, solver in SOLVERS.items():
            program = ngmp.compile(poisson_chain, solver=solver, max_sweeps=500, tol=1e-8)

            def run(y, program=program):
                post = program(y=y)
                return post.converged, post.sweeps

            converged, sweeps = map(np.asarray, jax.jit(jax.vmap(run))(jnp.asarray(counts)))
            median = float(np.median(sweeps[converged])) if converged.any() else float("nan")
            rows.append([n, name, f"{converged.sum()} / {len(converged)}", median, int(sweeps[converged].max())])
    return rows


def distance(one: Any, other: Any) -> float:
    """The largest relative distance between the leaves of two runs, Euclidean over a leaf."""

    def norm(eta: Any) -> float:
        return float(np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(eta))))

    pairs = [(one.state.leaves[k], q) for k, q in other.state.leaves.items()]
    return max(norm(jax.tree.map(jnp.subtract, p, q)) / norm(q) for p, q in pairs)


def compare(name: str, seeds: int = 5, repeats: int = 5) -> list[Any]:
    """The default beside `anderson` on one model; runs of the two alternate."""
    model, inputs, options = MODELS[name]
    programs = [ngmp.compile(model, solver=s, tol=1e-8, **options) for s in (None, ngmp.anderson())]
    cases = [jax.tree.map(jnp.asarray, inputs(100 + seed)) for seed in range(seeds)]
    posts = [[program(**case) for program in programs] for case in cases]
    times: tuple[list[float], ...] = ([], [])
    for _ in range(repeats):
        for program, spent in zip(programs, times, strict=True):
            start = time.process_time()
            for case in cases:
                jax.block_until_ready(program(**case).free_energy)
            spent.append(1e3 * (time.process_time() - start) / seeds)
    converged = [sum(bool(p.converged) for p in found) for found in zip(*posts, strict=True)]
    both = [pair for pair in posts if all(bool(p.converged) for p in pair)]
    sweeps = np.array([[int(p.sweeps) for p in pair] for pair in both])
    return [
        name, *(f"{c} / {seeds}" for c in converged), *map(float, np.median(sweeps, axis=0)), *map(int, sweeps.max(0)),
        int((sweeps[:, 1] - sweeps[:, 0]).max()), max(distance(*pair) for pair in both),
        *map(statistics.median, times),
    ]  # fmt: skip


def main() -> None:
    header = ["N", "solver", "converged", "median sweeps", "most sweeps"]
    rows = chains()
    print(table("Convergence to a relative residual of 1e-8 (N = 1000 includes the zero-heavy chain)", header, rows))
    titles = ["model", "converged: default", "anderson", "median sweeps: default", "anderson", "most: default",
              "anderson", "most lost", "distance", "ms a run: default", "anderson"]  # fmt: skip
    models = [compare(name) for name in MODELS]
    print(table("The default and anderson, five seeds; sweeps of the runs that converged under both", titles, models))
    content = {"header": header, "rows": rows, "models": {"header": titles, "rows": models}}
    print("saved", save("convergence", content))


if __name__ == "__main__":
    main()
