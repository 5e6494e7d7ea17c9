"""Effective draws a second of `program.refine`, against NumPyro's NUTS with its own warm-up.

`python benchmarks/refine.py [--only substring]`. Both run 4 chains at once (vectorised) of 1000 draws on the same
model, NumPyro (effects not centred) after 1000 steps of warm-up, ours after 200 from the posterior. Processor time of a
second run, so that nothing compiles; ours includes the run of the program and the draws that chains start from. The
effective number is that of the number that mixes worst, by `blackjax.diagnostics` for both. Bar: 3 times NumPyro's.
"""

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import accuracy_structures  # noqa: E402
import report  # noqa: E402
from blackjax.diagnostics import effective_sample_size  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import Bernoulli, Gamma, HalfNormal, MvNormal, Normal, exp  # noqa: E402

CHAINS, DRAWS = 4, 1000


def rats(x, y):
    """Growth of 30 rats: intercepts and slopes, about a common line; the noise is unknown."""
    mean = ngmp.sample("mean", Normal(np.array([250.0, 6.0]), variance=np.array([1e4, 25.0])))
    a = ngmp.sample("a", Normal(mean[0] + np.zeros(len(y)), variance=200.0))
    b = ngmp.sample("b", Normal(mean[1] + np.zeros(len(y)), variance=0.25))
    tau = ngmp.sample("tau", Gamma(2.0, rate=50.0))
    ngmp.sample("y", Normal(a[:, None] + b[:, None] * x, precision=tau), obs=y)


def ref_rats(numpyro, dist, x, y):
    mean = numpyro.sample("mean", dist.Normal(jnp.array([250.0, 6.0]), jnp.array([100.0, 5.0])))
    a = numpyro.sample("a", dist.Normal(mean[0], 200.0**0.5).expand((len(y),)))
    b = numpyro.sample("b", dist.Normal(mean[1], 0.5).expand((len(y),)))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 50.0))
    numpyro.sample("y", dist.Normal(a[:, None] + b[:, None] * x, tau**-0.5), obs=y)


def classes(kernel, y):
    """A Gaussian process behind binary outcomes."""
    f = ngmp.sample("f", MvNormal(np.zeros(len(y)), covariance=kernel))
    ngmp.sample("y", Bernoulli(logits=f), obs=y)


def ref_classes(numpyro, dist, kernel, y):
    f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(y)), kernel))
    numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def known_volatility(y):
    """A random walk of log-variances."""
    volatility(y, 0.2)


def volatility(y, step=None):
    """The same, where the step is unknown."""
    step = ngmp.sample("step", HalfNormal(std=0.5)) if step is None else step

    def walk(h, y_k):
        h = ngmp.sample("h", Normal(h, std=step))
        ngmp.sample("y", Normal(0.0, variance=exp(h)), obs=y_k)
        return h, None

    ngmp.scan(walk, ngmp.sample("h0", Normal(0.0, std=2.0)), y)


def ref_known_volatility(numpyro, dist, y):
    ref_volatility(numpyro, dist, y, 0.2)


def ref_volatility(numpyro, dist, y, step=None):
    step = numpyro.sample("step", dist.HalfNormal(0.5)) if step is None else step
    h0 = numpyro.sample("h0", dist.Normal(0.0, 2.0))
    e = numpyro.sample("e", dist.Normal(0.0, 1.0).expand((len(y),)))
    h = numpyro.deterministic("h", h0 + step * jnp.cumsum(e))
    numpyro.sample("y", dist.Normal(0.0, jnp.exp(0.5 * h)), obs=y)


def cases() -> list[tuple[str, Any, Any, dict[str, Any], dict[str, Any]]]:
    """Name, our model, NumPyro's, inputs, options of compile."""
    schools = next(c for c in accuracy_structures.cases() if c.name == "eight schools")
    out: list[tuple[str, Any, Any, dict[str, Any], dict[str, Any]]] = [
        (schools.name, schools.model, schools.reference, schools.inputs, {})
    ]
    rng = np.random.default_rng(1)
    shocks = np.exp(0.5 * np.cumsum(0.2 * rng.standard_normal(200))) * rng.standard_normal(200)
    out.append(("stochastic volatility", known_volatility, ref_known_volatility, {"y": shocks}, {}))
    out.append(("volatility, step unknown", volatility, ref_volatility, {"y": shocks}, {"integrate": ("step",)}))
    rng = np.random.default_rng(0)
    x = np.array([-14.0, -7.0, 0.0, 7.0, 14.0])
    lines = rng.normal(250, 14, (30, 1)) + rng.normal(6, 0.5, (30, 1)) * x + rng.normal(0, 6, (30, 5))
    out.append(("rats", rats, ref_rats, {"x": x, "y": lines}, {}))
    t = np.sort(rng.uniform(0, 10, 120))
    kernel = 4.0 * np.exp(-0.5 * (t[:, None] - t) ** 2) + 1e-4 * np.eye(120)
    f = np.linalg.cholesky(kernel) @ rng.normal(size=120)
    out.append(("GP classification", classes, ref_classes,
                {"kernel": kernel, "y": (rng.uniform(size=120) < 1 / (1 + np.exp(-f))).astype(int)}, {}))  # fmt: skip
    return out


def least(draws: dict[str, Any]) -> float:
    return min(float(np.min(effective_sample_size(np.asarray(x)))) for x in draws.values())


def ours(model: Any, inputs: dict[str, Any], options: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    program = ngmp.compile(model, **options)
    for key in (jax.random.key(0), jax.random.key(1)):
        start = time.process_time()
        found = program.refine(program(**inputs), key, chains=CHAINS, draws=DRAWS, **inputs)
        took = time.process_time() - start
    return least(found.draws), took, {"r_hat": max(float(np.max(x)) for x in found.r_hat.values()),
                                      "leapfrogs": found.leapfrogs, "divergences": found.divergences}  # fmt: skip


def theirs(reference: Any, inputs: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(**given: Any) -> None:
        reference(numpyro, dist, **given)

    how = {"num_chains": CHAINS, "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=DRAWS, **how)
    for key in (jax.random.key(0), jax.random.key(1)):
        start = time.process_time()
        mcmc.run(key, **inputs, extra_fields=("num_steps", "diverging"))
        draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
        took = time.process_time() - start
    fields = mcmc.get_extra_fields()
    return least(draws), took, {"leapfrogs": float(np.mean(fields["num_steps"])),
                                "divergences": int(np.sum(fields["diverging"]))}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    rows, kept = [], report.RESULTS / "refine.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    results.pop("measured", None)
    for name, model, reference, inputs, options in cases():
        if asked.only not in name:
            continue
        ess, took, more = ours(model, inputs, options)
        ess2, took2, more2 = theirs(reference, inputs)
        times = (ess / took) / (ess2 / took2)
        results[name] = {"ess": ess, "seconds": took, **more, "numpyro": {"ess": ess2, "seconds": took2, **more2},
                         "times": times}  # fmt: skip
        said = "PASS" if times >= 3 else ""
        rows.append([name, ess, took, more["leapfrogs"], ess2, took2, more2["leapfrogs"], times, said])
        print(rows[-1], flush=True)
        report.save("refine", results)
    header = ["model", "ess", "s", "leapfrogs", "NumPyro ess", "s", "leapfrogs", "times", ""]
    print(report.table("Effective draws a second, against NumPyro's NUTS", header, rows))


if __name__ == "__main__":
    main()
