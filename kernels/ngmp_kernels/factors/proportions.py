r"""Beta-binomial counts, with the mean $n\mu$, $\mu = \sigma(z)$: counts whose probability varies.

They have a concentration $\kappa$, the sum of the parameters $\kappa\mu$ and $\kappa(1 - \mu)$ of a Beta distribution.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import Values
from ..numerics.gamma_functions import gammaln
from ..numerics.special import is_count, log_binomial
from .generic import ConstantFactor
from .likelihood import AbstractLikelihood, at_constants, positive

_STEPS = np.linspace(-4.5, 4.5, 161)
_LEAST = 1e-12  # of a parameter, so that far out a log-density remains one


def _parameters(z: Array, concentration: Any) -> tuple[Array, Array]:
    return concentration * jax.nn.sigmoid(z) + _LEAST, concentration * jax.nn.sigmoid(-z) + _LEAST


class BetaBinomialLogit(AbstractLikelihood):
    """`f(z) = BetaBinomial(out; trials, kappa sigma(z), kappa sigma(-z))`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    support: ClassVar[str | None] = "count"
    out: Float[Values, " #n"]
    trials: Float[Values, " #n"]
    concentration: Float[Values, " #n"]

    def log_density(self, z: Array) -> Array:
        a, b = _parameters(z, self.concentration)
        hits, trials = jnp.asarray(self.out), jnp.asarray(self.trials)
        misses = trials - hits
        rising = gammaln(a + hits) - gammaln(a) + gammaln(b + misses) - gammaln(b)
        return rising + gammaln(a + b) - gammaln(a + b + trials) + log_binomial(trials, hits)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        inside = is_count(self.out) & is_count(self.trials) & (self.out <= self.trials)
        text = "counts must be integers from 0 to the number of trials n"
        return {text: inside, **positive("concentration", self.concentration)}

    def moments(self, z: Array) -> tuple[Array, Array]:
        n, p = jnp.asarray(self.trials), jax.nn.sigmoid(z)
        wider = (self.concentration + n) / (self.concentration + 1.0)
        return n * p, n * p * jax.nn.sigmoid(-z) * wider

    def cdf(self, out: Array, z: Array) -> Array:
        """The binomial one averaged over log-odds t, of density `e^{a log p + b log(1 - p)}`: smooth, with exponential
        tails, so that equal steps of s in `t = m + w sinh s` converge fast."""
        shape = jnp.broadcast_shapes(jnp.shape(out), jnp.shape(z), jnp.shape(self.trials))
        a, b, n, out = (jnp.broadcast_to(x, shape) for x in (*_parameters(z, self.concentration), self.trials, out))
        s = jnp.asarray(_STEPS, a.dtype).reshape(-1, *(1,) * len(shape))
        t = jnp.log(a) - jnp.log(b) + jnp.sqrt(1 / a + 1 / b + 1 / a**2 + 1 / b**2) * jnp.sinh(s)
        logs = a * jax.nn.log_sigmoid(t) + b * jax.nn.log_sigmoid(-t) + jnp.log(jnp.cosh(s))
        hits = jnp.clip(jnp.floor(out), 0.0, jnp.maximum(n - 1.0, 0.0))
        each = betainc(jnp.maximum(n - hits, 1.0), hits + 1.0, jax.nn.sigmoid(-t))
        mean = jnp.sum(jax.nn.softmax(logs, axis=0) * each, axis=0)
        return jnp.where(out < 0.0, 0.0, jnp.where(out >= n, 1.0, mean))


def _lower(out: Any, n: Any, logits: Any, concentration: Any) -> Lowered:
    factor = BetaBinomialLogit(as_float(out), as_float(n), as_float(concentration))
    return at_constants(factor, as_float(logits)) if hasattr(logits, "dtype") else Lowered(factor, (logits,))


@register
class BetaBinomial(Distribution):
    """`BetaBinomial(n, logits=, concentration=)`: counts whose probability varies about `sigmoid(logits)`."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = dict.fromkeys(("out", "n", "logits", "concentration"), 0)
    placeholder = 0
    signatures = (
        Signature({**dict.fromkeys(event_ndims, CONSTANT), "logits": GAUSSIAN}, _lower, BetaBinomialLogit),
        Signature(dict.fromkeys(event_ndims, CONSTANT), _lower, ConstantFactor),
    )

    def __init__(self, n: Any, *, logits: Any, concentration: Any):
        self.arguments = {"n": n, "logits": logits, "concentration": concentration}

    def draw(self, key: Any, like: Array, n: Array, logits: Array, concentration: Array) -> Array:
        """Binomial counts of a probability that is Beta."""
        one, other = jax.random.split(key)
        p = jax.nn.sigmoid(logits)
        probs = jax.random.beta(one, concentration * p, concentration * (1.0 - p), like.shape, like.dtype)
        return jax.random.binomial(other, n, probs, like.shape, like.dtype)
