r"""Log-densities of logistic regression, `l(z) = -y softplus(-u) - w softplus(u)`, `u = z - c`, under broad Gaussians.

Beside a marginal of standard deviation s the softplus has a kink of width one, which Hermite nodes miss from about
s = 3 on. There the sigmoid is taken for what it is, the distribution function of a logistic variable T: with
$a = (m - c - T) / s$, for $u \sim N(m - c, s^2)$,

$$ E[\sigma(u)] = E_T[\Phi(a)], \qquad E[\sigma'(u)] = E_T[\varphi(a)] / s, \qquad
   E[softplus(u)] = E_T[s \varphi(a) + (m - c - T) \Phi(a)], $$

and the expectations over T are smooth sums for any $s \ge 1$.
"""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array

from ..factor import AbstractProjected, Cavities, Rule
from ..families import Gaussian
from ..quadrature.edge import Moments, by_derivatives
from ..quadrature.projection import Quadrature, expectation, tangent_projection

_BROAD = 1.0  # standard deviations from which nodes are those of T: both ways are right to 1e-9 there
_NARROWEST = 0.5  # where the nodes of T are right to 1e-5
_STEP, _COUNT = 0.64, 44  # trapezoidal nodes of T, on both sides: its tail beyond has 6e-13
_T = _STEP * np.arange(-_COUNT, _COUNT + 1)
_W = 1 / (2 + 2 * np.cosh(_T))
_W /= _W.sum()
_DENSITY, _LOG_2 = float(1 / np.sqrt(2 * np.pi)), float(np.log(2.0))  # numpy scalars would make all of it double


def logistic_moments(mean: Array, std: Array) -> tuple[Array, ...]:
    """`E[sigma]` and `E[softplus]`, each at u and at -u, and the expectations of the first three derivatives of sigma.

    For u ~ N(mean, std^2), std at least one.
    """
    t, w = (jnp.asarray(x, mean.dtype).reshape((-1,) + (1,) * mean.ndim) for x in (_T, _W))
    gap = mean - t
    a = gap / std
    density = jnp.exp(-0.5 * a * a) * _DENSITY
    below, above = ndtr(a), ndtr(-a)
    plus, minus = std * density + gap * below, std * density - gap * above
    sums = (below, above, plus, minus, density, -a * density, (a * a - 1.0) * density)
    hit, miss, plus, minus, slope, bend, third = (jnp.sum(w * x, axis=0) for x in sums)
    return hit, miss, plus, minus, slope / std, bend / std**2, third / std**3


class AbstractLogistic(AbstractProjected):
    """A unary factor `l(z) = -y softplus(-u) - w softplus(u) + const`, u = z - c."""

    # The fourth derivative is at most the second: an error of v comes back times v/2 at most.
    calm: ClassVar[float] = _BROAD**2

    @abc.abstractmethod
    def line(self) -> tuple[Array, Array, Array]:
        """`y`, `w` and `c`, each (n or 1,)."""

    def _broad(self, mean: Array, std: Array) -> Moments:
        """Where q is broad: `E[l]` but for its constant, and the expectations of its derivatives."""
        y, w, shift = self.line()
        hit, miss, plus, minus, slope, bend, third = logistic_moments(mean - shift, jnp.maximum(std, _NARROWEST))
        value = -y * minus - w * plus
        return Moments(value, y * miss - w * hit, -(y + w) * slope, -(y + w) * bend, -(y + w) * third)

    def _constant(self, like: Array) -> Array:
        """`l(c) + (y + w) log 2`."""
        y, w, shift = self.line()
        return self.log_density(jnp.broadcast_to(shift, like.shape)[None])[0] + (y + w) * _LOG_2

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, rule: Rule) -> Gaussian:
        del j, cavities
        narrow = tangent_projection(marginal, self.log_density, rule)
        if not isinstance(rule, Quadrature):
            return narrow  # type: ignore[return-value]
        broad = marginal.std > _BROAD

        def mixed() -> Gaussian:
            found = by_derivatives(marginal.mean, self._broad(marginal.mean, marginal.std))
            return jax.tree.map(lambda a, b: jnp.where(broad, a, b), found, narrow)

        return jax.lax.cond(jnp.any(broad), mixed, lambda: narrow)  # type: ignore[return-value]

    def expected_log_message(self, j: int, marginal: Gaussian, cavities: Cavities, rule: Rule) -> Array:
        del j, cavities
        narrow = expectation(marginal, self.log_density, rule)
        if not isinstance(rule, Quadrature):
            return narrow
        broad = marginal.std > _BROAD

        def mixed() -> Array:
            return jnp.where(broad, self._broad(marginal.mean, marginal.std).value + self._constant(narrow), narrow)

        return jax.lax.cond(jnp.any(broad), mixed, lambda: narrow)

    def edge_moments(self, mean: Array, variance: Array) -> Moments:
        """Of edges that are broad; about narrow ones, a step on the way may know less."""
        found = self._broad(mean, jnp.sqrt(variance))
        return found._replace(value=found.value + self._constant(mean))
