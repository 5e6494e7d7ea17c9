"""What a person sees of a marginal: its density at points, and itself in one line."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike


class Shown:
    """Methods of families for people."""

    def density(self: Any, z: ArrayLike) -> Array:
        """`q(z)`; z has shape `(..., *b, *event)`."""
        return jnp.exp(self.log_density(jnp.asarray(z)))

    def __repr__(self: Any) -> str:
        """Family and shape, and the mean and standard deviation of the first elements."""
        shape = f"{type(self).__name__}{list(self.batch_shape)}" if self.batch_shape else type(self).__name__
        known = all(isinstance(x, (np.ndarray, jnp.ndarray)) and not isinstance(x, Tracer) for x in self.natural)
        if not known or not np.size(self.natural[0]):
            return f"{shape}(traced)" if known is False else f"{shape}()"
        mean, sd = (np.ravel(np.asarray(x)) for x in (self.mean, self.std))
        more = f", ... {mean.size} in all" if mean.size > 4 else ""
        return f"{shape}(" + ", ".join(f"{m:.4g} ± {s:.3g}" for m, s in zip(mean[:4], sd[:4], strict=True)) + more + ")"
