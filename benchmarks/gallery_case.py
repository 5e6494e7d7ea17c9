"""What a row of the gallery is, and where its reference comes from: NUTS, dense algebra, or enumeration."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

SEED, WARMUP, DRAWS, CHAINS = 0, 1000, 1000, 2  # of NUTS; the first chain is timed, with its compilation


class Case(NamedTuple):
    """A model of the gallery with data, and the same as `reference(numpyro, dist, **inputs)`.

    `how` says what is made of the reference: "nuts"; "dense", where the joint is Gaussian: its precision and mean from
    the derivatives of NumPyro's log-density; "exact", where `reference(**inputs)` is itself the answer by enumeration.
    """

    name: str
    model: Callable
    inputs: dict[str, Any]
    reference: Callable
    options: dict[str, Any] = {}
    how: str = "nuts"


def normals(numpyro: Any, dist: Any, name: str, shape: Any, std: Any = 1.0, mean: Any = 0.0) -> Any:
    """A plate of independent normals."""
    return numpyro.sample(name, dist.Normal(mean + jnp.zeros(shape), std).to_event(len(np.atleast_1d(shape))))


def reference(case: Case) -> dict[str, Any]:
    """Means and standard deviations by name, and the processor seconds that NUTS took for a run as users make it."""
    if case.how == "exact":
        return {"how": "enumeration", "moments": _lists(case.reference(**case.inputs))}
    if case.how == "dense":
        return {"how": "dense algebra", "moments": _lists(dense(case))}
    return {"how": "NUTS", **nuts(case)}


def _lists(moments: dict[str, Any]) -> dict[str, Any]:
    return {
        k: [np.round(np.asarray(m), 7).tolist(), np.round(np.asarray(s), 7).tolist()] for k, (m, s) in moments.items()
    }


def nuts(case: Case) -> dict[str, Any]:
    """Moments by independent chains, and the processor seconds of the first, compilation included."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS, init_to_median

    start, seconds, chains = time.process_time(), [], []
    model = functools.partial(case.reference, numpyro, dist)
    # Chains that start anywhere stay at a mirror image: classes that swapped names, a pendulum turned over.
    kernel = NUTS(model, target_accept_prob=0.9, init_strategy=init_to_median)
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
    for chain in range(CHAINS):
        mcmc.run(jax.random.key(SEED + chain), **case.inputs)
        chains.append({k: np.asarray(v) for k, v in mcmc.get_samples().items()})
        seconds.append(time.process_time() - start)
    draws = {k: np.stack([c[k] for c in chains]) for k in chains[0]}
    told = summary(draws).values()
    flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in draws.items()}
    return {"moments": _lists({k: (v.mean(0), v.std(0)) for k, v in flat.items()}), "seconds": seconds[0],
            "draws": DRAWS * CHAINS, "r_hat": max(float(np.max(t["r_hat"])) for t in told),
            "n_eff": min(float(np.min(t["n_eff"])) for t in told)}  # fmt: skip


def dense(case: Case) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Moments of a Gaussian joint with Hessian H and gradient g at zero: mean -H^{-1} g, covariance -H^{-1}."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    model = functools.partial(case.reference, numpyro, dist)
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(**case.inputs)
    free = {k: s["value"] for k, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    told = [k for k, s in sites.items() if s["type"] == "deterministic"]
    start, unravel = jax.flatten_util.ravel_pytree(free)
    start = 0.0 * start

    def joint(x):
        return log_density(model, (), case.inputs, unravel(x))[0]

    def every(x):
        values = unravel(x)
        got = numpyro.handlers.trace(numpyro.handlers.substitute(numpyro.handlers.seed(model, 0), values))
        trace = got.get_trace(**case.inputs)
        return values | {k: trace[k]["value"] for k in told}

    covariance = np.linalg.inv(-np.asarray(jax.jit(jax.hessian(joint))(start)))
    mean = jnp.asarray(covariance @ np.asarray(jax.jit(jax.grad(joint))(start)))
    means, slopes = jax.jit(lambda x: (every(x), jax.jacfwd(every)(x)))(mean)
    out = {}
    for k, m in means.items():
        j = np.asarray(slopes[k]).reshape(-1, len(mean))
        out[k] = np.asarray(m), np.sqrt(np.einsum("ij,jk,ik->i", j, covariance, j)).reshape(np.shape(m))
    return out
