"""What the stopping rule costs: `python benchmarks/stopping.py`.

Every sweep looks at how far it has moved each marginal. Each model runs 200 sweeps, without an end, as it is and with
a rule that looks at nothing. Processor time, medians of runs that take turns.
"""

import contextlib
import time
from typing import Any
from unittest import mock

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler import Gamma, Normal, Poisson, exp  # noqa: E402
from ngmp_compiler.solve import solver  # noqa: E402

SWEEPS, TURNS = 200, 9


def plate(y):
    ngmp.sample("y", Poisson(exp(ngmp.sample("f", Normal(jnp.zeros(y.shape, y.dtype), variance=1.0)))), obs=y)


def groups(y):
    mu, tau = ngmp.sample("mu", Normal(0.0, variance=10.0)), ngmp.sample("tau", Gamma(2.0, rate=1.0))
    u = ngmp.sample("u", Normal(mu + jnp.zeros((len(y), 1), y.dtype), precision=tau))
    ngmp.sample("y", Normal(u + jnp.zeros(y.shape, y.dtype), variance=1.0), obs=y)


def cases() -> dict[str, tuple[Any, dict[str, Any]]]:
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0, 3288).astype(float)
    return {
        "Poisson chain, 3288": (ngmp_models.poisson_chain, {"y": counts}),
        "Poisson plate, 3288": (plate, {"y": counts}),
        "unknown precision of 500 groups": (groups, {"y": rng.normal(size=(500, 1)) + rng.normal(size=(500, 4))}),
    }


def compiled(model: Any, inputs: dict[str, Any], blind: bool) -> Any:
    """A program that has run so many sweeps, as it is or with a rule that looks at nothing."""
    program = jax.jit(lambda kw: ngmp.compile(model, max_sweeps=SWEEPS)(**kw).state.leaves)
    with contextlib.ExitStack() as stack:
        never = lambda self, state: jnp.asarray(False)  # noqa: E731
        stack.enter_context(mock.patch.object(solver.Solver, "_converged", never))
        if blind:
            stack.enter_context(mock.patch.object(solver, "moved_by", lambda before, after: jnp.ones(())))
        jax.block_until_ready(program(inputs))
    return program


def times(programs: list[Any], inputs: dict[str, Any]) -> list[float]:
    """Medians of their processor times, in ms, taking turns."""
    found: list[list[float]] = [[] for _ in programs]
    for _ in range(TURNS):
        for own, program in zip(found, programs, strict=True):
            start = time.process_time()
            jax.block_until_ready(program(inputs))
            own.append(1e3 * (time.process_time() - start))
    return [float(np.median(own)) for own in found]


def main() -> None:
    rows = []
    for name, (model, inputs) in cases().items():
        given = jax.tree.map(jnp.asarray, inputs)
        found = times([compiled(model, given, blind) for blind in (False, True)], given)
        rows.append([name, *(x / SWEEPS for x in found)])
    header = ["model", "ms a sweep", "without the rule"]
    print(table("The stopping rule", header, rows))
    save("stopping", {"header": header, "rows": rows})


if __name__ == "__main__":
    main()
