r"""A latent class with Dirichlet probabilities, as the weights of a mixture: `f(k, p) = p[k]`.

With c the cavity probabilities of the class, the exact log-message toward p is $\ell(p) = \log \sum_k c_k p_k$. Its
expectation under Dirichlet(alpha) is one-dimensional: p is a vector of independent Gammas over its sum, and
$E \log X = \int_0^\infty (e^{-t} - E e^{-tX}) dt/t$, so with $\sum_k c_k \alpha_k = \sum_k \alpha_k$,

$$ E[\ell] = \int_0^\infty \Big( (1 + t)^{-\sum_k \alpha_k} - \prod_k (1 + c_k t)^{-\alpha_k} \Big) \frac{dt}{t}, $$

and its gradient in alpha, divided by the Fisher matrix, is the projection that NGMP asks for.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage
from ..families import AbstractFamily, Categorical, Dirichlet
from ..numerics.gamma_functions import trigamma_minus_inverse
from ..numerics.special import safe_log
from ..quadrature.projection import expectation, tangent_projection

_POINTS = 193
_REACH = 38.0  # nats beyond which a tail is below the rounding unit


class LatentProbs(AbstractProjected):
    """`f(k, p) = p[k]` of a latent class k and a vector of probabilities p.

    Toward the class `log E[p]`; toward p as in the module docstring. Mean field: `E[log p]`, and `q(k)`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("out", "p")
    families: ClassVar[Families] = (Categorical, Dirichlet)

    def log_density(self, k: Array, p: Array) -> Array:
        shape = jnp.broadcast_shapes(k.shape, p.shape[:-1])
        index = jnp.broadcast_to(k, shape)[..., None]
        return safe_log(jnp.take_along_axis(jnp.broadcast_to(p, (*shape, p.shape[-1])), index, axis=-1)[..., 0])

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == 0:
            means = cavities[1].mean
            return lambda k: self.log_density(k, means)
        probs = cavities[0].probs
        return lambda p: safe_log(jnp.sum(probs * p, axis=-1))

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        if j == 0:
            return tangent_projection(marginal, self.log_message(0, cavities), quadrature)
        assert isinstance(marginal, Dirichlet)
        return Dirichlet(_natural_gradient(marginal.concentration, _integrals(marginal, cavities[0].probs)[1]))

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        if j == 0:
            return expectation(marginal, self.log_message(0, cavities), quadrature)
        assert isinstance(marginal, Dirichlet)
        return _integrals(marginal, cavities[0].probs)[0]

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        return safe_log(jnp.sum(cavities[0].probs * cavities[1].mean, axis=-1))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 0:
            (log_p,) = marginals[1].to_mean()
            return lambda k: self.log_density(k, jnp.exp(log_p))
        probs = marginals[0].probs
        return lambda p: jnp.sum(probs * safe_log(p), axis=-1)

    def mean_field_projection(
        self, j: int, marginals: Cavities, quadrature: AbstractQuadrature
    ) -> Categorical | Dirichlet:
        return Categorical(*marginals[1].to_mean()) if j == 0 else Dirichlet(marginals[0].probs)

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        return jnp.sum(marginals[0].probs * marginals[1].to_mean()[0], axis=-1)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, k: Array, p: Array) -> tuple[Array, Array]:
        return p, p * (1.0 - p)


def _integrals(q: Dirichlet, probs: Float[Array, "n K"]) -> tuple[Float[Array, " n"], Float[Array, "n K"]]:
    """`E_q[log(c . p)]` and its gradient in alpha at fixed c, on trapezoidal nodes of `log t`."""
    alpha = q.concentration
    total = jnp.sum(alpha, axis=-1)
    centre = jnp.sum(probs * q.mean, axis=-1)
    c = probs / centre[..., None]
    # Where c_k alpha_k dominates, the product decays with alpha_k alone.
    x, weights = _stretched(jax.lax.stop_gradient(_REACH * (1 + 1 / jnp.min(alpha, axis=-1))))
    t = jnp.exp(jnp.minimum(x - jnp.log(total), 0.45 * jnp.log(jnp.finfo(x.dtype).max)))
    own, whole = jnp.log1p(c * t[..., None]), jnp.log1p(t)
    first, second = jnp.exp(-total * whole), jnp.exp(-jnp.sum(alpha * own, axis=-1))
    value = jnp.sum(weights * (first - second), axis=0)
    slope = jnp.sum(weights[..., None] * (own * second[..., None] - (whole * first)[..., None]), axis=0)
    return jnp.log(centre) + value, slope


def _stretched(right: Float[Array, " n"]) -> tuple[Float[Array, "Q n"], Float[Array, "Q n"]]:
    """Nodes `x = (v + sinh v)/2` from `-_REACH` to `right`, uniform in v, and their weights."""
    start, end = -math.log(4 * _REACH), jnp.log(4 * right)  # arcsinh(2x) at large x
    v = start + (end - start) * jnp.asarray(np.linspace(0.0, 1.0, _POINTS), right.dtype)[:, None]
    e = jnp.exp(v)
    inverse = 1 / e
    return 0.5 * v + 0.25 * (e - inverse), (0.5 + 0.25 * (e + inverse)) * (end - start) / (_POINTS - 1)


def _natural_gradient(alpha: Float[Array, "n K"], slope: Float[Array, "n K"]) -> Float[Array, "n K"]:
    r"""$F^{-1}$ times the slope, $F = \mathrm{diag}\,\psi_1(\alpha_k) - \psi_1(\sum \alpha)$, by Sherman and Morrison.

    The denominator $1/\psi_1(\sum\alpha) - \sum 1/\psi_1(\alpha_k)$ is written with $1/\psi_1(a) = a - h(a)$, h about
    1/2, because its large terms cancel.
    """

    def inverse(a: Array) -> tuple[Array, Array]:
        """`1/psi_1(a)` and h(a)."""
        excess = a * trigamma_minus_inverse(a)
        found = a / (1 + excess)
        return found, excess * found

    (each, own), (_, whole) = inverse(alpha), inverse(jnp.sum(alpha, axis=-1))
    scaled = slope * each
    shift = jnp.sum(scaled, axis=-1) / (jnp.sum(own, axis=-1) - whole)
    return scaled + shift[..., None] * each
