"""Accuracy of models with several unknowns at one factor, against long NUTS runs.

`python benchmarks/accuracy.py [--only substrings] [--reference] [--rules] [--apart]`. For every model: the largest
|z|, the difference of means in posterior standard deviations, over its unknowns; the ratios of standard deviations,
smallest and largest; the error of the log-evidence, against importance sampling about the draws where that is sure of
itself; sweeps; processor time of the first and of a warm call, and of NUTS (two chains, compilation included). PASS
means |z| <= 0.1, ratios in 0.9-1.1 and an evidence within 0.2; "PASS, skewed" that the posterior is too skewed for a
Gaussian: the library says so, and the ratios are those of the best Gaussian of full covariance. Moments of NUTS are
kept in results/accuracy_reference.json; `--reference` draws them anew, and needs NumPyro. `--rules` adds NGMP, EP and
NGMP with power 1/2 everywhere, `--apart` the same programs with an edge for every unknown, which can take minutes.
"""

import argparse
import functools
import inspect
import json
import time
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import scipy.optimize

jax.config.update("jax_enable_x64", True)

import accuracy_models  # noqa: E402
import accuracy_more  # noqa: E402
import accuracy_structures  # noqa: E402
import report  # noqa: E402
from accuracy_models import Case  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

REFERENCE = report.RESULTS / "accuracy_reference.json"
DRAWS, CHAINS = 4000, 2
RULES = {"NGMP": ngmp.NGMP(), "EP": ngmp.EP(), "power 1/2": ngmp.NGMP(power=0.5)}


def nuts(case: Case) -> dict[str, Any]:
    """Means and standard deviations of all unknowns, the processor time, and the largest R-hat."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS, init_to_median

    start = time.process_time()
    # From anywhere, chains of products may stay at the mirror image of the mode, or at one of explosive coefficients.
    how = {"target_accept_prob": 0.9, "init_strategy": init_to_median}
    kernel = NUTS(lambda **inputs: case.reference(numpyro, dist, **inputs), **how)
    how = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=1000, num_samples=DRAWS, **how)
    mcmc.run(jax.random.key(0), **case.inputs)
    samples = {k: np.asarray(v) for k, v in mcmc.get_samples().items()}
    took = time.process_time() - start
    moments = {k: [v.mean(0).tolist(), v.std(0).tolist()] for k, v in samples.items()}
    chains = mcmc.get_samples(group_by_chain=True)
    unmixed = max(float(np.nanmax(split_gelman_rubin(np.asarray(v)))) for v in chains.values())
    return {"seconds": took, "moments": moments, "evidence": evidence(case, mcmc), "r_hat": unmixed}


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
            "converged": bool(post.converged), "evidence": -float(post.free_energy),
            "skewed": post.skewed, "skewness": {k: float(x) for k, x in post.skewness.items()}}  # fmt: skip


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


def kept_rows() -> dict[str, Any]:
    path = report.RESULTS / "accuracy.json"
    return json.loads(path.read_text())["rows"] if path.exists() else {}


def best_gaussian(case: Case, names: tuple[str, ...], moments: dict[str, Any]) -> dict[str, float]:
    """Ratios of the Gaussian q of full covariance with the largest `E_q[log p] + H[q]`, p what is left when all but a
    few numbers is integrated out; by products of twelve nodes of Hermite, from the moments of NUTS."""
    dim = len(names)
    u, w = np.polynomial.hermite_e.hermegauss(12)
    at = np.stack(np.meshgrid(*[np.arange(12)] * dim, indexing="ij"), -1).reshape(-1, dim)
    u, w = u[at], (w / w.sum())[at].prod(1)
    assert case.marginal is not None
    lower, exact = np.tril_indices(dim), case.marginal
    std = np.array([float(np.squeeze(moments[k][1])) for k in names])

    def loss(x: Any) -> Any:
        root = jnp.zeros((dim, dim)).at[lower].set(x[dim:])
        z = x[:dim] + u @ root.T
        value = jax.vmap(lambda z: exact(*z, **case.inputs))(z)
        return -jnp.sum(w * value) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))

    start = np.concatenate([[float(np.squeeze(moments[k][0])) for k in names], np.diag(std)[lower]])
    x = scipy.optimize.minimize(jax.jit(loss), start, jac=jax.jit(jax.grad(loss)), method="BFGS").x
    root = np.zeros((dim, dim))
    root[lower] = x[dim:]
    return {k: float(np.sqrt(v) / s) for k, v, s in zip(names, np.sum(root**2, 1), std, strict=True)}


def verdict(found: dict[str, Any], unknowns: dict[str, Any], error: float | None, best: dict[str, float]) -> str:
    if not found["converged"]:
        return "not converged"
    off = [k for k, (_, low, high) in unknowns.items() if low < 0.9 or high > 1.1]
    near = all(k in best and abs(unknowns[k][1] - best[k]) < 0.05 for k in off)
    if off and near and found["skewed"] and max(z for z, _, _ in unknowns.values()) < 0.15:
        return "PASS, skewed: best Gaussian " + ", ".join(f"{k} {best[k]:.2f}" for k in off)
    bad = [f"{k}: z {z:.2f}, ratio {low:.2f}-{high:.2f}" for k, (z, low, high) in unknowns.items()
           if z > 0.1 or low < 0.9 or high > 1.1]  # fmt: skip
    if error is not None and abs(error) > 0.2:
        bad.append(f"evidence {error:+.2f}")
    return "; ".join(bad) or "PASS"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--apart", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    header = ["model", "rule", "unknown", "z", "ratio", "evidence", "sweeps", "first s", "warm ms", "NUTS s", ""]
    rows, results = [], {}
    for case in [*accuracy_models.cases(), *accuracy_structures.cases(), *accuracy_more.cases()]:
        if not any(part in case.name for part in asked.only):
            continue
        if asked.reference or case.name not in kept:
            kept[case.name] = nuts(case)
            report.save("accuracy_reference", kept)
        arms = {"default": case.options}
        arms |= {name: {**case.options, "method": rule} for name, rule in RULES.items() if asked.rules}
        arms |= {"apart": {"joint": False}} if asked.apart else {}
        for edges, options in arms.items():
            try:
                found = ours(case, options)
            except (ngmp.ModelError, TypeError) as error:  # too many unknowns for separate edges, or for quadrature
                print(case.name, edges, error)
                continue
            unknowns = compare(found, kept[case.name])
            exact = kept[case.name]["evidence"]
            error = None if exact is None else found["evidence"] - exact
            names = tuple(inspect.signature(case.marginal).parameters)[: -len(case.inputs)] if case.marginal else ()
            best = best_gaussian(case, names, kept[case.name]["moments"]) if names else {}
            said = verdict(found, unknowns, error, best)
            del found["moments"]
            told = {"error": error, "unknowns": unknowns, "verdict": said, "nuts": kept[case.name]["seconds"]}
            results[f"{case.name}, {edges}"] = found | told
            worst = max(unknowns, key=lambda k: max(unknowns[k][0], *(abs(np.log(x)) for x in unknowns[k][1:])))
            z, low, high = unknowns[worst]
            off = "" if error is None else f"{error:+.2f}"
            rows.append([case.name, edges, worst, z, f"{low:.2f}-{high:.2f}", off, found["sweeps"], found["first"],
                         1e3 * found["warm"], kept[case.name]["seconds"], said])  # fmt: skip
            print(rows[-1], flush=True)
            report.save("accuracy", {"rows": kept_rows() | results})
    print(report.table("Accuracy against NUTS", header, rows))


if __name__ == "__main__":
    main()
