"""Factors: the interface between a declared distribution and the message-passing machinery.

A factor *instance* is a batch of `n` factors of one kind. Its parameter arrays have a leading axis `n`, or `1` where
all factors share the value; every method is elementwise over that axis and broadcasts the two. A factor is either
*conjugate* (its message lies in the receiving family, exactly) or *projected* (its exact belief-propagation
log-message is projected on the tangent space at the receiving marginal).
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .families import AbstractFamily, Gaussian
from .nested import nested_expectation, nested_quadrature
from .quadrature.edge import Moments, hermite_moments, settle_edge
from .quadrature.predictive import MOMENTS, product_nodes, tilted_log_density
from .quadrature.projection import AbstractQuadrature, Quadrature, expectation, nodes, tangent_projection

if TYPE_CHECKING:
    Values = Array
else:
    Values = Array | np.ndarray  # numpy where a parameter is known while compiling, so that it can be checked then
Families = tuple[type[AbstractFamily], ...]
Cavities = tuple[Any, ...]  # a family instance per interface; the receiving entry is not read and may be None
LogMessage = Callable[[Array], Array]


class AbstractFactor(eqx.Module):
    """`n` factors `f(z_1, ..., z_d)` of one kind."""

    interfaces: eqx.AbstractVar[tuple[str, ...]]
    """The names of the interfaces, as in the paper, for example `("r", "tau")`."""
    families: eqx.AbstractVar[Families]
    """The receiving family of each interface."""
    deterministic: ClassVar[bool] = False
    """Whether the factor is a delta: then it has no expected logarithm, and mean-field rules pass it by."""
    hard: ClassVar[bool] = False
    """Whether the log-density may be minus infinity inside the support of a family, so that integrals have edges."""
    degenerate: ClassVar[bool] = False
    """Whether all mass of a factor on vectors is on a subspace: executors that work with precisions cannot hear it."""
    support: ClassVar[str | None] = None
    """Where an outcome lives: "real", "positive", "unit" or "count"; None where it has no distribution function."""

    relative: ClassVar[bool] = False
    """Whether a Gaussian interface is `log(outcome / scale)`, at its own outcome for `cdf` and `moments` as well."""

    @property
    def label(self) -> str:
        """The name in descriptions."""
        return type(self).__name__

    @abc.abstractmethod
    def log_density(self, *z: Array) -> Float[Array, "... n"]:
        """`log f(z_1, ..., z_d)` with every constant.

        Args:
            *z: one array per interface, shape (..., n, *event); leading axes broadcast against each other.
        """

    @abc.abstractmethod
    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        """What data and parameters must satisfy: a sentence saying what would be right, and where it holds."""

    @abc.abstractmethod
    def moments(self, *z: Array) -> tuple[Array, Array]:
        """Mean and variance of the *outcome* given values of the interfaces, for prediction.

        A factor on a residual `r = out - mean` is given `r` at `out = 0`, so that the mean is `-r`.
        """

    def cdf(self, out: Array, *z: Array) -> Float[Array, "... n"]:
        """`P(outcome <= out | z)`, with `z` as in `moments`; for factors that state a `support`."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution function")

    def predictive(self, repeats: int) -> "AbstractFactor":
        """The factor that predicts outcomes: this one, unless several of its rows, which are `(repeats, classes, size)`
        with the `classes` of the distribution, make one outcome."""
        return self

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """`E[outcome]`, `Var[E[outcome | z]]` and `E[Var[outcome | z]]` under the product of the marginals.

        Marginals are of the interfaces as in `moments`, that is at outcome zero where that is part of a residual.
        """
        z, log_weights, axes = product_nodes(MOMENTS, marginals)
        mean, variance = self.moments(*z)
        weights = jnp.exp(log_weights)
        weights = weights.reshape(weights.shape + (1,) * (np.ndim(mean) - weights.ndim))
        centre = jnp.sum(weights * mean, axes)
        return centre, jnp.sum(weights * (mean - centre) ** 2, axes), jnp.sum(weights * variance, axes)

    def predictive_cdf(self, out: Float[Array, " n"], marginals: Cavities) -> Float[Array, " n"]:
        """`F(out) = E[F(out | z)]` under the product of the marginals, which are as in `predictive_moments`."""
        z, log_weights, axes = product_nodes(Quadrature(), marginals)
        return jnp.sum(jnp.exp(log_weights) * self.cdf(out, *z), axes)

    def predictive_log_density(self, marginals: Cavities) -> Float[Array, " n"]:
        """`log ∫ f(z) Π_j q_j(z_j) dz` of the outcome that the factor holds."""
        raise NotImplementedError(f"{type(self).__name__} has no predictive density")


class AbstractConjugate(AbstractFactor):
    """A factor of at most one interface (a pair of categoricals counts as one) with an in-family message."""

    @abc.abstractmethod
    def message(self) -> tuple[AbstractFamily | None, Float[Array, " #n"]]:
        """`(eta, log_scale)` with `log f(z) = eta . T(z) + log_scale`, exactly; `eta` is None without interfaces."""

    def predictive_log_density(self, marginals: Cavities) -> Float[Array, " n"]:
        """`A(lam + eta) - A(lam) + log_scale`."""
        (q,) = marginals
        message, log_scale = self.message()
        message = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), message, q)
        return (q + message).log_partition() - q.log_partition() + log_scale


class AbstractProjected(AbstractFactor):
    """A factor whose messages are projected.

    The defaults below are quadratures; a final class replaces the ones it knows in closed form. That is the one
    exception to "abstract or final" in this package: the alternative is five forwarding lines in every final class.
    """

    calm: ClassVar[float] = 0.0
    """Of a factor of one Gaussian interface: the variance up to which `edge_moments` need not be looked at."""
    joins: ClassVar[str] = "shared"
    """When Gaussian interfaces are one edge: "always", "shared", "chains" or "asked"; see `passes.join`."""

    matchable: ClassVar[bool] = True
    """Whether moments can be matched at all."""

    matches: ClassVar[str] = ""
    """Where moments are matched (EP) if no rule is asked for: "jointly", "own" or nowhere; see `passes.rules`."""

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        """The exact belief-propagation log-message toward interface `j`, a function (Q, n) -> (Q, n) of `z_j`:

        `l_j(z_j) = log ∫ f(z) Π_{i≠j} q_i(z_i) dz_i`   with normalised cavities `q_i`; entry `j` is not read.
        """
        if len(self.interfaces) == 1:
            return self.log_density
        return nested_quadrature(self, j, cavities, Quadrature())

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        """`eta*_j = grad_mu E_q[l_j] = F^{-1} Cov_q[T, l_j]` at the receiving marginal `q`: the NGMP target."""
        return tangent_projection(marginal, self.log_message(j, cavities), quadrature)

    def settle(self, marginal: Any, cavity: Any, leaf: Any, once: Any) -> Any:
        """Of a factor of one interface: the message `eta` with `eta = project(cavity + eta)`, the cavity held fixed.

        On a Gaussian edge it is looked for by Newton's steps from the marginal, the (proper) cavity times the leaf;
        where that does not pay, it is `once`, the projection at the marginal.
        """
        if self.families != (Gaussian,) or self.calm == float("inf"):
            return once
        change, known = settle_edge(self.edge_moments, marginal, cavity, self.calm)
        return jax.tree.map(lambda new, old: jnp.where(known, new, old), leaf + change, once)

    def edge_moments(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Moments:
        """`E[l]`, and its derivatives, of a factor of one Gaussian interface: by the integrals of `project`."""
        return hermite_moments(self.log_density, mean, variance)

    def joint_message(self, inside: tuple[int, ...], cavities: Cavities) -> Callable[..., Array] | None:
        """`log ∫ f Π_i q_i dz_i` over all interfaces i that are not inside, as a function of the values of those that
        are, in order; None if it has no closed form. Cavities of interfaces inside are not read."""

    def joint_expectation(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"]) -> Array | None:
        """`E[log f]` under a joint Gaussian of all interfaces, in closed form; None if there is none."""

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Float[Array, " n"]:
        """`E_q[l_j]` under the receiving marginal `q`."""
        return expectation(marginal, self.log_message(j, cavities), quadrature)

    def peak(self, j: int, cavities: Cavities) -> tuple[Array, Array] | None:
        """Centre and width of what is narrow in the message toward Gaussian interface j; None if nothing need be."""
        return None

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " n"]:
        """`log ∫ f(z) Π_i q_i(z_i) dz` under all normalised cavities."""
        return integrate_message(self, 0, cavities, quadrature)

    def predictive_log_density(self, marginals: Cavities) -> Float[Array, " n"]:
        if len(marginals) > 1:
            return self.log_evidence(marginals, Quadrature())
        q, hint = next(iter(marginals)), self.initial()[0]
        if isinstance(q, Gaussian):
            return tilted_log_density(q, self.log_density, hint)
        return integrate_message(self, 0, marginals, Quadrature())

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        """The expected log-factor `E[log f | z_j]` under the other *marginals*: what VMP sends toward `j`."""
        return nested_expectation(self, j, marginals, quadrature)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        """The message of VMP toward `j`: the tangent projection of the expected log-factor, exact if in the family."""
        return tangent_projection(marginals[j], self.mean_field_message(j, marginals, Quadrature()), quadrature)

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " n"]:
        """`E[log f]` under the product of all marginals: minus the mean-field energy of the factor."""
        return expectation(marginals[0], self.mean_field_message(0, marginals, quadrature), quadrature)  # type: ignore[arg-type]

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        """`(1/p) log ∫ f^p Π_{i≠j} q_i dz_i`: the log-message of the fraction p of a factor. Unary: `log f`."""
        if len(self.interfaces) == 1:
            return self.log_density
        message = nested_quadrature(self, j, cavities, quadrature, power)
        return lambda z: message(z) / power

    def in_family(self) -> tuple[bool, ...]:
        """Toward which interfaces the expected log-factor lies in the receiving family, so that VMP is exact there."""
        return (False,) * len(self.interfaces)

    def has_projection(self) -> bool:
        """Whether exact log-messages can be projected; if not, NGMP and EP fall back on structured VMP."""
        return True

    def through(self, rows: Float[Array, "#n m d"], offset: Float[Array, "#n m"]) -> "AbstractProjected | None":
        """Of a factor of one vector r: that of z with `r = rows z + offset`, where z is the shorter; None: unknown."""

    def matched(self, q: Any, cavity: Any, power: float) -> tuple[Any, Float[Array, " n"]] | None:
        """Of one vector: the member with the moments of `cavity f^power`, and the logarithm of that integral, where all
        but a few numbers integrate out; None: by a quadrature over all of it."""

    def stuck(self, marginal: Any) -> Bool[Array, " n"] | None:
        """Of a factor of one vector: where, by symmetry, its message at a marginal has no slope; None: nowhere."""

    def leading(self) -> tuple[int, ...]:
        """The interfaces whose leaves the default schedule updates before all others.

        Selectors, for one: updated together with what they select, a mixture runs as two interleaved sequences, one of
        which starts at equal responsibilities and stays there.
        """
        return ()

    def features(self, out: Array) -> Array:
        """Outcomes (n, *event) as rows (n, d) of about equal spread, by which classes of a selector are told apart."""
        return out.reshape(out.shape[0], -1)

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        """A starting *marginal* per interface read off the data; None where the data say nothing."""
        return (None,) * len(self.interfaces)


def integrate_message(
    factor: AbstractProjected, j: int, cavities: Cavities, quadrature: AbstractQuadrature
) -> Float[Array, " n"]:
    """`log ∫ exp(l_j(z)) q_j(z) dz`: the log-evidence, with the last integral taken over interface `j`."""
    z, log_weights = nodes(quadrature, cavities[j])
    return jax.nn.logsumexp(log_weights + factor.log_message(j, cavities)(z), axis=0)
