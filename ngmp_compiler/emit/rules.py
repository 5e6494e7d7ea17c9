r"""Message rules: what a factor sends through an interface it is not conjugate to.

Every rule is a function of the same things: a factor, the marginals of its interfaces and its current leaves. It gives
the target of a leaf and the factor's share of the log-evidence; the map, the solver and the core are the same for all.

| rule | log-message toward j | target |
| --- | --- | --- |
| NGMP | $\ell_j = \log\int f \prod_{i\ne j} q_{c_i}$, $c_i = \lambda_i - \eta_i$ | $\nabla_{\mu_j} E_{q_j}[\ell_j]$ |
| NGMP(power=p) | $\frac1p \log\int f^p \prod_{i\ne j} q_{c_i}$, $c_i = \lambda_i - p\,\eta_i$ | the same |
| EP(power=p) | the same | moments of $q_{c_j} e^{p \ell_j}$ matched, $c_j$ divided out, over p |
| NCVMP | $E[\log f \mid z_j]$ under the other *marginals* | $\nabla_{\mu_j} E_{q_j}[\ell_j]$, once a sweep |
| PVMP | the same | the same, iterated on the edge until $\lambda_j = c_j + \eta_j$ |
| VMP | the same | the same; refused where $\ell_j$ is not in the family, since the projection is then not exact |
| StructuredVMP | the same | the same, nothing taken apart; the fallback of NGMP and EP toward vectors, matrices |
| BP | exact | refused on every interface that is not conjugate |

The mean-field rules (VMP, NCVMP, PVMP) also take apart what belongs to different clusters; see `passes.factorise`.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels import AbstractProjected, Delta, Quadrature, nodes, tangent_projection, tilted_match
from ngmp_kernels.families import AbstractFamily
from ngmp_kernels.quadrature.projection import LogMessage
from ngmp_kernels.quadrature.tilted import tilted_evidence

from ..solve.adaptive import solve_edge
from .chunks import by_chunks

Families = tuple[AbstractFamily, ...]
Rests = tuple[AbstractFamily | None, ...] | None  # cavities that are known without subtraction


def select(flags: Bool[Array, " n"], yes: AbstractFamily, no: AbstractFamily) -> AbstractFamily:
    """Choose family instances element by element."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(flags.reshape(flags.shape + (1,) * (a.ndim - flags.ndim)), a, b)

    return jax.tree.map(pick, yes, no)


def left_out(marginals: Families, leaves: Families, power: float = 1.0, rests: Rests = None) -> Families:
    """`lambda - p eta` for every interface, proper or not.

    Where `lambda - eta` is known (`rests`) nothing is subtracted: a leaf that outweighs the rest would leave no digits.
    """
    return tuple(
        q - power * leaf if rest is None else rest if power == 1 else rest + (1 - power) * leaf
        for q, leaf, rest in zip(marginals, leaves, rests or (None,) * len(leaves), strict=True)
    )


def cavities(
    marginals: Families, leaves: Families, power: float = 1.0, rests: Rests = None
) -> tuple[Families, list[Bool[Array, " n"]]]:
    """`lambda - p eta` for every interface; an improper one is replaced by the marginal, and flagged."""
    found = left_out(marginals, leaves, power, rests)
    proper = [c.is_proper() for c in found]
    return tuple(select(ok, c, q) for ok, c, q in zip(proper, found, marginals, strict=True)), proper


def _all(flags: list[Bool[Array, " n"]], but: int | None = None) -> Bool[Array, " n"]:
    out = jnp.ones_like(flags[0])
    for i, f in enumerate(flags):
        out = out & f if i != but else out
    return out


class AbstractRule(eqx.Module):
    """A message rule; see the module docstring."""

    mean_field: eqx.AbstractClassVar[bool]
    settles: ClassVar[bool] = False
    """Whether the target of a unary factor may be what one projection after the other comes to on its edge."""
    sees_cavities: ClassVar[bool] = False
    """Whether `target` and `evidence` take `rests`, the cavities that the core knows without subtraction."""

    @abc.abstractmethod
    def target(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> Any:
        """The target of the leaf on interface j, and a flag (n,) that is False where it does not exist."""

    @abc.abstractmethod
    def message(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> LogMessage:
        """The log-message toward interface j."""

    @abc.abstractmethod
    def evidence(self, factor: AbstractProjected, marginals: Families, leaves: Families) -> Float[Array, " n"]:
        """The factor's share of the log-evidence, beyond the partition function of the core less `sum eta . mu`."""

    @abc.abstractmethod
    def stationary(self, factor: AbstractProjected) -> bool:
        """Whether a fixed point is a stationary point of the free energy in the leaves of the factor."""


def _power(given: Any) -> Any:
    """A power as it is kept: a number in (0, 1], or sorted pairs of interface name and number; anything else raises."""
    if isinstance(given, dict):
        return tuple(sorted((str(name), _power(p)) for name, p in given.items()))
    if isinstance(given, tuple):  # already converted
        return given
    try:
        p = float(given)
    except (TypeError, ValueError):
        works = "give a number in (0, 1], or a dictionary of them by interface name"
        raise TypeError(f"power={given!r} is no number; {works}, e.g. {{'tau': 0.5}}") from None
    if not 0 < p <= 1:
        raise ValueError(
            f"power={given}: the fraction of a factor must lie in (0, 1]; 1 is the plain rule, towards 0 it becomes "
            "VMP(), or NCVMP() where that is not in the family"
        )
    return p


class NGMP(AbstractRule):
    """Natural-gradient message passing: the exact BP log-message, projected at the receiving marginal.

    Args:
        projection: how expectations under the marginal are taken: `Quadrature()` (the default; Gauss-Hermite on
            Gaussian edges, a trapezoid in log space on Gamma and Beta ones), `GaussHermite(n)`, `LogTrapezoid(n)`,
            `Unscented()` (the paper's three points), `Delta()`.
        power: the fraction of the factor that is left out of the cavity and integrated, in (0, 1]; or a dictionary
            by interface name, e.g. `{"tau": 0.5}`, where unnamed interfaces have 1.
    """

    projection: Any = Quadrature()
    power: Any = eqx.field(static=True, default=1.0, converter=_power)
    mean_field: ClassVar[bool] = False
    settles: ClassVar[bool] = True
    sees_cavities: ClassVar[bool] = True

    def target(
        self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families, rests: Rests = None
    ) -> Any:
        p = power_of(self.power, factor, j)
        # A message integrated against an improper cavity does not exist, as a rule; its target is flat.
        if p == 1 or len(marginals) == 1:  # a fraction of a unary factor has the same log-message
            exact = left_out(marginals, leaves, 1.0, rests)
            exists = factor.message_exists(j, marginals[j], exact)
            found = tuple(select(exists, c, q) for c, q in zip(exact, marginals, strict=True))
            return factor.project(j, marginals[j], found, self.projection), exists
        found, proper = cavities(marginals, leaves, p, rests)
        message = factor.fractional_message(j, found, p, Quadrature())
        return tangent_projection(marginals[j], message, self.projection), _all(proper, but=j)

    def message(
        self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families, rests: Rests = None
    ) -> LogMessage:
        p = power_of(self.power, factor, j)
        return _message(factor, j, cavities(marginals, leaves, p, rests)[0], p)

    def evidence(
        self, factor: AbstractProjected, marginals: Families, leaves: Families, rests: Rests = None
    ) -> Float[Array, " n"]:
        d, total = len(marginals), jnp.zeros((), marginals[0].dtype)
        powers = [power_of(self.power, factor, j) for j in range(d)]
        for j, (q, p) in enumerate(zip(marginals, powers, strict=True)):
            found, _ = cavities(marginals, leaves, p, rests)
            if p == 1 or d == 1:
                total += factor.expected_log_message(j, q, found, self.projection)
            else:
                message = factor.fractional_message(j, found, p, Quadrature())
                total += nodes_expectation(q, message)
            if d > 1:  # the local evidence was counted d times; with unequal powers, their average
                total -= (d - 1) / d * local_evidence(factor, found, p)
            if len(set(powers)) > 1:
                total += _unequal(j, marginals, leaves, found, p)
        return total

    def stationary(self, factor: AbstractProjected) -> bool:
        # Several interfaces see each other's cavities, which move with the leaves; and a rule of a few points is not
        # accurate enough for its projection to be the gradient of its expectation.
        return len(factor.interfaces) == 1 and isinstance(self.projection, Quadrature)


def settled(
    rule: Any, factor: AbstractProjected, once: AbstractFamily, marginals: Families, leaves: Families
) -> AbstractFamily:
    """One projection, `once`; or what it comes to on the edge of a unary factor that knows it, the cavity held fixed.

    The fixed points are the same, and so are their derivatives: those of `once` stand for both.
    """
    if len(marginals) != 1 or not rule.settles or not isinstance(rule.projection, Quadrature):
        return once

    def settle(factor: AbstractProjected, marginal: Any, leaf: Any, once: Any) -> Any:
        (cavity,) = left_out((marginal,), (leaf,))
        proper = cavity.is_proper()
        return select(proper, factor.settle(marginal, select(proper, cavity, marginal), leaf, once), once)

    n = jax.tree.leaves(once)[0].shape[0]
    return _instead(by_chunks(settle, n, factor, *jax.lax.stop_gradient((marginals[0], leaves[0], once))), once)


@jax.custom_jvp
def _instead(value: Any, once: Any) -> Any:
    """A value, with the derivatives of another; that one is not computed where no derivatives are."""
    del once
    return value


@_instead.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]


def power_of(power: Any, factor: AbstractProjected, j: int) -> float:
    """The power toward interface j."""
    return dict(power).get(factor.interfaces[j], 1.0) if isinstance(power, tuple) else power


def _unequal(j: int, marginals: Families, leaves: Families, found: Families, p: float) -> Float[Array, " n"]:
    r"""What makes the shares of interfaces with unequal powers comparable; with equal ones these terms add up to zero.

    With $D_i = (A(\lambda_i) - A(c_i)) / p$ of the cavities at the power p of interface j, the message $\ell_j$ holds
    $\sum_{i \ne j} D_i$ and the local evidence $\sum_i D_i$ of what is in the family. Each is taken off where it
    stands, so that a factor which is all in the family has no share, whatever its powers. $D_i$ is computed as
    $\eta_i \cdot \mu_i - KL[q_i \| q_{c_i}] / p$, without a difference of large numbers.
    """
    d, total = len(marginals), jnp.zeros((), marginals[0].dtype)
    for i, (q, leaf, cavity) in enumerate(zip(marginals, leaves, found, strict=True)):
        gap = leaf.dot(q.to_mean()) - q.kl(cavity) / p
        total += ((d - 1) / d - (i != j)) * gap
    return total


def nodes_expectation(q: AbstractFamily, message: Any) -> Float[Array, " n"]:
    """`E_q[message]`."""
    z, log_weights = nodes(Quadrature(), q)
    return jnp.sum(jnp.exp(log_weights) * message(z), axis=0)


def local_evidence(factor: AbstractProjected, found: Families, power: float) -> Float[Array, " n"]:
    """`(1/p) log ∫ f^p Π q_c`; the last integral over the last interface, where noise factors are smoothest."""
    if power == 1 and len(found) > 1:
        return factor.log_evidence(found, Quadrature())
    j = len(found) - 1
    z, log_weights = nodes(Quadrature(), found[j])
    message = factor.fractional_message(j, found, power, Quadrature())
    return jax.nn.logsumexp(log_weights + power * message(z), axis=0) / power


class EP(AbstractRule):
    """Expectation propagation: moments of cavity times exact message, cavity divided out. `power` as in `NGMP`."""

    projection: Any = Quadrature()
    power: Any = eqx.field(static=True, default=1.0, converter=_power)
    mean_field: ClassVar[bool] = False
    sees_cavities: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if isinstance(self.projection, Delta):
            works = "use Quadrature(), GaussHermite(n), LogTrapezoid(n) or Unscented(); or NGMP(projection=Delta())"
            raise ValueError(f"EP(projection=Delta()): a single point has no moments to match; {works}")

    def target(
        self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families, rests: Rests = None
    ) -> Any:
        p = power_of(self.power, factor, j)
        found, proper = cavities(marginals, leaves, p, rests)
        message = _message(factor, j, found, p)
        matched = tilted_match(marginals[j], found[j], lambda z: p * message(z), self.projection, factor.hard)
        return (matched - found[j]) * (1 / p), _all(proper)

    def message(
        self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families, rests: Rests = None
    ) -> LogMessage:
        p = power_of(self.power, factor, j)
        return _message(factor, j, cavities(marginals, leaves, p, rests)[0], p)

    def evidence(
        self, factor: AbstractProjected, marginals: Families, leaves: Families, rests: Rests = None
    ) -> Float[Array, " n"]:
        powers = [power_of(self.power, factor, j) for j in range(len(marginals))]
        total = jnp.zeros(marginals[0].batch_shape, marginals[0].dtype)
        for p in sorted(set(powers)):  # with unequal powers, the average over interfaces
            found, _ = cavities(marginals, leaves, p, rests)
            # The last integral over the last interface, where noise factors are smoothest.
            message = _message(factor, len(found) - 1, found, p)
            tilt = lambda z, m=message, p=p: p * m(z)  # noqa: E731
            share = tilted_evidence(marginals[-1], found[-1], tilt, Quadrature(), factor.hard)
            for q, c in zip(marginals, found, strict=True):
                share += q.kl(c)  # A(c) - A(lambda) + p eta . mu, without a difference of large numbers
            total += powers.count(p) / len(powers) * share / p
        return total

    def stationary(self, factor: AbstractProjected) -> bool:
        return not isinstance(self.power, tuple) and isinstance(self.projection, Quadrature)


def _message(factor: AbstractProjected, j: int, found: Families, p: float) -> Any:
    return factor.log_message(j, found) if p == 1 else factor.fractional_message(j, found, p, Quadrature())


def _mean_field_target(projection: Any, factor: AbstractProjected, j: int, marginals: Families) -> AbstractFamily:
    if len(marginals) == 1:  # unary: the expected log-factor is the log-factor, often in closed form
        return factor.project(0, marginals[0], marginals, projection)
    return factor.mean_field_projection(j, marginals, projection)


class AbstractVMP(AbstractRule):
    """Messages of the expected log-factor under the other marginals."""

    projection: eqx.AbstractVar[Any]

    def target(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> Any:
        del leaves
        eta = _mean_field_target(self.projection, factor, j, marginals)
        return eta, jnp.ones(marginals[j].batch_shape, bool)

    def message(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> LogMessage:
        del leaves
        return factor.log_density if len(marginals) == 1 else factor.mean_field_message(j, marginals, Quadrature())

    def evidence(self, factor: AbstractProjected, marginals: Families, leaves: Families) -> Float[Array, " n"]:
        """`E[log f]` under the product of the marginals."""
        del leaves
        if len(marginals) == 1:
            return factor.expected_log_message(0, marginals[0], marginals, Quadrature())
        return factor.expected_log_density(marginals, Quadrature())

    def stationary(self, factor: AbstractProjected) -> bool:
        del factor
        return isinstance(self.projection, Quadrature)


class VMP(AbstractVMP):
    """Variational message passing: the expected log-factor under the other marginals, where it is in the family."""

    projection: ClassVar[Any] = Quadrature()
    mean_field: ClassVar[bool] = True


class StructuredVMP(AbstractVMP):
    """The messages of VMP between the interfaces of a factor, with all that stands behind one of them kept joint.

    On `Normal(dot(phi, w), precision=tau)` that is q(out, w) q(tau), whatever else out and w are tied to. It is also
    what NGMP and EP fall back on where an exact log-message has no projection (toward vectors and matrices).
    """

    projection: ClassVar[Any] = Quadrature()
    mean_field: ClassVar[bool] = False


class NCVMP(AbstractVMP):
    """Non-conjugate VMP: one tangent projection, a sweep, of the expected log-factor under the other marginals."""

    projection: Any = Quadrature()
    settles: ClassVar[bool] = True
    mean_field: ClassVar[bool] = True


class PVMP(AbstractVMP):
    """Projective VMP: the projection of NCVMP iterated on the edge, all else fixed, until the marginal agrees with it.

    Args:
        projection: as in `NGMP`.
        iterations: at most this many inner steps.
        tol: relative residual at which the inner iteration stops.
    """

    projection: Any = Quadrature()
    iterations: int = eqx.field(static=True, default=100)
    tol: float = eqx.field(static=True, default=1e-10)
    mean_field: ClassVar[bool] = True

    def target(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> Any:
        # Not replaced where it is improper: the solution on the edge only needs cavity + message to be proper.
        cavity = marginals[j] - leaves[j]

        def toward(q: AbstractFamily) -> AbstractFamily:
            trial = tuple(q if i == j else m for i, m in enumerate(marginals))
            return _mean_field_target(self.projection, factor, j, trial)

        # The inner loop cannot be differentiated backwards, and need not be: the fixed points are those of NCVMP.
        once = _mean_field_target(self.projection, factor, j, marginals)
        found = solve_edge(toward, cavity, leaves[j], self.iterations, self.tol)
        eta = jax.lax.stop_gradient(found) + (once - jax.lax.stop_gradient(once))
        return eta, jnp.ones(cavity.batch_shape, bool)


class BP(AbstractRule):
    """Exact belief propagation: refused, at compile time, on any interface that is not conjugate."""

    mean_field: ClassVar[bool] = False

    def target(self, factor: AbstractProjected, j: int, marginals: Families, leaves: Families) -> Any:
        raise TypeError(f"BP has no message for the projected {type(factor).__name__}")

    message = target

    def evidence(self, factor: AbstractProjected, marginals: Families, leaves: Families) -> Float[Array, " n"]:
        raise TypeError(f"BP has no free energy for the projected {type(factor).__name__}")

    def stationary(self, factor: AbstractProjected) -> bool:
        del factor
        return True


RULES = (BP, VMP, StructuredVMP, NCVMP, PVMP, EP, NGMP)
