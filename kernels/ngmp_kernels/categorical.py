"""The categorical distribution: priors, emissions and transitions of discrete models, and Dirichlet data.

Logarithms of zero probabilities are large and finite (see `special.log_probability`).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .distribution import (
    CATEGORICAL,
    CONSTANT,
    DIRICHLET,
    TAKE,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    register,
)
from .factor import AbstractConjugate, Families
from .families import Categorical as CategoricalFamily
from .families import Dirichlet
from .generic import ConstantFactor
from .oracle import Case, oracle_case, uniform
from .special import log_probability, safe_log


class CategoricalPrior(AbstractConjugate):
    """`f(k) = probs[k]` of a latent class k."""

    interfaces: ClassVar[tuple[str, ...]] = ("out",)
    families: ClassVar[Families] = (CategoricalFamily,)
    log_probs: Float[Array, "#n K"]

    def log_density(self, k: Array) -> Array:
        return _pick(self.log_probs, k)

    def message(self) -> tuple[CategoricalFamily, Array]:
        return CategoricalFamily(self.log_probs), jnp.zeros_like(self.log_probs[..., 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return _check_rows(self.log_probs)

    def moments(self, k: Array) -> tuple[Array, Array]:
        return _moments(jnp.broadcast_to(self.log_probs, (*k.shape, self.log_probs.shape[-1])))


class CategoricalProbs(AbstractConjugate):
    """`f(p) = p[k]` for an observed class k, given as a one-hot vector: the Dirichlet message with that vector."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (Dirichlet,)
    one_hot: Float[Array, "#n K"]

    def log_density(self, p: Array) -> Array:
        return jnp.sum(self.one_hot * safe_log(p), -1)

    def message(self) -> tuple[Dirichlet, Array]:
        return Dirichlet(self.one_hot), jnp.zeros_like(self.one_hot[..., 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return _check_class(self.one_hot)

    def moments(self, p: Array) -> tuple[Array, Array]:
        return p, p * (1.0 - p)


class CategoricalTransition(AbstractConjugate):
    """`f(z, out) = table[z, out]` of two latent classes: one joint interface, whose value is the pair (z, out).

    The message is the table itself: `message()[0].eta1` has shape (n|1, K, K'), both class axes kept.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("(z, out)",)
    families: ClassVar[Families] = (CategoricalFamily,)
    log_table: Float[Array, "#n K L"]

    def log_density(self, pair: tuple[Array, Array]) -> Array:
        z, out = pair
        return _pick(_row(self.log_table, z), out)

    def message(self) -> tuple[CategoricalFamily, Array]:
        return CategoricalFamily(self.log_table), jnp.zeros_like(self.log_table[..., 0, 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {text: jnp.all(ok, -1) for text, ok in _check_rows(self.log_table).items()}

    def moments(self, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        return _moments(_row(self.log_table, pair[0]))


class CategoricalEmission(AbstractConjugate):
    """`f(z) = table[z, k]` for an observed class k (one-hot): the message to z is a column of the log-table."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (CategoricalFamily,)
    log_table: Float[Array, "#n K L"]
    one_hot: Float[Array, "#n L"]

    def _column(self) -> Array:
        return jnp.sum(self.log_table * self.one_hot[..., None, :], -1)

    def log_density(self, z: Array) -> Array:
        return _pick(self._column(), z)

    def message(self) -> tuple[CategoricalFamily, Array]:
        column = self._column()
        return CategoricalFamily(column), jnp.zeros_like(column[..., 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        rows = {text: jnp.all(ok, -1) for text, ok in _check_rows(self.log_table).items()}
        return {**rows, **_check_class(self.one_hot)}

    def moments(self, z: Array) -> tuple[Array, Array]:
        return _moments(_row(self.log_table, z))


def _pick(rows: Array, k: Array) -> Array:
    """`rows[..., k]` for rows (..., n|1, K) and integers k (..., n)."""
    batch = jnp.broadcast_shapes(rows.shape[:-1], k.shape)
    index = jnp.broadcast_to(k, batch)[..., None].astype(int)
    return jnp.take_along_axis(jnp.broadcast_to(rows, (*batch, rows.shape[-1])), index, axis=-1)[..., 0]


def _row(table: Array, z: Array) -> Array:
    """`table[z]`, (..., n, L), for tables (n|1, K, L) and integers z (..., n)."""
    batch = jnp.broadcast_shapes(table.shape[:-2], z.shape)
    index = jnp.broadcast_to(z, batch)[..., None, None].astype(int)
    return jnp.take_along_axis(jnp.broadcast_to(table, (*batch, *table.shape[-2:])), index, axis=-2)[..., 0, :]


def _moments(log_probs: Array) -> tuple[Array, Array]:
    p = jnp.exp(log_probs)
    return p, p * (1.0 - p)


def _check_rows(log_rows: Array) -> dict[str, Array]:
    total = jnp.sum(jnp.exp(log_rows), -1)
    tolerance = jnp.sqrt(jnp.finfo(log_rows.dtype).eps)
    return {"probs must be non-negative and sum to one, and logits must be finite": jnp.abs(total - 1.0) < tolerance}


def _check_class(one_hot: Array) -> dict[str, Array]:
    return {f"outcomes must be integers from 0 to {one_hot.shape[-1] - 1}": jnp.sum(one_hot, -1) == 1.0}


def _log_rows(probs: Any = None, logits: Any = None) -> Array:
    """Log-probabilities of constants given either way; a negative probability gives NaN, which `checks` reports."""
    if logits is not None:
        return jax.nn.log_softmax(as_float(logits), axis=-1)
    return log_probability(jnp.asarray(as_float(probs)))


def _one_hot(out: Any, classes: int, dtype: Any = None) -> Array:
    """Rows (n|1, K); by comparison, so that what is no class gives a row of zeros, which `checks` reports."""
    out = jnp.asarray(out)
    dtype = as_float(out).dtype if dtype is None else dtype
    return (out[..., None] == jnp.arange(classes, dtype=out.dtype)).astype(dtype)


def _lower_prior(out: Any, **given: Any) -> Lowered:
    return Lowered(CategoricalPrior(_log_rows(**given)), (out,))


def _lower_dirichlet(out: Any, probs: Any) -> Lowered:
    return Lowered(CategoricalProbs(_one_hot(out, probs.shape[-1])), (probs,))


def _split_take(given: dict[str, Any]) -> tuple[Array, Any]:
    ((name, take),) = given.items()
    return _log_rows(**{name: take.table}), take.index


def _lower_transition(out: Any, **given: Any) -> Lowered:
    log_table, z = _split_take(given)
    return Lowered(CategoricalTransition(log_table), ((z, out),))


def _lower_emission(out: Any, **given: Any) -> Lowered:
    log_table, z = _split_take(given)
    return Lowered(CategoricalEmission(log_table, _one_hot(out, log_table.shape[-1], log_table.dtype)), (z,))


def _lower_constant(out: Any, **given: Any) -> Lowered:
    prior = CategoricalPrior(_log_rows(**given))
    one_hot = _one_hot(out, prior.log_probs.shape[-1], prior.log_probs.dtype)
    value = jnp.sum(one_hot * prior.log_probs, -1)
    conditions = {**prior.checks(), **_check_class(one_hot)}
    return Lowered(ConstantFactor(value, *prior.moments(value), conditions), ())


_GIVEN = ("probs", "logits")


@register
class Categorical(Distribution):
    """`Categorical(probs=)` or `Categorical(logits=)` over K classes, numbered from 0.

    Constants, a Dirichlet variable (probs, with an observed outcome), or `take(table, z)`: the row of a constant
    table picked by another categorical variable.
    """

    __slots__ = ()
    family = CategoricalFamily
    event_ndims: ClassVar = {"out": 0, "probs": 1, "logits": 1}
    placeholder = 0
    signatures = (
        *(Signature({"out": CATEGORICAL, k: CONSTANT}, _lower_prior, CategoricalPrior) for k in _GIVEN),
        *(Signature({"out": CATEGORICAL, k: TAKE}, _lower_transition, CategoricalTransition) for k in _GIVEN),
        *(Signature({"out": CONSTANT, k: TAKE}, _lower_emission, CategoricalEmission) for k in _GIVEN),
        *(Signature({"out": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor) for k in _GIVEN),
        Signature({"out": CONSTANT, "probs": DIRICHLET}, _lower_dirichlet, CategoricalProbs),
    )

    def __init__(self, *, probs: Any = None, logits: Any = None):
        self.arguments = exactly_one("Categorical", probs=probs, logits=logits)


def _table(key: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    return jax.nn.log_softmax(uniform(key, dtype, -2.0, 2.0, shape))


def _prior_case(key: Any, dtype: Any) -> Case:
    q = CategoricalFamily(_table(key, dtype, (4, 3)))
    return Case(CategoricalPrior(_table(key, dtype, (1, 3))), (q,), (q,))


def _probs_case(key: Any, dtype: Any) -> Case:
    q = Dirichlet.from_concentration(uniform(key, dtype, 1.0, 3.0, (4, 3)))
    return Case(CategoricalProbs(_one_hot(jnp.array([0, 2, 1, 1]), 3, dtype)), (q,), (q,))


def _transition_case(key: Any, dtype: Any) -> Case:
    q = CategoricalFamily(_table(key, dtype, (4, 3, 2)))
    return Case(CategoricalTransition(_table(key, dtype, (4, 3, 2))), (q,), (q,))


def _emission_case(key: Any, dtype: Any) -> Case:
    q = CategoricalFamily(_table(key, dtype, (4, 3)))
    one_hot = _one_hot(jnp.array([0, 1, 1, 0]), 2, dtype)
    return Case(CategoricalEmission(_table(key, dtype, (1, 3, 2)), one_hot), (q,), (q,))


oracle_case(CategoricalPrior, _prior_case)
oracle_case(CategoricalProbs, _probs_case)
oracle_case(CategoricalTransition, _transition_case)
oracle_case(CategoricalEmission, _emission_case)
