"""Tables of probabilities that are known: rows picked by latent classes, with a latent or an observed outcome.

Logarithms of zero probabilities are large and finite (see `special.log_probability`).
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ..factor import AbstractConjugate, Cavities, Families
from ..families import Categorical as CategoricalFamily


def joint_name(count: int, *more: str) -> str:
    """The name of an interface over several classes: "z", "(z, out)", "(z1, z2, out)"."""
    names = ("z",) if count == 1 else tuple(f"z{i + 1}" for i in range(count))
    return f"({', '.join((*names, *more))})" if len(names) + len(more) > 1 else names[0]


class CategoricalTransition(AbstractConjugate):
    """`f(z1, z2, ..., out) = table[z1, z2, ..., out]` of latent classes: one joint interface, a tuple of values.

    The message is the table itself: `message()[0].eta1` has shape (n|1, K1, K2, ..., L), all class axes kept.
    """

    families: ClassVar[Families] = (CategoricalFamily,)
    log_table: Float[Array, "#n *K L"]

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (joint_name(self.log_table.ndim - 2, "out"),)

    def log_density(self, cell: tuple[Array, ...]) -> Array:
        *z, out = cell
        return pick(entry(self.log_table, *z), out)

    def message(self) -> tuple[CategoricalFamily, Array]:
        return CategoricalFamily(self.log_table), jnp.zeros(self.log_table.shape[:1], self.log_table.dtype)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return check_table(self.log_table)

    def moments(self, cell: tuple[Array, ...]) -> tuple[Array, Array]:
        return class_moments(entry(self.log_table, *cell[:-1]))


class CategoricalEmission(AbstractConjugate):
    """`f(z1, z2, ...) = table[z1, z2, ..., k]` for an observed class k: the message is a part of the table.

    With several classes they are one joint interface, a tuple of values, and the message keeps all class axes.
    """

    families: ClassVar[Families] = (CategoricalFamily,)
    log_table: Float[Array, "#n *K L"]
    outcome: Shaped[Array, " #n"]

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (joint_name(self.log_table.ndim - 2),)

    def _column(self) -> Array:
        index = jnp.clip(self.outcome, 0, self.log_table.shape[-1] - 1).astype(jnp.int32)
        if self.log_table.shape[0] == 1:
            return jnp.moveaxis(self.log_table[0], -1, 0)[index]
        return pick(self.log_table, index.reshape(-1, *(1,) * (self.log_table.ndim - 2)))

    def log_density(self, z: Array | tuple[Array, ...]) -> Array:
        *first, last = z if isinstance(z, tuple) else (z,)
        return pick(entry(self._column(), *first), last)

    def message(self) -> tuple[CategoricalFamily, Array]:
        column = self._column()
        return CategoricalFamily(column), jnp.zeros(column.shape[:1], column.dtype)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        k, classes = self.outcome, self.log_table.shape[-1]
        fine = (k >= 0) & (k < classes) & (k == jnp.floor(k))
        return {**check_table(self.log_table), class_text(classes): fine}

    def moments(self, z: Array | tuple[Array, ...]) -> tuple[Array, Array]:
        return class_moments(entry(self.log_table, *(z if isinstance(z, tuple) else (z,))))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """Under the marginal of the cells of the table; outcomes are one-hot vectors."""
        weights, p = marginals[0].probs[..., None], jnp.exp(self.log_table)
        p = p.reshape(p.shape[0], -1, p.shape[-1])
        mean, square = jnp.sum(weights * p, -2), jnp.sum(weights * p**2, -2)
        return mean, square - mean**2, mean - square

    def predictive_log_density(self, marginals: Cavities) -> Array:
        column = self._column()
        return jax.nn.logsumexp(jax.nn.log_softmax(marginals[0].eta1) + column.reshape(column.shape[0], -1), axis=-1)


def pick(rows: Array, k: Array) -> Array:
    """`rows[..., k]` for rows (..., n|1, K) and integers k (..., n)."""
    batch = jnp.broadcast_shapes(rows.shape[:-1], k.shape)
    index = jnp.broadcast_to(k, batch)[..., None].astype(int)
    return jnp.take_along_axis(jnp.broadcast_to(rows, (*batch, rows.shape[-1])), index, axis=-1)[..., 0]


def entry(table: Array, *z: Array) -> Array:
    """`table[z1, z2, ...]`, (..., n, *rest), for tables (n|1, K1, K2, ..., *rest) and integers z (..., n)."""
    lead = jnp.broadcast_shapes(table.shape[:1], *(x.shape for x in z))
    rows = jnp.arange(lead[-1]) if table.shape[0] > 1 else jnp.zeros(1, int)
    return table[(rows, *(jnp.broadcast_to(x, lead).astype(int) for x in z))] if z else table


def class_moments(log_probs: Array) -> tuple[Array, Array]:
    p = jnp.exp(log_probs)
    return p, p * (1.0 - p)


def check_rows(log_rows: Array) -> dict[str, Array]:
    total = jnp.sum(jnp.exp(log_rows), -1)
    tolerance = jnp.sqrt(jnp.finfo(log_rows.dtype).eps)
    return {"probs must be non-negative and sum to one, and logits must be finite": jnp.abs(total - 1.0) < tolerance}


def check_table(log_table: Array) -> dict[str, Array]:
    """The same of all rows of a table (n|1, *K, L)."""
    return {text: jnp.all(ok, tuple(range(1, ok.ndim))) for text, ok in check_rows(log_table).items()}


def class_text(classes: int) -> str:
    return f"outcomes must be integers from 0 to {classes - 1}"


def check_class(one_hot: Array) -> dict[str, Array]:
    return {class_text(one_hot.shape[-1]): jnp.sum(one_hot, -1) == 1.0}
