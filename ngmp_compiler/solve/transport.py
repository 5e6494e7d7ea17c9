"""Vector-transport momentum, as a step: what the paper's regression experiments iterate with."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ngmp_kernels.families import AbstractFamily, Gaussian

from .adaptive import each
from .step import AbstractStep

_FLOOR = 1e-6  # of metrics, and of the precision above which a site counts as proper


class TransportState(NamedTuple):
    """Momentum vectors and the metric where they were formed; None in place of a family that has no momentum."""

    momentum: Any
    metric: Any


def vector_transport(step: float = 0.6, momentum: float = 0.8, max_norm: float = 0.5) -> AbstractStep:
    r"""Heavy-ball momentum whose vector is carried from one iterate to the next by a vector transport.

    For every site (one element of a leaf) with natural parameters $\eta$ and target $\eta^*$, the paper's
    `eq:momentum-vector-transport` with the transport approximated elementwise:

    $$ u \leftarrow \beta\, u \circ \sqrt{G(\eta_{prev}) / G(\eta)} + \alpha (\eta^* - \eta), \qquad
       u \leftarrow u \min(1, \delta / \|u\|_2), \qquad \eta \leftarrow \eta + u, $$

    where the capped u is also what is kept. G is the diagonal Fisher metric of the site where that is proper: with
    precision $\Lambda > 10^{-6}$, variance $V = 1/\Lambda$ and mean $m = \xi V$ it is $(V, 2V^2 + 4m^2V)$ in the
    coordinates $(\xi, -\Lambda/2)$. A site need not be; elsewhere $G = |\eta|$. Both are held above $10^{-6}$.

    Only scalar Gaussian sites have momentum. With it, an update is no longer a convex combination and can leave the
    natural domain, for example to a Gamma message of negative rate; so Gamma sites, and those of every other family,
    are damped only (beta = 0). The cap holds for all of them; the norm is over all coordinates of a site.

    Args:
        step: alpha, in (0, 1].
        momentum: beta, in [0, 1); zero gives damping with a capped step.
        max_norm: delta, the largest Euclidean norm of the step of a site; `inf` for no cap.
    """
    _check("step", step, lambda x: (0 < x) & (x <= 1), "in (0, 1]; 1 is no damping")
    _check("momentum", momentum, lambda x: (0 <= x) & (x < 1), "in [0, 1); 0 is damping alone")
    _check("max_norm", max_norm, lambda x: x > 0, "positive; inf is no cap")
    return VectorTransport(step, momentum, max_norm)


class VectorTransport(AbstractStep):
    """See `vector_transport`."""

    step: float
    momentum: float
    max_norm: float

    def init(self, params: Any) -> TransportState:
        zeros = each(lambda q: jax.tree.map(jnp.zeros_like, q) if isinstance(q, Gaussian) else None, params)
        return TransportState(zeros, each(_metric, params))

    def update(self, updates: Any, state: TransportState, params: Any = None) -> tuple[Any, TransportState]:
        if params is None:
            raise ValueError("vector_transport needs the natural parameters: call update(gradients, state, params)")
        metric = each(_metric, params)
        steps = each(self._new, updates, state.momentum, state.metric, metric)
        kept = each(lambda u: u if isinstance(u, Gaussian) else None, steps)
        return steps, TransportState(kept, metric)

    def _new(self, gradient: AbstractFamily, u: Any, metric: Any, now: Any) -> AbstractFamily:
        fresh = gradient * -self.step
        if isinstance(fresh, Gaussian):
            carried = jax.tree.map(lambda u, before, after: u * jnp.sqrt(before / after), u, metric, now)
            fresh = fresh + carried * self.momentum
        norm = _norm(fresh)
        over = norm > self.max_norm
        return fresh * jnp.where(over, self.max_norm / jnp.where(over, norm, 1), 1)

    def __str__(self) -> str:
        return f"vector_transport({self.step}, {self.momentum}, {self.max_norm})"


def _metric(site: AbstractFamily) -> Gaussian | None:
    """The diagonal metric of Gaussian sites, one number for every natural parameter."""
    if not isinstance(site, Gaussian):
        return None
    proper = site.precision > _FLOOR
    variance = 1 / jnp.where(proper, site.precision, 1)
    square = (site.eta1 * variance) ** 2
    fisher = (variance, 2 * variance**2 + 4 * square * variance)
    pairs = zip(fisher, site.natural, strict=True)
    return Gaussian(*(jnp.maximum(jnp.where(proper, g, jnp.abs(eta)), _FLOOR) for g, eta in pairs))


def _norm(u: AbstractFamily) -> Float[Array, "*b"]:
    """The Euclidean norm of every element."""
    ndim = len(u.batch_shape)
    squares = [jnp.sum(x**2, axis=tuple(range(ndim, x.ndim))) for x in u.natural]
    return jnp.sqrt(sum(squares[1:], start=squares[0]))


def _check(name: str, value: Any, holds: Any, works: str) -> None:
    if isinstance(value, Tracer):
        return
    number = np.asarray(value)
    if number.dtype.kind not in "fiu" or number.shape != ():
        raise TypeError(f"vector_transport({name}={value!r}): give a number {works}")
    if not holds(number):
        raise ValueError(f"vector_transport({name}={value}): {name} must be a number {works}")
