"""Accuracy of models with several unknowns at one factor, against long NUTS runs.

`python benchmarks/accuracy.py [--only substring] [--reference] [--apart]`. For every model: the largest |z|, the
difference of means in posterior standard deviations, over its unknowns; the ratios of standard deviations, smallest and
largest; the error of the log-evidence, against importance sampling about the draws where that is sure of itself;
sweeps; processor time of the first and of a warm call, and of NUTS (two chains, compilation included). PASS means
|z| <= 0.1, ratios in 0.9-1.1 and an evidence within 0.2. Moments of NUTS are kept in results/accuracy_reference.json;
`--reference` draws them anew, and needs NumPyro. `--apart` adds the same programs with an edge for every unknown, which
can take minutes.
"""

import argparse
import functools
import json
import time
from typing import Any

import jax
import jax.flatten_util
import numpy as np

jax.config.update("jax_enable_x64", True)

import report  # noqa: E402
from accuracy_models import Case, cases  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

REFERENCE = report.RESULTS / "accuracy_reference.json"
DRAWS, CHAINS = 4000, 2


def nuts(case: Case) -> dict[str, Any]:
    """Means and standard deviations of all unknowns, and the processor time."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    start = time.process_time()
    kernel = NUTS(lambda **inputs: case.reference(numpyro, dist, **inputs), target_accept_prob=0.9)
    how = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=1000, num_samples=DRAWS, **how)
    mcmc.run(jax.random.key(0), **case.inputs)
    samples = {k: np.asarray(v) for k, v in mcmc.get_samples().items()}
    took = time.process_time() - start
    moments = {k: [v.mean(0).tolist(), v.std(0).tolist()] for k, v in samples.items()}
    return {"seconds": took, "moments": moments, "evidence": evidence(case, mcmc)}


def evidence(case: Case, mcmc: Any) -> float | None:
    """The log-evidence by importance sampling from Student's t with the moments of the draws; None if it is unsure."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    model = functools.partial(case.reference, numpyro, dist)
    names = [k for k, site in numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(**case.inputs).items()
             if site["type"] == "sample" and not site["is_observed"]]  # fmt: skip
    draws = {k: mcmc.get_samples()[k] for k in names}
    unravel = jax.flatten_util.ravel_pytree({k: v[0] for k, v in draws.items()})[1]  # in the order of sorted names
    x = np.concatenate([np.asarray(draws[k]).reshape(len(draws[k]), -1) for k in sorted(draws)], 1)
    if x.shape[1] > 20:
        return None
    proposal = dist.MultivariateStudentT(5.0, x.mean(0), np.linalg.cholesky(np.cov(x.T).reshape(x.shape[1], -1)))
    z = proposal.sample(jax.random.key(1), (20000,))
    joint = jax.vmap(lambda z: log_density(model, (), case.inputs, unravel(z))[0])(z)
    log_w = np.asarray(joint - proposal.log_prob(z))
    w = np.exp(log_w - log_w.max())
    if w.sum() ** 2 / (w**2).sum() < 1000:
        return None
    return float(np.log(w.mean()) + log_w.max())


def ours(case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """The same, and how it went."""
    program = ngmp.compile(case.model, **options)
    took = []
    for _ in range(4):
        start = time.process_time()
        post = program(**case.inputs)
        jax.block_until_ready(post.free_energy)
        took.append(time.process_time() - start)
    moments = {k: [np.asarray(q.mean), np.sqrt(np.asarray(q.variance))] for k, q in post.marginals.items()}
    return {"moments": moments, "first": took[0], "warm": min(took[1:]), "sweeps": int(post.sweeps),
            "converged": bool(post.converged), "evidence": -float(post.free_energy)}  # fmt: skip


def compare(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """By unknown: the largest |z|, and the smallest and largest ratio."""
    out = {}
    for name, (mean, std) in found["moments"].items():
        if name in expected["moments"]:
            m, s = map(np.asarray, expected["moments"][name])
            ratio = std.reshape(s.shape) / s
            z = np.abs(mean.reshape(m.shape) - m) / s
            out[name] = [float(z.max()), float(ratio.min()), float(ratio.max())]
    return out


def verdict(found: dict[str, Any], unknowns: dict[str, Any], error: float | None) -> str:
    if not found["converged"]:
        return "not converged"
    bad = [f"{k}: z {z:.2f}, ratio {low:.2f}-{high:.2f}" for k, (z, low, high) in unknowns.items()
           if z > 0.1 or low < 0.9 or high > 1.1]  # fmt: skip
    if error is not None and abs(error) > 0.2:
        bad.append(f"evidence {error:+.2f}")
    return "; ".join(bad) or "PASS"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--apart", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    header = ["model", "edges", "unknown", "z", "ratio", "evidence", "sweeps", "first s", "warm ms", "NUTS s", ""]
    rows, results = [], {}
    for case in cases():
        if asked.only not in case.name:
            continue
        if asked.reference or case.name not in kept:
            kept[case.name] = nuts(case)
            report.save("accuracy_reference", kept)
        for edges, options in (("joint", case.options), ("apart", {"joint": False}))[: 1 + asked.apart]:
            try:
                found = ours(case, options)
            except ngmp.ModelError:  # too many unknowns for separate edges
                continue
            unknowns = compare(found, kept[case.name])
            exact = kept[case.name]["evidence"]
            error = None if exact is None else found["evidence"] - exact
            said = verdict(found, unknowns, error)
            del found["moments"]
            told = {"error": error, "unknowns": unknowns, "verdict": said, "nuts": kept[case.name]["seconds"]}
            results[f"{case.name}, {edges}"] = found | told
            worst = max(unknowns, key=lambda k: max(unknowns[k][0], *(abs(np.log(x)) for x in unknowns[k][1:])))
            z, low, high = unknowns[worst]
            off = "" if error is None else f"{error:+.2f}"
            rows.append([case.name, edges, worst, z, f"{low:.2f}-{high:.2f}", off, found["sweeps"], found["first"],
                         1e3 * found["warm"], kept[case.name]["seconds"], said])  # fmt: skip
            print(rows[-1], flush=True)
    print(report.table("Accuracy against NUTS", header, rows))
    if not asked.only:
        report.save("accuracy", {"rows": results})


if __name__ == "__main__":
    main()
