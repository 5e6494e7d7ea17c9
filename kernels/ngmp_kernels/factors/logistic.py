r"""Log-densities of logistic regression, `l(z) = -y softplus(-u) - w softplus(u)`, `u = z - c`, under broad Gaussians.

Beside a marginal of standard deviation s the softplus has a kink of width one, which Hermite nodes miss from about
s = 3 on. There the sigmoid is taken for what it is, the distribution function of a logistic variable T: with
$a = (m - c - T) / s$, for $u \sim N(m - c, s^2)$,

$$ E[\sigma(u)] = E_T[\Phi(a)], \qquad E[\sigma'(u)] = E_T[\varphi(a)] / s, \qquad
   E[softplus(u)] = E_T[s \varphi(a) + (m - c - T) \Phi(a)], $$

and the expectations over T are smooth sums for any $s \ge 1$. Under narrow ones the derivatives themselves are averaged
at Hermite's nodes: of differences of l rounding leaves nothing where the scale of an effect is nearly zero.
"""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Array, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities
from ..families import Gaussian
from ..numerics.lanes import if_any
from ..quadrature.edge import Moments, by_derivatives
from ..quadrature.projection import Quadrature, expectation, nodes, tangent_projection
from ..quadrature.regression import average

_BROAD = 1.0  # standard deviations from which nodes are those of T: both ways are right to 1e-9 there
_NARROWEST = 0.5  # where the nodes of T are right to 1e-5
_STEP, _COUNT = 0.64, 44  # trapezoidal nodes of T, on both sides: its tail beyond has 6e-13
_T = _STEP * np.arange(-_COUNT, _COUNT + 1)
_W = 1 / (2 + 2 * np.cosh(_T))
_W /= _W.sum()
_POWERS = _W * np.stack([np.ones_like(_T), _T, _T**2])
# as numpy scalars these would make all of it double
_DENSITY, _ROOT_HALF, _LOG_2 = float(1 / np.sqrt(2 * np.pi)), float(np.sqrt(0.5)), float(np.log(2.0))


def logistic_moments(mean: Array, std: Array) -> tuple[Array, ...]:
    """`E[sigma]` and `E[softplus]`, each at u and at -u, and the expectations of the first three derivatives of sigma.

    For u ~ N(mean, std^2), std at least one.
    """
    t = jnp.asarray(_T, mean.dtype).reshape((-1,) + (1,) * mean.ndim)
    a = (mean - t) / std
    density = jnp.exp(-0.5 * a * a) * _DENSITY
    tail = 0.5 * erfc(jnp.where(a < 0, -a, a) * _ROOT_HALF)
    below, above = jnp.where(a < 0, tail, 1 - tail), jnp.where(a < 0, 1 - tail, tail)
    # Sums over T as products of matrices: seven reductions would each work out every term anew.
    (hit, hit_t), (miss, miss_t) = (_sums(_POWERS[:2], x) for x in (below, above))
    d0, d1, d2 = _sums(_POWERS, density)
    plus, minus = std * d0 + mean * hit - hit_t, std * d0 - mean * miss + miss_t
    bend, third = (d1 - mean * d0) / std, (mean * mean * d0 - 2 * mean * d1 + d2) / (std * std) - d0
    return hit, miss, plus, minus, d0 / std, bend / std**2, third / std**3


def _sums(weights: np.ndarray, x: Float[Array, "t *n"]) -> Float[Array, "k *n"]:
    return jnp.tensordot(jnp.asarray(weights, x.dtype), x, axes=1, precision=jax.lax.Precision.HIGHEST)


class AbstractLogistic(AbstractProjected):
    """A unary factor `l(z) = -y softplus(-u) - w softplus(u) + const`, u = z - c."""

    # The fourth derivative is at most the second: an error of v comes back times v/2 at most.
    calm: ClassVar[float] = _BROAD**2

    @abc.abstractmethod
    def line(self) -> tuple[Array, Array, Array]:
        """`y`, `w` and `c`, each (n or 1,)."""

    def _constant(self, like: Array) -> Array:
        """`l(c) + (y + w) log 2`."""
        y, w, shift = self.line()
        return self.log_density(jnp.broadcast_to(shift, like.shape)[None])[0] + (y + w) * _LOG_2

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        if not isinstance(quadrature, Quadrature):
            return tangent_projection(marginal, self.log_density, quadrature)  # type: ignore[return-value]
        narrow = _narrow_projection(marginal, self.line(), quadrature)
        # Nodes of broad marginals take ten times as long, and are seldom needed.
        return if_any(_is_broad(marginal), _broad_projection, _unchanged, narrow, marginal, self.line())

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        narrow = expectation(marginal, self.log_density, quadrature)
        if not isinstance(quadrature, Quadrature):
            return narrow
        constant = self._constant(narrow)
        return if_any(_is_broad(marginal), _broad_value, _unchanged, narrow, marginal, self.line(), constant)

    def edge_moments(self, mean: Array, variance: Array) -> Moments:
        """Of edges that are broad; about narrow ones, a step on the way may know less."""
        found = _moments(mean, jnp.sqrt(variance), self.line())
        return found._replace(value=found.value + self._constant(mean))


def _moments(mean: Array, std: Array, line: tuple[Array, Array, Array]) -> Moments:
    """Of a broad q: `E[l]` but for its constant, and the expectations of its derivatives."""
    y, w, shift = line
    hit, miss, plus, minus, slope, bend, third = logistic_moments(mean - shift, jnp.maximum(std, _NARROWEST))
    value = -y * minus - w * plus
    return Moments(value, y * miss - w * hit, -(y + w) * slope, -(y + w) * bend, -(y + w) * third)


def _narrow_projection(q: Gaussian, line: tuple[Array, Array, Array], quadrature: Quadrature) -> Gaussian:
    """By `E[l'] = y E[sigma(-u)] - w E[sigma(u)]` and `E[l''] = -(y + w) E[sigma(u) sigma(-u)]`."""
    y, w, shift = line
    z, log_weights = nodes(quadrature, q)
    u, weights = z - shift, jnp.exp(log_weights)
    e = jnp.exp(-jnp.abs(u))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    hit, miss = jnp.where(u > 0.0, large, small), jnp.where(u > 0.0, small, large)
    hit, miss, slope = (average(weights, x) for x in (hit, miss, large * small))
    bend = -(y + w) * slope
    return Gaussian(y * miss - w * hit - q.mean * bend, 0.5 * bend)


def _is_broad(q: Gaussian) -> Array:
    return q.std > _BROAD


def _unchanged(narrow: Any, *_: Any) -> Any:
    return narrow


def _broad_projection(narrow: Gaussian, q: Gaussian, line: tuple[Array, Array, Array]) -> Gaussian:
    found = by_derivatives(q.mean, _moments(q.mean, q.std, line))
    return jax.tree.map(lambda a, b: jnp.where(_is_broad(q), a, b), found, narrow)


def _broad_value(narrow: Array, q: Gaussian, line: tuple[Array, Array, Array], constant: Array) -> Array:
    return jnp.where(_is_broad(q), _moments(q.mean, q.std, line).value + constant, narrow)
