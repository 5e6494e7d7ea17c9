"""What a person sees of a marginal: its density at points, and itself in one line."""

from typing import Any

import jax
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
        return in_words(self, type(self).__name__, self.batch_shape)


def in_words(q: Any, name: str, shape: tuple[int, ...]) -> str:
    """What a marginal is called with its shape, and the mean and standard deviation of its first elements."""
    name, arrays = f"{name}{list(shape)}" if shape else name, jax.tree.leaves(q)
    if not all(isinstance(x, (np.ndarray, jnp.ndarray)) and not isinstance(x, Tracer) for x in arrays):
        return f"{name}(traced)"
    if not all(np.size(x) for x in arrays):
        return f"{name}()"
    mean, sd = (np.ravel(np.asarray(x)) for x in (q.mean, q.std))
    more = f", ... {mean.size} in all" if mean.size > 4 else ""
    return f"{name}(" + ", ".join(f"{m:.4g} ± {s:.3g}" for m, s in zip(mean[:4], sd[:4], strict=True)) + more + ")"
