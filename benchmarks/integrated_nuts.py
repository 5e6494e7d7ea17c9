"""NUTS on models of `integrated.py`: `python benchmarks/integrated_nuts.py` (needs NumPyro: pip install -e ".[bench]").

Processor time of NumPyro's NUTS (1,000 warm-up and 2,000 kept draws, one chain), without compilation, scaled to 400
effective draws of the slowest hyperparameter (means to 0.05 standard deviations), beside the warm call and the first
call of the integrated program. Non-centred where NUTS needs it.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)

import report  # noqa: E402
from integrated_cases import NILE, SCHOOLS, Case, autoregression, cases, poisson_effects  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402


def nile() -> None:
    sd, r = numpyro.sample("sd", dist.HalfCauchy(50.0)), numpyro.sample("r", dist.HalfCauchy(100.0))
    x0 = numpyro.sample("x0", dist.Normal(1000.0, 500.0))
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([100]))
    numpyro.sample("y", dist.Normal(x0 + sd * jnp.cumsum(steps), r), obs=NILE)


def schools() -> None:
    tau, mu = numpyro.sample("tau", dist.HalfCauchy(5.0)), numpyro.sample("mu", dist.Normal(0, 5.0))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([8]))
    numpyro.sample("y", dist.Normal(mu + tau * z, SCHOOLS[1]), obs=SCHOOLS[0])


def noisy_autoregression(y: Any) -> None:
    sd, phi = numpyro.sample("sd", dist.HalfCauchy(1.0)), numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    r, x0 = numpyro.sample("r", dist.LogNormal(0.0, 1.0)), numpyro.sample("x0", dist.Normal(0, 3.0))
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([100]))
    _, x = jax.lax.scan(lambda x, e: (phi * x + sd * e,) * 2, x0, steps)
    numpyro.sample("y", dist.Normal(x, r), obs=y)


def counts(y: Any) -> None:
    m, sd = numpyro.sample("m", dist.Normal(0, 2.0)), numpyro.sample("sd", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([12, 1]))
    numpyro.sample("y", dist.Poisson(jnp.exp(m + sd * b)), obs=y)


def nuts(model: Callable, names: list[str], *inputs: Any) -> float:
    """Processor seconds to 400 effective draws of the slowest of these."""
    mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(0), *inputs)  # compiles
    start = time.process_time()
    mcmc.run(jax.random.key(1), *inputs)
    jax.block_until_ready(mcmc.get_samples())
    took = time.process_time() - start
    draws = mcmc.get_samples(group_by_chain=True)
    return took * 400 / min(float(effective_sample_size(np.asarray(draws[n]))) for n in names)


def ours(case: Case) -> tuple[float, float]:
    """Processor seconds of the first and of a warm call."""
    program = ngmp.compile(case.model, integrate=tuple(n for n in case.grid if n not in case.latent))
    took = []
    for _ in range(6):
        start = time.process_time()
        jax.block_until_ready(program(**case.inputs))
        took.append(time.process_time() - start)
    return took[0], float(np.median(took[1:]))


def main() -> None:
    every = {case.name: case for case in cases()}
    arms = [
        ("Nile, two variances", nile, ["sd", "r"], ()),
        ("eight schools, half-Cauchy", schools, ["tau"], ()),
        ("AR(1) with noise", noisy_autoregression, ["sd", "phi", "r"], (autoregression().inputs["y"],)),
        ("Poisson effects", counts, ["m", "sd"], (poisson_effects().inputs["y"],)),
    ]
    rows = []
    for name, model, names, inputs in arms:
        first, warm = ours(every[name])
        seconds = nuts(model, names, *inputs)
        rows.append([name, first, 1e3 * warm, seconds, seconds / warm])
        print(rows[-1], flush=True)
    header = ["model", "first, cpu s", "warm, cpu ms", "NUTS, cpu s", "ratio"]
    print(report.table("Integrated hyperparameters beside NUTS", header, rows))
    report.save("integrated_nuts", {"header": header, "rows": rows})


if __name__ == "__main__":
    main()
