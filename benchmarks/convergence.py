"""Does the default solver converge where damping and momentum fail? `python benchmarks/convergence.py`

Poisson chains simulated from the model (sigma^2 = 0.1; 20 seeds at each of four lengths) and one zero-heavy chain whose
log-rate drifts to -20. Every solver runs to the same relative residual of 1e-8, at most 500 sweeps, behind the
same guard.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_models import poisson_chain  # noqa: E402

SOLVERS = {
    "default": None,
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


def main() -> None:
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
    header = ["N", "solver", "converged", "median sweeps", "most sweeps"]
    print(table("Convergence to a relative residual of 1e-8 (N = 1000 includes the zero-heavy chain)", header, rows))
    print("saved", save("convergence", {"header": header, "rows": rows}))


if __name__ == "__main__":
    main()
