r"""The distribution of a predicted outcome: its function $F(y) = E_q[F(y \mid z)]$ and the inverse of that.

Nothing is computed until it is asked for: an `Outcome` keeps the factors and the marginals of their interfaces.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ngmp_kernels import REGISTRY, AbstractFactor
from ngmp_kernels.numerics.inverse_cdf import INVERSE

from ..errors import Problem


class Part(eqx.Module):
    """n factors of one kind and the marginals of their interfaces, or constants in their place.

    Moments and the distribution function need them at outcome zero; see `AbstractFactor.moments`.
    """

    factor: AbstractFactor
    marginals: tuple[Any, ...]
    constants: tuple[Any, ...]
    n: int = eqx.field(static=True)

    def moments(self) -> tuple[Array, Array, Array]:
        """Mean, epistemic and aleatoric variance, each (n, *event)."""
        if all(q is None for q in self.marginals):
            mean, variance = self.factor.moments(*self.constants)
            found = mean, jnp.zeros_like(mean), variance
        else:
            found = self.factor.predictive_moments(self.marginals)
        shape = (self.n, *found[0].shape[1:])
        mean, epistemic, aleatoric = (jnp.broadcast_to(x, shape) for x in found)
        return mean, epistemic, aleatoric

    def log_density(self) -> Float[Array, " n"]:
        """Of the outcome that the factors hold, with the marginals at that outcome."""
        if all(q is None for q in self.marginals):
            found = jnp.asarray(self.factor.log_density(*self.constants))
        else:
            found = self.factor.predictive_log_density(self.marginals)
        return jnp.broadcast_to(found, (self.n,))

    def cdf(self, y: Float[Array, "n *event"]) -> Float[Array, "n *event"]:
        if all(q is None for q in self.marginals):
            return self.factor.cdf(y, *self.constants)
        return self.factor.predictive_cdf(y, self.marginals)

    def quantile(self, p: Float[Array, " k"]) -> Float[Array, "k n *event"]:
        mean, epistemic, aleatoric = self.moments()
        p = p.reshape(-1, *(1,) * mean.ndim)
        valid = (p > 0) & (p < 1) & ~jnp.isnan(mean)  # traced values can only be flagged
        p, mean = jnp.where((p > 0) & (p < 1), p, 0.5), jnp.nan_to_num(mean, nan=1.0)
        found = INVERSE[self.factor.support](jax.vmap(self.cdf), p, mean, jnp.sqrt(epistemic + aleatoric))
        return jnp.where(valid, found, jnp.nan)


class Outcome(eqx.Module):
    """The outcomes of a site: parts of one kind each, and where their elements go if there are several."""

    parts: tuple[Part, ...]
    place: Int[Array, "*batch"] | None  # of every element, among the elements of all parts
    batch: tuple[int, ...] = eqx.field(static=True)
    event: tuple[int, ...] = eqx.field(static=True)
    site: str = eqx.field(static=True)
    distribution: str = eqx.field(static=True)

    @property
    def ndim(self) -> int:
        return len(self.batch) + len(self.event)

    @property
    def counts(self) -> bool:
        """Whether outcomes are whole numbers from zero on."""
        return all(part.factor.support == "count" for part in self.parts)

    def gather(self, arrays: list[Array]) -> Array:
        """Arrays (n, ...) of the parts as one of shape (*batch, ...)."""
        whole = jnp.concatenate(arrays)
        return whole.reshape(*self.batch, *whole.shape[1:]) if self.place is None else whole[self.place]

    def scatter(self, whole: Array) -> list[Array]:
        """The inverse of `gather`."""
        flat = whole.reshape(-1, *whole.shape[len(self.batch) :])
        sizes = np.cumsum([part.n for part in self.parts])
        if self.place is not None:  # elements that are not of this outcome may be anything
            flat = jnp.ones((int(sizes[-1]), *flat.shape[1:]), flat.dtype).at[self.place.reshape(-1)].set(flat)
        return jnp.split(flat, sizes[:-1])

    def last(self, steps: int) -> "Outcome":
        """Of the last elements along the first axis."""
        place = self.place if self.place is not None else jnp.arange(int(np.prod(self.batch))).reshape(self.batch)
        chosen = place[self.batch[0] - steps :]
        return Outcome(self.parts, chosen, chosen.shape, self.event, self.site, self.distribution)

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        self.check()
        return _cdf(self, y)

    def quantile(self, p: Float[Array, "*p"]) -> Float[Array, "..."]:
        self.check()
        return _quantile(self, p)

    def check(self) -> None:
        """Refuse outcomes without a distribution function."""
        if all(part.factor.support is not None for part in self.parts):
            return
        kinds = {name: [s.factor.support for s in d.signatures] for name, d in REGISTRY.items()}
        have = sorted(name for name, supports in kinds.items() if any(isinstance(s, str) for s in supports))
        given = f"an outcome of {self.distribution} has no distribution function here"
        raise ValueError(str(Problem(self.site, None, given, f"cdf and quantile are there for {', '.join(have)}")))


@jax.jit
def _cdf(outcome: Outcome, y: Array) -> Array:
    return outcome.gather([part.cdf(x) for part, x in zip(outcome.parts, outcome.scatter(y), strict=True)])


@jax.jit
def _quantile(outcome: Outcome, p: Array) -> Array:
    found = [part.quantile(p.reshape(-1)) for part in outcome.parts]
    whole = jax.vmap(lambda *rows: outcome.gather(list(rows)))(*found)
    return whole.reshape(*p.shape, *whole.shape[1:])
