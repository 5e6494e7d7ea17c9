"""The categorical distribution: priors, emissions and transitions of discrete models, and Dirichlet data.

Logarithms of zero probabilities are large and finite (see `special.log_probability`).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CATEGORICAL,
    CONSTANT,
    DIRICHLET,
    TAKE,
    TAKE_DIRICHLET,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    on,
    register,
)
from ..factor import AbstractConjugate, Cavities, Families
from ..families import Categorical as CategoricalFamily
from ..families import Dirichlet
from ..numerics.special import log_probability, safe_log
from .categorical_table import (
    CategoricalEmission,
    CategoricalTransition,
    check_class,
    check_rows,
    class_moments,
    pick,
)
from .generic import ConstantFactor
from .latent_probs import LatentProbs
from .learned_table import LearnedEmission, LearnedTransition
from .softmax import SIGNATURE as SOFTMAX


class CategoricalPrior(AbstractConjugate):
    """`f(k) = probs[k]` of a latent class k."""

    interfaces: ClassVar[tuple[str, ...]] = ("out",)
    families: ClassVar[Families] = (CategoricalFamily,)
    log_probs: Float[Array, "#n K"]

    def log_density(self, k: Array) -> Array:
        return pick(self.log_probs, k)

    def message(self) -> tuple[CategoricalFamily, Array]:
        return CategoricalFamily(self.log_probs), jnp.zeros_like(self.log_probs[..., 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return check_rows(self.log_probs)

    def moments(self, k: Array) -> tuple[Array, Array]:
        return class_moments(jnp.broadcast_to(self.log_probs, (*k.shape, self.log_probs.shape[-1])))


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
        return check_class(self.one_hot)

    def moments(self, p: Array) -> tuple[Array, Array]:
        return p, p * (1.0 - p)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (q,) = marginals
        return q.mean, q.variance, q.mean * (1.0 - q.mean) - q.variance


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


def _split_take(given: dict[str, Any]) -> tuple[Array, tuple[Any, ...]]:
    ((name, take),) = given.items()
    return _log_rows(**{name: take.table}), take.indices


def _lower_transition(out: Any, **given: Any) -> Lowered:
    log_table, z = _split_take(given)
    return Lowered(CategoricalTransition(log_table=log_table), ((*z, out),))  # type: ignore[call-arg]


def _lower_emission(out: Any, **given: Any) -> Lowered:
    log_table, z = _split_take(given)
    factor = CategoricalEmission(log_table=log_table, outcome=jnp.asarray(out))  # type: ignore[call-arg]
    return Lowered(factor, (z[0] if len(z) == 1 else z,))


def _lower_learned_transition(out: Any, probs: Any) -> Lowered:
    classes = tuple(z.eta_shape[0] for z in probs.indices)
    factor = LearnedTransition(classes=classes, outcomes=out.eta_shape[0])  # type: ignore[call-arg]
    return Lowered(factor, ((*probs.indices, out), *probs.table))


def _lower_learned_emission(out: Any, probs: Any) -> Lowered:
    z, one_hot = probs.indices, _one_hot(out, probs.table[0].eta_shape[0])
    classes = tuple(i.eta_shape[0] for i in z)
    factor = LearnedEmission(one_hot=one_hot, classes=classes)  # type: ignore[call-arg]
    return Lowered(factor, (z[0] if len(z) == 1 else z, *probs.table))


def _lower_constant(out: Any, **given: Any) -> Lowered:
    prior = CategoricalPrior(_log_rows(**given))
    one_hot = _one_hot(out, prior.log_probs.shape[-1], prior.log_probs.dtype)
    value = jnp.sum(one_hot * prior.log_probs, -1)
    conditions = {**prior.checks(), **check_class(one_hot)}
    return Lowered(ConstantFactor(value, *prior.moments(value), conditions), ())


_GIVEN = ("probs", "logits")


@register
class Categorical(Distribution):
    """`Categorical(probs=)` or `Categorical(logits=)` over K classes, numbered from 0.

    Constants, a Dirichlet variable (probs), Gaussian scores of an observed class (logits: `A @ w`, `ngmp.stack` of
    numbers, or a plate whose last axis is that of the classes; one of them may be the constant 0), or
    `take(table, z1, z2, ...)`: the row of a table picked by other categorical variables, where the table is a constant
    (K1, K2, ..., K) or, as probs, Dirichlet variables of batch shape (K1, K2, ...), which are learned. Logical gates
    are tables of zeros and ones between variables of two classes; a Bernoulli variable has a family of its own and
    cannot be an index.
    """

    __slots__ = ()
    support = "classes"
    family = CategoricalFamily
    event_ndims: ClassVar = {"out": 0, "probs": 1, "logits": 1}
    placeholder = 0
    several = True
    signatures = (
        *(Signature({"out": CATEGORICAL, k: CONSTANT}, _lower_prior, CategoricalPrior) for k in _GIVEN),
        *(Signature({"out": CATEGORICAL, k: TAKE}, _lower_transition, CategoricalTransition) for k in _GIVEN),
        *(Signature({"out": CONSTANT, k: TAKE}, _lower_emission, CategoricalEmission) for k in _GIVEN),
        *(Signature({"out": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor) for k in _GIVEN),
        Signature({"out": CONSTANT, "probs": DIRICHLET}, _lower_dirichlet, CategoricalProbs),
        on(LatentProbs, out=CATEGORICAL, probs=DIRICHLET),
        Signature({"out": CATEGORICAL, "probs": TAKE_DIRICHLET}, _lower_learned_transition, LearnedTransition),
        Signature({"out": CONSTANT, "probs": TAKE_DIRICHLET}, _lower_learned_emission, LearnedEmission),
        SOFTMAX,
    )

    def __init__(self, *, probs: Any = None, logits: Any = None):
        self.arguments = exactly_one("Categorical", probs=probs, logits=logits)
