"""Posteriors as ArviZ data: joint draws, what they predict, and how likely they make the data."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .labels import dims_of

_DRAWN = {"log_likelihood", "posterior_predictive"}  # groups with axes of chains and draws


def to_arviz(post: Any, key: PRNGKeyArray, draws: int, chains: int) -> Any:
    """See `Posterior.to_arviz`."""
    try:
        import arviz  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'ngmp-compiler[arviz]', or arviz") from error
    known = getattr(post, "origin", None)
    groups: dict[str, Any] = {}
    if known is None or np.ndim(post.free_energy):
        keys = jax.random.split(key, len(post.marginals) + 1)
        marginals = zip(post.marginals.items(), keys, strict=False)
        found = {name: np.asarray(q.sample(k, (chains, draws))) for (name, q), k in marginals}
    else:
        found = {name: np.asarray(x) for name, x in post.sample(key, (chains, draws)).items()}
        groups = _sites(known, found, key, chains * draws)
    shaped = {g: {n: x.reshape(chains, draws, *x.shape[1:]) for n, x in each.items()} for g, each in groups.items()
              if g != "observed_data"}  # fmt: skip
    if "observed_data" in groups:
        shaped["observed_data"] = groups["observed_data"]
    if known is not None and (constant := _constants(known, groups.get("observed_data", {}))):
        shaped["constant_data"] = constant
    drawn = [found, *(shaped[g] for g in sorted(_DRAWN & shaped.keys()))]
    shapes = {name: x.shape[2:] for each in drawn for name, x in each.items()}
    shapes |= {name: x.shape for g in shaped.keys() - _DRAWN for name, x in shaped[g].items()}
    axes = {name: dims_of(name, shape, {} if known is None else known.labels) for name, shape in shapes.items()}
    dims = {name: own for name, (own, _) in axes.items()}
    coords = {dim: x for _, own in axes.values() for dim, x in own.items()}
    data = arviz.from_dict(posterior=found, dims=dims, coords=coords, **shaped)  # pyright: ignore[reportArgumentType]
    data["posterior"].attrs.update(inference_library="ngmp_compiler", reason=post.reason)
    return data


def _constants(known: Any, observed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs that are arrays, and no observations."""
    out = {}
    for name, x in known.inputs.items():
        data = isinstance(x, (np.ndarray, jax.Array)) and name not in observed and np.asarray(x).dtype.kind in "fiub"
        if data and not any(np.array_equal(np.asarray(x), y, equal_nan=True) for y in observed.values()):
            out[name] = np.asarray(x)
    return out


def _sites(known: Any, found: dict[str, np.ndarray], key: PRNGKeyArray, count: int) -> dict[str, Any]:
    """Of every observed site, by group of ArviZ: log-likelihoods and predictions at the draws, and the data."""
    flat = {name: x.reshape(count, *x.shape[2:]) for name, x in found.items()}
    return {g: each for g, each in known.program.at_draws(known.static, known.dynamic, flat, key).items() if each}
