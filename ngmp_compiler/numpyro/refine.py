"""`program.refine` of a NumPyro model: NumPyro's NUTS on the model itself, from our posterior.

Chains begin at draws of the posterior; its covariance, on the real line that NumPyro moves on, is the mass matrix,
which stays as it is. The warm-up finds the size of steps. The missing half of an `obs_mask` is left out, and to
predictions: nothing else depends on it. Discrete sites are summed over by NumPyro, with funsor.
"""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import unconstrain_fn

from ..errors import ModelError, Problem
from ..results.coordinates import standardise
from ..results.refine import ACCEPTED, Refined
from .samples import as_data, in_layout


def nuts(model: Any, start: dict[str, Array], inputs: dict[str, Any], key: PRNGKeyArray, chains: int, draws: int,
         warmup: int) -> Refined:  # fmt: skip
    """Draws of the posterior of a NumPyro model, in its own names and shapes, deterministic sites among them.

    Args:
        model: the NumPyro model.
        start: joint draws of our variables, with a leading axis.
        inputs: of the model.
        key: a jax random key.
        chains, draws, warmup: numbers of them.
    """
    inputs = as_data(inputs)
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(**inputs)
    missing = {name for name in trace if name.endswith("_unobserved")}
    missing |= {name.removesuffix("_unobserved") for name in missing}  # both halves, put together
    model = handlers.block(model, hide_fn=lambda site: site.get("name") in missing)
    first, second = jax.random.split(key)
    known = _begun(model, {k: jnp.asarray(x) for k, x in start.items()}, inputs, first)
    real = jax.vmap(lambda x: unconstrain_fn(handlers.seed(model, 0), (), inputs, x))(known)
    scale = standardise(jax.vmap(lambda x: ravel_pytree(x)[0])(real))
    dense = scale.root.ndim == 2
    mass = scale.root @ scale.root.T if dense else scale.root**2
    kernel = NUTS(model, inverse_mass_matrix=mass, dense_mass=dense, adapt_mass_matrix=False, step_size=0.8,
                  target_accept_prob=ACCEPTED)  # fmt: skip
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=chains, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    begin = jax.tree.map(lambda x: x[:chains] if chains > 1 else x[0], real)
    mcmc.run(second, init_params=begin, extra_fields=("diverging", "num_steps"), **inputs)
    found = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    more = mcmc.get_extra_fields()
    r_hat = {name: np.asarray(split_gelman_rubin(found[name])) for name in known}
    ess = {name: np.asarray(effective_sample_size(found[name])) for name in known}
    return Refined(found, r_hat, ess, int(np.sum(more["diverging"])), float(np.mean(more["num_steps"])))


def _begun(model: Any, draws: dict[str, Array], inputs: dict[str, Any], key: PRNGKeyArray) -> dict[str, Array]:
    """Draws of every continuous latent site, from the posterior where it has them."""
    known, _ = in_layout(model, draws, inputs)
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(**inputs)
    latent = [k for k, s in trace.items() if s["type"] == "sample" and not s["is_observed"]]
    classes = [k for k in latent if trace[k]["fn"].support.is_discrete]
    if classes and importlib.util.find_spec("funsor") is None:
        given = "it is discrete, and NumPyro's NUTS sums over it with funsor, which is not installed"
        raise ModelError([Problem(k, None, given, "pip install funsor") for k in classes])
    missing = [k for k in latent if k not in known]
    if missing:
        known |= Predictive(model, known, return_sites=missing)(key, **inputs)
    return {k: known[k] for k in latent if k not in classes}
