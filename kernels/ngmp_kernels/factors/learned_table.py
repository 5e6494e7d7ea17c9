r"""Tables of probabilities that are learned: Dirichlet rows, one of which latent classes pick.

$f(c, k, p_1, ..., p_C) = p_{c,k}$ with c the row and k the outcome. The exact message toward a row,
$\log(\sum_k r_k p_k + r_0)$, has no projection in closed form, so these factors send the messages of structured VMP,
which are exact in the family: $E[\log p_{c,k}]$ toward the classes, which the core keeps joint, and the expected
counts $q(c, k)$ toward row c.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage
from ..families import AbstractFamily, Categorical, Dirichlet
from ..numerics.special import safe_log
from .categorical_table import check_class, joint_name


class AbstractLearnedTable(AbstractProjected):
    """A factor of latent classes, its first interface, and of the C rows of a table, its others.

    Several classes are one interface, numbered as the cells of a table are, row by row.
    """

    classes: eqx.AbstractVar[tuple[int, ...]]
    """The number of classes of every index of the table."""

    @abc.abstractmethod
    def _pick(self, table: Float[Array, "*b C L"]) -> Float[Array, "*b classes"]:
        """The entries of a table, or of its logarithm, that belong to the classes of the first interface."""

    @abc.abstractmethod
    def _counts(self, row: int, probs: Float[Array, "n classes"]) -> Float[Array, "n L"]:
        """The expected counts of the outcomes in a row, from the probabilities of the first interface."""

    @property
    def families(self) -> Families:
        return (Categorical, *(Dirichlet,) * math.prod(self.classes))

    def log_density(self, cell: Array, *rows: Array) -> Array:
        return _at(safe_log(self._pick(_stack(rows))), cell)

    def _scores(self, rows: Cavities) -> Float[Array, "n classes"]:
        """`E[log p]` for every class of the first interface."""
        return self._pick(_stack([q.to_mean()[0] for q in rows]))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 0:
            return lambda cell: _at(self._scores(marginals[1:]), cell)
        return lambda p: jnp.sum(self._counts(j - 1, marginals[0].probs) * safe_log(p), -1)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        if j == 0:
            return Categorical(self._scores(marginals[1:]))
        return Dirichlet(self._counts(j - 1, marginals[0].probs))

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " n"]:
        return jnp.sum(marginals[0].probs * self._scores(marginals[1:]), -1)

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " n"]:
        """`log E[f]`: rows and classes are independent, and f is linear in either."""
        return safe_log(jnp.sum(cavities[0].probs * self._pick(_stack([q.mean for q in cavities[1:]])), -1))

    def in_family(self) -> tuple[bool, ...]:
        return (True,) * len(self.interfaces)

    def has_projection(self) -> bool:
        return False

    def leading(self) -> tuple[int, ...]:
        return (0,)


class LearnedTransition(AbstractLearnedTable):
    """`f = p[z, out]` of latent classes z (one or several) and out, and of the rows p of their table."""

    classes: tuple[int, ...] = eqx.field(static=True)
    outcomes: int = eqx.field(static=True)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (joint_name(len(self.classes), "out"), *_row_names(self.classes))

    def _pick(self, table: Array) -> Array:
        return table.reshape(*table.shape[:-2], -1)

    def _counts(self, row: int, probs: Array) -> Array:
        return probs[..., row * self.outcomes : (row + 1) * self.outcomes]

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, cell: Array, *rows: Array) -> tuple[Array, Array]:
        table = jnp.moveaxis(_stack(rows), -1, 0)
        p = jnp.moveaxis(_at(table, jnp.asarray(cell) // self.outcomes), 0, -1)
        return p, p * (1.0 - p)


class LearnedEmission(AbstractLearnedTable):
    """`f = p[z, k]` for an observed class k (one-hot), of latent classes z (one or several) and of the rows p."""

    one_hot: Float[Array, "#n L"]
    classes: tuple[int, ...] = eqx.field(static=True)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (joint_name(len(self.classes)), *_row_names(self.classes))

    def _pick(self, table: Array) -> Array:
        return jnp.sum(self.one_hot[..., None, :] * table, -1)

    def _counts(self, row: int, probs: Array) -> Array:
        return probs[..., row, None] * self.one_hot

    def features(self, out: Array) -> Array:
        return jnp.broadcast_to(self.one_hot, (out.shape[0], self.one_hot.shape[-1]))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return check_class(self.one_hot)

    def moments(self, z: Array, *rows: Array) -> tuple[Array, Array]:
        p = jnp.moveaxis(_at(jnp.moveaxis(_stack(rows), -1, 0), z), 0, -1)
        return p, p * (1.0 - p)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """Outcomes as one-hot vectors: `E[p]`, `Var[p]` and `E[p(1 - p)]` of the mixture of the rows."""
        z, *rows = marginals
        weights = z.probs[..., None]
        mean = jnp.sum(weights * _stack([q.mean for q in rows]), -2)
        square = jnp.sum(weights * _stack([q.variance + q.mean**2 for q in rows]), -2)
        return mean, square - mean**2, mean - square


def _row_names(classes: tuple[int, ...]) -> list[str]:
    """`p0`, `p1`, ... as declared: with one number for every index of the table."""
    count = math.prod(classes)
    if len(classes) == 1:
        return [f"p{i}" for i in range(count)]
    places = [[i // math.prod(classes[a + 1 :]) % classes[a] for a in range(len(classes))] for i in range(count)]
    return ["p" + "_".join(map(str, place)) for place in places]


def _stack(rows: Sequence[Any]) -> Float[Array, "*b C L"]:
    return jnp.stack(jnp.broadcast_arrays(*rows), -2)


def _at(values: Float[Array, "... classes"], cell: Array) -> Array:
    """`values[..., cell]`, leading axes broadcast."""
    chosen = jnp.asarray(cell)[..., None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(chosen, values, 0.0), -1)
