"""Rules that integrate the factor against the cavities of its other interfaces: NGMP, EP and, where it is exact, BP."""

import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels import AbstractProjected, Delta, Quadrature, tangent_projection, tilted_match
from ngmp_kernels.families import AbstractFamily
from ngmp_kernels.numerics.lanes import if_any
from ngmp_kernels.quadrature.projection import LogMessage
from ngmp_kernels.quadrature.tilted import tilted_evidence

from .base import AbstractRule, Families, Incoming, select
from .mean_field import NCVMP, StructuredVMP
from .shares import local_evidence, nodes_expectation, power_of, unequal


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
        matched: whether a factor of one interface has the evidence of matched moments, that of `EP`, at the leaves of
            this rule. Its bound of the log-evidence gets looser as the posterior gets wider, so that hyperparameters
            which are weighed by it come out too small.
    """

    projection: Any = Quadrature()
    power: Any = eqx.field(static=True, default=1.0, converter=_power)
    matched: bool = eqx.field(static=True, default=False)
    joins: ClassVar[bool] = True

    @property
    def settles(self) -> bool:
        return isinstance(self.projection, Quadrature)

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(dict(self.power)) if isinstance(self.power, tuple) else ()

    def divides(self, factor: AbstractProjected) -> bool:
        return _divides(factor)

    def instead(self, factor: AbstractProjected) -> AbstractRule:
        # Toward a family without nodes there may be the projection of a whole factor, no fractions of one.
        return StructuredVMP() if _unprojected(factor, self.power == 1) else self

    def apart(self) -> AbstractRule:
        return NCVMP(self.projection)  # with marginals in place of cavities, one NGMP projection is NCVMP

    def supports(self, factor: AbstractProjected, j: int) -> str | None:
        return None

    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> Any:
        p, q = power_of(self.power, factor, j), incoming.marginals[j]
        found, proper, share = _cavities(factor, incoming, p, but=j)
        if p == 1 or len(found) == 1:  # a fraction of a unary factor has the same log-message
            eta = factor.project(j, q, found, self.projection)
        else:
            eta = tangent_projection(q, factor.fractional_message(j, found, p, Quadrature()), self.projection)
        return _with_mean_field(factor, j, incoming.marginals, eta, share), _all(proper, but=j)

    def message(self, factor: AbstractProjected, j: int, incoming: Incoming) -> LogMessage:
        p = power_of(self.power, factor, j)
        return _message(factor, j, incoming.proper_cavities(p)[0], p)

    def evidence(self, factor: AbstractProjected, incoming: Incoming) -> Float[Array, " n"]:
        if self.matched and len(factor.interfaces) == 1:
            return EP(power=self.power).evidence(factor, incoming)
        marginals, leaves = incoming.marginals, incoming.leaves
        d, total = len(marginals), jnp.zeros((), marginals[0].dtype)
        powers = [power_of(self.power, factor, j) for j in range(d)]
        least = jnp.ones(1, marginals[0].dtype)
        for j, (q, p) in enumerate(zip(marginals, powers, strict=True)):
            found, _, share = _cavities(factor, incoming, p)
            least = jnp.minimum(least, share)
            if p == 1 or d == 1:
                total += factor.expected_log_message(j, q, found, self.projection)
            else:
                message = factor.fractional_message(j, found, p, Quadrature())
                total += nodes_expectation(q, message)
            if d > 1:  # the local evidence was counted d times; with unequal powers, their average
                total -= (d - 1) / d * local_evidence(factor, found, p)
            if len(set(powers)) > 1:
                total += unequal(j, marginals, leaves, found, p)
        return _with_mean_field_energy(factor, marginals, total, least)

    def stationary(self, factor: AbstractProjected) -> bool:
        # Several interfaces see each other's cavities, which move with the leaves; and a rule of a few points is not
        # accurate enough for its projection to be the gradient of its expectation.
        return len(factor.interfaces) == 1 and isinstance(self.projection, Quadrature) and not self.matched

    def variational(self, factor: AbstractProjected) -> AbstractRule:
        return self if self.stationary(factor) or factor.deterministic else StructuredVMP()


class EP(AbstractRule):
    """Expectation propagation: moments of cavity times exact message, cavity divided out. `power` as in `NGMP`."""

    projection: Any = Quadrature()
    power: Any = eqx.field(static=True, default=1.0, converter=_power)
    joins: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if isinstance(self.projection, Delta):
            works = "use Quadrature(), GaussHermite(n), LogTrapezoid(n) or Unscented(); or NGMP(projection=Delta())"
            raise ValueError(f"EP(projection=Delta()): a single point has no moments to match; {works}")

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(dict(self.power)) if isinstance(self.power, tuple) else ()

    def divides(self, factor: AbstractProjected) -> bool:
        return _divides(factor)

    def instead(self, factor: AbstractProjected) -> AbstractRule:
        return StructuredVMP() if _unprojected(factor, False) else self

    def supports(self, factor: AbstractProjected, j: int) -> str | None:
        if factor.deterministic:
            return "its messages are projected where they are received"
        return None if factor.matchable else "its edge has too many unknowns to match moments of; NGMP() has no limit"

    def _matched(self, factor: AbstractProjected, q: Any, found: Families, p: float) -> Any:
        """Moments and mass where the factor knows them."""
        return factor.matched(q, found[0], p) if len(found) == 1 and isinstance(self.projection, Quadrature) else None

    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> Any:
        p = power_of(self.power, factor, j)
        found, proper, share = _cavities(factor, incoming, p)
        if (known := self._matched(factor, incoming.marginals[j], found, p)) is not None:
            return (known[0] - found[j]) * (1 / p), _all(proper)
        message = _message(factor, j, found, p)
        tilt = lambda z: p * message(z)  # noqa: E731
        matched = tilted_match(
            incoming.marginals[j], found[j], tilt, self.projection, factor.hard, factor.peak(j, found)
        )
        eta = (matched - found[j]) * (1 / p)
        return _with_mean_field(factor, j, incoming.marginals, eta, share), _all(proper)

    def message(self, factor: AbstractProjected, j: int, incoming: Incoming) -> LogMessage:
        p = power_of(self.power, factor, j)
        return _message(factor, j, incoming.proper_cavities(p)[0], p)

    def evidence(self, factor: AbstractProjected, incoming: Incoming) -> Float[Array, " n"]:
        marginals = incoming.marginals
        powers = [power_of(self.power, factor, j) for j in range(len(marginals))]
        total = jnp.zeros(marginals[0].batch_shape, marginals[0].dtype)
        least = jnp.ones(1, marginals[0].dtype)
        for p in sorted(set(powers)):  # with unequal powers, the average over interfaces
            found, _, share = _cavities(factor, incoming, p)
            least = jnp.minimum(least, share)
            if (known := self._matched(factor, marginals[-1], found, p)) is not None:
                share = known[1]
            else:  # the last integral over the last interface, where noise factors are smoothest
                message = _message(factor, len(found) - 1, found, p)
                tilt = lambda z, m=message, p=p: p * m(z)  # noqa: E731
                share = tilted_evidence(marginals[-1], found[-1], tilt, Quadrature(), factor.hard)
            for q, c in zip(marginals, found, strict=True):
                share += q.kl(c)  # A(c) - A(lambda) + p eta . mu, without a difference of large numbers
            total += powers.count(p) / len(powers) * share / p
        return _with_mean_field_energy(factor, marginals, total, least)

    def stationary(self, factor: AbstractProjected) -> bool:
        return not isinstance(self.power, tuple) and isinstance(self.projection, Quadrature)

    def variational(self, factor: AbstractProjected) -> AbstractRule:
        return NGMP().variational(factor)  # its own free energy is stationary at a saddle


def _message(factor: AbstractProjected, j: int, found: Families, p: float) -> Any:
    return factor.log_message(j, found) if p == 1 else factor.fractional_message(j, found, p, Quadrature())


def _divides(factor: AbstractProjected) -> bool:
    """Whether there are cavities to integrate against, and a mean field to make up for improper ones."""
    return len(factor.interfaces) > 1 and not factor.deterministic


def _cavities(
    factor: AbstractProjected, incoming: Incoming, power: float, but: int | None = None
) -> tuple[Families, list[Bool[Array, " n"]], Float[Array, " #n"]]:
    """`Incoming.shared`; all of the cavities where nothing is divided."""
    if _divides(factor):
        return incoming.shared(power, but)
    return *incoming.proper_cavities(power), jnp.ones(1, incoming.marginals[0].dtype)


def _with_mean_field(
    factor: AbstractProjected, j: int, marginals: Families, eta: AbstractFamily, share: Float[Array, " #n"]
) -> AbstractFamily:
    """`share eta + (1 - share) eta_mf`, the second the message of mean field; its integrals exist at any marginals."""
    if not _divides(factor):
        return eta

    def mixed() -> AbstractFamily:
        field = factor.mean_field_projection(j, marginals, Quadrature())
        finite = functools.reduce(
            jnp.logical_and, [jnp.all(jnp.isfinite(x), axis=tuple(range(1, x.ndim))) for x in field.natural]
        )
        rest = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), field * (1.0 - share), eta)
        return eta * share + select(finite, rest, 0.0 * eta)

    return if_any(share < 1.0, mixed, lambda: eta)


def _with_mean_field_energy(
    factor: AbstractProjected, marginals: Families, energy: Float[Array, " n"], share: Float[Array, " #n"]
) -> Float[Array, " n"]:
    """`share e + (1 - share) e_mf`, the second the energy of mean field."""
    if not _divides(factor):
        return energy
    energy = jnp.broadcast_to(energy, jnp.broadcast_shapes(energy.shape, share.shape))

    def mixed() -> Array:
        field = StructuredVMP().evidence(factor, Incoming(marginals, ()))
        return jnp.where(share < 1.0, share * energy + (1.0 - share) * field, energy)

    return if_any(share < 1.0, mixed, lambda: energy)


class BP(AbstractRule):
    """Exact belief propagation: refused, at compile time, on any interface that is not conjugate."""

    def supports(self, factor: AbstractProjected, j: int) -> str:
        return "it has no exact message in the family"

    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> Any:
        raise TypeError(f"BP has no message for the projected {type(factor).__name__}")

    def evidence(self, factor: AbstractProjected, incoming: Incoming) -> Float[Array, " n"]:
        raise TypeError(f"BP has no free energy for the projected {type(factor).__name__}")

    def stationary(self, factor: AbstractProjected) -> bool:
        return True


def _all(flags: list[Bool[Array, " n"]], but: int | None = None) -> Bool[Array, " n"]:
    out = jnp.ones_like(flags[0])
    for i, f in enumerate(flags):
        out = out & f if i != but else out
    return out


def _unprojected(factor: AbstractProjected, whole: bool) -> bool:
    """Whether exact messages of a factor, whole or a fraction of it, have no projection."""
    never = not factor.has_projection() or not whole and any(f.integrated == "never" for f in factor.families)
    return never and not factor.deterministic
