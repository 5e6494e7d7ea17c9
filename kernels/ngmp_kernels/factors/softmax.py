r"""Classes with Gaussian scores: `Categorical(logits=...)`, softmax regression; and `Multinomial(logits=...)`.

Only differences of the K scores matter. With $r_k = z_k - z_K$, $k < K$, and $p = softmax(r, 0)$, the log-density of
class y is $l(r) = r_y - \log(1 + \sum_k e^{r_k})$, and

$$ \nabla l = e_y - p, \qquad \nabla^2 l = p p^T - diag(p), $$

whose expectations are the message, by the theorems of Bonnet and Price: the Hessian is never positive, at no node.
Counts of n classes are n such factors: $l(r) = y^T r - n \log(1 + \sum_k e^{r_k})$ and the multinomial coefficient.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, MV_GAUSSIAN, Lowered, Signature, as_float
from ..factor import Cavities
from ..families import MvGaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.special import is_count
from .categorical_table import check_class
from .vectors import AbstractVector


class Softmax(AbstractVector):
    """`f(r) = softmax(r, 0)[y]` of the differences r of K scores to the last, and an observed class y.

    Where there are more differences than variables behind them, as in models of choice with a few coefficients, the
    interface is z with `r = rows z + offset`.

    Attributes:
        one_hot: the class, as a row of zeros and a one; or counts of classes.
        rows, offset: see above; None where the interface is r itself.
        coefficient: of counts, the logarithm of the multinomial coefficient; None of a class.
    """

    # Of derivatives, fewer nodes do than of values.
    per_axis: ClassVar[dict[int, int]] = {1: 24, 2: 12, 3: 7}
    one_hot: Float[Array, "#n K"]
    rows: Float[Array, "#n m d"] | None = None
    offset: Float[Array, "#n m"] | None = None
    coefficient: Float[Array, " #n"] | None = None

    def through(self, rows: Array, offset: Array) -> "Softmax":
        return Softmax(self.one_hot, rows, offset, self.coefficient)

    def _trials(self) -> Float[Array, " #n"] | float:
        return 1.0 if self.coefficient is None else jnp.sum(self.one_hot, -1)

    def _differences(self, z: Float[Array, "*b n d"]) -> Float[Array, "*b n m"]:
        if self.rows is None:
            return z
        return jnp.einsum("nmd,...nd->...nm", self.rows, z, precision="highest") + self.offset  # type: ignore[operator]

    def _pull(self, slope: Array, bend: Array) -> tuple[Array, Array]:
        """Gradient and Hessian in z."""
        if self.rows is None:
            return slope, bend
        slope = jnp.einsum("nmd,nm->nd", self.rows, slope, precision="highest")
        return slope, jnp.einsum("nmd,nml,nle->nde", self.rows, bend, self.rows, precision="highest")

    def log_density(self, z: Array) -> Array:
        r = self._differences(z)
        picked = jnp.sum(self.one_hot[..., :-1] * r, -1)
        most = jnp.maximum(jnp.max(r, -1), 0.0)
        total = jnp.exp(-most) + jnp.sum(jnp.exp(r - most[..., None]), -1)
        found = picked - self._trials() * (most + jnp.log(total))
        return found if self.coefficient is None else found + self.coefficient

    def derivatives(self, w: Array, z: Array) -> tuple[Array, Array]:
        p = _probabilities(self._differences(z))[..., :-1]
        mean = jnp.tensordot(w, p, 1, precision="highest")
        square = jnp.einsum("q,qni,qnj->nij", w, p, p, precision="highest")
        bend = square - mean[..., None] * jnp.eye(mean.shape[-1], dtype=mean.dtype)
        n = jnp.asarray(self._trials(), mean.dtype)[..., None]
        return self._pull(self.one_hot[..., :-1] - n * mean, n[..., None] * bend)

    def initial(self) -> tuple[MvGaussian | None]:
        if self.rows is not None:
            return (None,)
        # Half a pseudo-count of every class; all scores as uncertain as each other, the last one too.
        scores = jnp.log(self.one_hot + 0.5)
        d = scores.shape[-1] - 1
        covariance = jnp.eye(d, dtype=scores.dtype) + jnp.ones((d, d), scores.dtype)
        covariance = covariance / jnp.maximum(jnp.sum(self.one_hot, -1), 1.0)[..., None, None]
        return (MvGaussian.from_mean_covariance(scores[..., :-1] - scores[..., -1:], covariance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if self.coefficient is None:
            return check_class(self.one_hot)
        return {"counts must be non-negative integers": jnp.all(is_count(self.one_hot), -1)}

    def moments(self, z: Array) -> tuple[Array, Array]:
        p, n = _probabilities(self._differences(z)), jnp.asarray(self._trials(), z.dtype)[..., None]
        return n * p, n * p * (1.0 - p)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        w, z = self.vector_nodes(*marginals)
        p, variance = self.moments(z)
        mean = jnp.tensordot(w, p, 1)
        return mean, jnp.tensordot(w, (p - mean) ** 2, 1), jnp.tensordot(w, variance, 1)


def _probabilities(r: Float[Array, "*b d"]) -> Float[Array, "*b K"]:
    return jax.nn.softmax(jnp.concatenate([r, jnp.zeros_like(r[..., :1])], -1), axis=-1)


def _differences(logits: Any) -> Any:
    """Of K scores to the last."""
    (classes,) = logits.event_shape
    if classes < 2:
        raise ValueError("logits= has one score; give one for every class, and two classes at least")
    return np.concatenate([np.eye(classes - 1), -np.ones((classes - 1, 1))], 1) @ logits


def _lower(out: Any, logits: Any) -> Lowered:
    differences, out = _differences(logits), jnp.asarray(out)
    one_hot = (out[..., None] == jnp.arange(logits.event_shape[0], dtype=out.dtype)).astype(as_float(out).dtype)
    return Lowered(Softmax(one_hot), (differences,))


def _lower_counts(out: Any, logits: Any) -> Lowered:
    counts = jnp.asarray(as_float(out))
    coefficient = gammaln(jnp.sum(counts, -1) + 1.0) - jnp.sum(gammaln(counts + 1.0), -1)
    return Lowered(Softmax(counts, coefficient=coefficient), (_differences(logits),))


SIGNATURE = Signature({"out": CONSTANT, "logits": MV_GAUSSIAN}, _lower, Softmax)
COUNTS = Signature({"out": CONSTANT, "logits": MV_GAUSSIAN}, _lower_counts, Softmax)
