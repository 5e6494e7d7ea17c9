r"""The distribution of a predicted outcome: its function $F(y) = E_q[F(y \mid z)]$ and the inverse of that.

Nothing is computed until it is asked for: an `Outcome` keeps the factors and the marginals of their interfaces.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ngmp_kernels import REGISTRY, AbstractFactor

from ..errors import Problem

_MAX_STEPS = 200  # bisection alone would need a quarter of them for full precision
Distribution = Callable[[Array], Array]


def check_probabilities(p: Any) -> None:
    """Refuse what is no probability strictly between 0 and 1, where that is known."""
    if isinstance(p, Tracer):
        return
    values = np.asarray(p)
    inside = values.dtype.kind in "fiu" and bool(np.all((values > 0) & (values < 1)))
    if not inside:
        raise ValueError(f"quantile(p): p must be probabilities strictly between 0 and 1, such as 0.05; got {p}")


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
        found = _INVERSE[self.factor.support](jax.vmap(self.cdf), p, mean, jnp.sqrt(epistemic + aleatoric))
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

    def gather(self, arrays: list[Array]) -> Array:
        """Arrays (n, ...) of the parts as one of shape (*batch, ...)."""
        whole = jnp.concatenate(arrays)
        return whole.reshape(*self.batch, *whole.shape[1:]) if self.place is None else whole[self.place]

    def scatter(self, whole: Array) -> list[Array]:
        """The inverse of `gather`."""
        flat = whole.reshape(-1, *whole.shape[len(self.batch) :])
        flat = flat if self.place is None else flat[jnp.argsort(self.place.reshape(-1))]
        return jnp.split(flat, np.cumsum([part.n for part in self.parts])[:-1])

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        self._check()
        return _cdf(self, y)

    def quantile(self, p: Float[Array, "*p"]) -> Float[Array, "..."]:
        self._check()
        return _quantile(self, p)

    def _check(self) -> None:
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


# -- inverses: y with F(y) = p, for F on arrays (k, n, *event) --------------------------------------------------------


def _real(cdf: Distribution, p: Array, mean: Array, std: Array) -> Array:
    """In `y = mean + std sinh t` every finite number is within reach; tails may be as heavy as they like."""
    std = jnp.where(jnp.isfinite(std) & (std > 0), std, 1.0)
    return _continuous(cdf, p, lambda t: mean + std * jnp.sinh(t), mean)


def _positive(cdf: Distribution, p: Array, mean: Array, std: Array) -> Array:
    del std
    return _continuous(cdf, p, lambda t: mean * jnp.exp(t), mean)


def _unit(cdf: Distribution, p: Array, mean: Array, std: Array) -> Array:
    del std
    return _continuous(cdf, p, jax.nn.sigmoid, mean)


def _continuous(cdf: Distribution, p: Array, coordinate: Distribution, like: Array) -> Array:
    """The root of `F(y(t)) - p`, with the derivatives of the implicit function: `dy = (dp - dF)/f`."""
    reach = 0.45 * jnp.log(jnp.finfo(like.dtype).max)
    shape = jnp.broadcast_shapes(p.shape, like.shape)
    y = jax.lax.stop_gradient(coordinate(_root(lambda t: cdf(coordinate(t)), p, jnp.full(shape, reach, like.dtype))))
    value, density = jax.jvp(cdf, (y,), (jnp.ones_like(y),))
    slack = p - value
    density = jax.lax.stop_gradient(jnp.where(density > 0, density, jnp.inf))
    return y + (slack - jax.lax.stop_gradient(slack)) / density


def _root(cdf: Distribution, p: Array, reach: Array) -> Array:
    """`F(t) = p` by Chandrupatla's method: inverse quadratic interpolation where that is safe, else bisection.

    Each element has its own bracket between a (the newest point) and b, c being the point before; F is 0 and 1 at
    the ends of the first, [-reach, reach].
    """
    tol = 2 * jnp.finfo(reach.dtype).eps

    def going(carry: tuple) -> Array:
        return jnp.any(~carry[-2]) & (carry[-1] < _MAX_STEPS)

    def step(carry: tuple) -> tuple:
        a, b, fa, fb, t, done, count = carry
        x = a + t * (b - a)
        fx = cdf(x) - p
        same = (fx > 0) == (fa > 0)
        c, fc = jnp.where(same, a, b), jnp.where(same, fa, fb)
        b, fb = jnp.where(same, b, a), jnp.where(same, fb, fa)
        least = tol * (1 + jnp.abs(x)) / jnp.abs(b - x)
        xi, phi = (x - b) / (c - b), (fx - fb) / (fc - fb)
        quadratic = fx / (fb - fx) * fc / (fb - fc) + (c - x) / (b - x) * fx / (fc - fx) * fb / (fc - fb)
        smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        new = jnp.clip(jnp.where(smooth, quadratic, 0.5), least, 1 - least)
        ended = done | (least > 0.5) | (fx == 0)
        kept = (jnp.where(done, old, now) for old, now in zip(carry[:4], (x, b, fx, fb), strict=True))
        return *kept, new, ended, count + 1

    zero = jnp.zeros_like(reach)
    start = (-reach, reach, zero - p, zero + 1 - p, zero + 0.5, jnp.zeros(reach.shape, bool), 0)
    return jax.lax.while_loop(going, step, jax.lax.stop_gradient(start))[0]


def _count(cdf: Distribution, p: Array, mean: Array, std: Array) -> Array:
    """The smallest integer k with `F(k) >= p`: doubled until it is passed, then bisected; `F(-1) = 0`."""
    del std
    largest = 1 / jnp.finfo(mean.dtype).eps  # beyond it not every integer is a number
    first = jnp.broadcast_to(jnp.clip(jnp.ceil(mean), 1.0, largest), jnp.broadcast_shapes(p.shape, mean.shape))

    def step(carry: tuple) -> tuple:
        low, high, passed = carry  # F(low) < p; once passed, F(high) >= p
        k = jnp.where(passed, jnp.floor(0.5 * (low + high)), high)
        above = (cdf(k) >= p) | (k >= largest)
        return jnp.where(above, low, k), jnp.where(above, k, jnp.where(passed, high, 2 * high)), passed | above

    def going(carry: tuple) -> Array:
        low, high, passed = carry
        return jnp.any(~passed | (high - low > 1))

    start = jax.lax.stop_gradient((-jnp.ones_like(first), first, jnp.zeros(first.shape, bool)))
    return jax.lax.stop_gradient(jax.lax.while_loop(going, step, start)[1])


_INVERSE: dict[str | None, Callable[..., Array]] = {
    "real": _real,
    "positive": _positive,
    "unit": _unit,
    "count": _count,
}
