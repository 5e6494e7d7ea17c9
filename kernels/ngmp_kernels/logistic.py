r"""Log-densities of logistic regression, `l(z) = -y softplus(-u) - w softplus(u)`, `u = z - c`, under broad Gaussians.

Beside a marginal of standard deviation s the softplus has a kink of width one, which Hermite nodes miss from about
s = 3 on. There the sigmoid is taken for what it is, the distribution function of a logistic variable T: with
$a = (m - c - T) / s$, for $u \sim N(m - c, s^2)$,

$$ E[\sigma(u)] = E_T[\Phi(a)], \qquad E[\sigma'(u)] = E_T[\varphi(a)] / s, \qquad
   E[softplus(u)] = E_T[s \varphi(a) + (m - c - T) \Phi(a)], $$

and the expectations over T are smooth sums for any $s \ge 1$.
"""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from .factor import AbstractProjected, Cavities, Rule
from .families import Gaussian
from .projection import Quadrature, expectation, tangent_projection

_BROAD = 1.0  # standard deviations from which nodes are those of T: both ways are right to 1e-9 there
_STEP, _COUNT = 0.64, 44  # trapezoidal nodes of T, on both sides: its tail beyond has 6e-13
_T = _STEP * np.arange(-_COUNT, _COUNT + 1)
_W = 1 / (2 + 2 * np.cosh(_T))
_W /= _W.sum()
_DENSITY, _LOG_2 = float(1 / np.sqrt(2 * np.pi)), float(np.log(2.0))  # numpy scalars would make all of it double


def logistic_moments(mean: Array, std: Array) -> tuple[Array, Array, Array, Array]:
    """`E[sigma(u)]`, `E[sigma(-u)]`, `E[sigma'(u)]` and `E[softplus(u)]` for u ~ N(mean, std^2), std at least one."""
    t, w = (jnp.asarray(x, mean.dtype).reshape((-1,) + (1,) * mean.ndim) for x in (_T, _W))
    gap = mean - t
    a = gap / std
    density = jnp.exp(-0.5 * a * a) * _DENSITY
    below, above = ndtr(a), ndtr(-a)
    sums = (below, above, density, std * density + gap * below)
    first, second, slope, plus = (jnp.sum(w * x, axis=0) for x in sums)
    return first, second, slope / std, plus


class AbstractLogistic(AbstractProjected):
    """A unary factor `l(z) = -y softplus(-u) - w softplus(u) + const`, u = z - c."""

    @abc.abstractmethod
    def line(self) -> tuple[Array, Array, Array]:
        """`y`, `w` and `c`, each (n or 1,)."""

    def _broad(self, q: Gaussian) -> tuple[Gaussian, Float[Array, " n"]]:
        """Where q is broad: the projection, by Bonnet and Price, and `E[l]` but for its constant."""
        y, w, shift = self.line()
        std = jnp.maximum(q.std, _BROAD)
        hit, miss, slope, plus = logistic_moments(q.mean - shift, std)
        first, second = y * miss - w * hit, -(y + w) * slope
        # softplus(-u) = softplus(u) - u
        return Gaussian(first - q.mean * second, 0.5 * second), y * (q.mean - shift) - (y + w) * plus

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, rule: Rule) -> Gaussian:
        del j, cavities
        narrow = tangent_projection(marginal, self.log_density, rule)
        if not isinstance(rule, Quadrature):
            return narrow  # type: ignore[return-value]
        broad = marginal.std > _BROAD

        def mixed() -> Gaussian:
            found = self._broad(marginal)[0]
            return jax.tree.map(lambda a, b: jnp.where(broad, a, b), found, narrow)

        return jax.lax.cond(jnp.any(broad), mixed, lambda: narrow)  # type: ignore[return-value]

    def expected_log_message(self, j: int, marginal: Gaussian, cavities: Cavities, rule: Rule) -> Array:
        del j, cavities
        narrow = expectation(marginal, self.log_density, rule)
        if not isinstance(rule, Quadrature):
            return narrow
        y, w, shift = self.line()
        centre = jnp.broadcast_to(shift, narrow.shape)
        constant = self.log_density(centre[None])[0] + (y + w) * _LOG_2
        broad = marginal.std > _BROAD
        return jax.lax.cond(
            jnp.any(broad), lambda: jnp.where(broad, self._broad(marginal)[1] + constant, narrow), lambda: narrow
        )
