"""What a gradient costs, against the run it is the gradient of. `python benchmarks/gradients.py [--quick]`

For every model: sweeps, the time of a run (forward), of a run with its gradient in all floating-point inputs, and the
ratio of the backward part to the forward one; for the free energy and for something nonlinear in all marginals. The
two are timed alternately, medians of the repeats. Memory is what XLA reserves for temporaries.
"""

import argparse
import statistics
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402


def cases(quick: bool) -> dict[str, tuple[Any, dict[str, Any], dict[str, Any]]]:
    """The model, the inputs to differentiate in, and the others."""
    rng, n = np.random.default_rng(0), 200 if quick else 3288
    counts = rng.poisson(np.exp(2 + np.cumsum(0.1 * rng.normal(size=n)) % 2))
    rows = 100 if quick else 2000
    phi = rng.normal(size=(rows, 20))
    y = rng.normal(size=rows)
    return {
        f"Poisson chain, {n}": (ngmp_models.poisson_chain, {"sigma2": 0.1}, {"y": counts}),
        f"stochastic volatility, {n}": (
            ngmp_models.stochastic_volatility, {"sigma2": 0.05, "r": rng.normal(size=n)}, {}
        ),
        f"logistic regression, {rows} x 20": (
            ngmp_models.logistic_regression, {"features": phi, "prior_variance": 4.0}, {"y": y > 0}
        ),
        f"mean and precision, {rows}": (ngmp_models.mean_precision, {"y": y}, {}),
        f"heteroscedastic, {rows} x 20": (
            ngmp_models.heteroscedastic, {"phi": phi, "psi": phi[:, :5], "y": y, "c_top": 25.0}, {}
        ),
    }  # fmt: skip


def outputs(post: ngmp.Posterior) -> dict[str, jax.Array]:
    moments = [jnp.sum(jnp.sin(x)) for q in post.marginals.values() for x in q.to_mean()]
    return {"free energy": post.free_energy, "moments": sum(moments[1:], moments[0])}


def seconds(call: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def measure(model: Any, inputs: dict[str, Any], rest: dict[str, Any], what: str, repeats: int) -> dict[str, Any]:
    program = ngmp.compile(model)
    inputs = jax.tree.map(jnp.asarray, inputs)

    def f(x: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        post = program(**x, **rest)
        return outputs(post)[what], post.sweeps

    forward = jax.jit(f).lower(inputs).compile()
    both = jax.jit(jax.value_and_grad(f, has_aux=True)).lower(inputs).compile()
    (value, sweeps), slope = both(inputs)
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(slope)), "no gradient"
    forward(inputs)
    pairs = [(seconds(lambda: forward(inputs)), seconds(lambda: both(inputs))) for _ in range(repeats)]
    one, two = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    memory = [c.memory_analysis().temp_size_in_bytes / 1e6 for c in (forward, both)]
    return {
        "sweeps": int(sweeps), "forward ms": 1e3 * one, "with gradient ms": 1e3 * two,
        "backward / forward": statistics.median((b - a) / a for a, b in pairs), "MB": memory[0], "MB with": memory[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    results = {}
    for name, case in cases(given.quick).items():
        for what in ("free energy", "moments"):
            results[f"{name}: {what}"] = measure(*case, what, given.repeats)
            print(name, what, results[f"{name}: {what}"], flush=True)
    columns = list(next(iter(results.values())))
    rows = [[name, *r.values()] for name, r in results.items()]
    print(table("Gradients in all floating-point inputs", ["gradient of", *columns], rows))
    if not given.quick:
        save("gradients", results)


if __name__ == "__main__":
    main()
