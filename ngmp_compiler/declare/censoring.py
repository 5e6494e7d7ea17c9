"""`censored=` of `ngmp.sample`: observations that are bounds of an outcome."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels import Censored
from ngmp_kernels.factors.truncated import CODES

from .frame import refuse
from .inputs import as_constant, unwrap

_WORKS = "give 'right', 'left' or 'interval', or an array of codes: 0 seen, 1 right, -1 left, 2 interval"


def censor(name: str, distribution: Any, obs: Any, censored: Any) -> tuple[Any, Any]:
    """The censored distribution, and the observations: the lower ends, where there are two."""
    if obs is None:
        refuse(name, "censored", "it was given without obs=", "only observations can be censored")
    if isinstance(censored, str):
        if censored not in CODES:
            refuse(name, "censored", f"it is {censored!r}", _WORKS)
        code: Any = float(CODES[censored])
    else:
        code = unwrap(as_constant(censored))
        if isinstance(code, (np.ndarray, np.generic)) and not np.isin(code, list(CODES.values())).all():
            unknown = np.asarray(code)[~np.isin(code, list(CODES.values()))].reshape(-1)[0]
            refuse(name, "censored", f"it has the code {unknown}", _WORKS)
        code = jnp.asarray(code, float) if jnp.issubdtype(jnp.result_type(code), bool) else code
    obs = unwrap(as_constant(obs))
    pair = np.ndim(obs) > np.ndim(code) if np.ndim(code) else code == CODES["interval"]
    if pair and np.shape(obs)[-1:] != (2,):
        works = "of intervals, the last axis has the lower and the upper end"
        refuse(name, "obs", f"it has shape {np.shape(obs)}", works)
    lower, upper = (obs[..., 0], obs[..., 1]) if pair else (obs, obs)
    return Censored(distribution, code, upper, bool(pair)), lower
