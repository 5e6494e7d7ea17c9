"""Marginals of expressions that a model reports by name, `ngmp.deterministic`."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ngmp_kernels import ReportFactor
from ngmp_kernels.families import Gaussian

from ..emit.core import CoreResult, Leaves
from ..emit.map import Map


class LogGaussian(eqx.Module):
    """The distribution of `exp(z)` for a Gaussian z; `log` is that of z."""

    log: Gaussian
    closed: ClassVar[bool] = False  # a mixture of these is none of them

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.log.batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> Any:
        return self.log.dtype

    @property
    def mean(self) -> Float[Array, "*b"]:
        return jnp.exp(self.log.mean + 0.5 * self.log.variance)

    @property
    def variance(self) -> Float[Array, "*b"]:
        return self.mean**2 * jnp.expm1(self.log.variance)

    @property
    def std(self) -> Float[Array, "*b"]:
        return jnp.sqrt(self.variance)

    def cdf(self, x: Array) -> Array:
        inside = jnp.log(jnp.where(x > 0, x, 1.0))
        return jnp.where(x > 0, ndtr((inside - self.log.mean) / self.log.std), 0.0)

    def quantile(self, p: ArrayLike) -> Array:
        """The x with `P(exp(z) <= x) = p`."""
        return jnp.exp(self.log.quantile(p))

    def log_density(self, x: Array) -> Array:
        return self.log.log_density(jnp.log(x)) - jnp.log(x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jnp.exp(self.log.sample(key, shape))


def reports(map: Map, leaves: Leaves, result: CoreResult) -> dict[str, Any]:
    """The marginals of all reported expressions, by name."""
    plan = map.plan
    found = [(g, group) for g, group in enumerate(plan.groups) if isinstance(group.factor, ReportFactor)]
    if not found:
        return {}
    numbers = {g: f for f, (g, _, _) in enumerate(plan.functionals) if g in dict(found)}
    needed = frozenset(f for f, (g, j, _) in enumerate(plan.functionals) if plan.groups[g].keys[j] in leaves)
    joint = map.core.run(leaves, needed | frozenset(numbers.values())) if numbers else result
    out: dict[str, Any] = {}
    for g, group in found:
        (edge,) = group.edges
        q = joint.functionals[numbers[g]] if g in numbers else edge.marginal(joint.planes)
        n, shape = group.n, group.shape
        full = jax.tree.map(lambda x, n=n: jnp.broadcast_to(x, (n, *x.shape[1:])), q)
        q = jax.tree.map(lambda x, s=shape: x.reshape(*s, *x.shape[1:]), full)
        out[group.given.name] = LogGaussian(q) if group.factor.link == "exp" else q  # type: ignore[arg-type]
    return out
