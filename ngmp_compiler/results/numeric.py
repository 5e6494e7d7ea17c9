r"""Marginals of integrated sites: densities of numbers, known at the nodes of the integral.

Moments are sums over the nodes. For quantiles and densities, log-masses and values are interpolated to a finer lattice
(cubic splines along the axes of the grid, such that the nodes keep their masses) and smoothed by a Gaussian as wide as
the spacing left, with the mean and the variance kept as they are. Of points, values are smoothed as a function of
their normal scores, which follows a skewed density where a width for all of them would blur its steep side.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy.interpolate import CubicSpline

from ngmp_kernels.families import in_words
from ngmp_kernels.numerics.inverse_cdf import check_probabilities
from ngmp_kernels.numerics.supports import from_real, log_slope, to_real

from .mixture import each

_TABLE = 257
_FINER = {1: 8, 2: 5, 3: 3}  # times as many cells along every axis
_SCORES = 5.0  # how far normal scores reach
_STIFF = 0.01  # of a line through points that lie together: it leans as the whole does
_FLOOR = 40.0  # nats below the highest node, where nodes have failed


class Numeric(eqx.Module):
    """The density of an integrated number, or of each of a few."""

    weights: Float[Array, " m"]
    values: Float[Array, "m *shape"]
    u: Float[Array, "m *shape"]  # the values, mapped from the support to the real line
    log_mass: Float[Array, " m"]
    ends: tuple[Array, Array]  # of the interval, where the support is one
    support: str = eqx.field(static=True)
    sides: tuple[int, ...] = eqx.field(static=True)  # (grids, nodes along every axis ...); of points, (m,)

    def __repr__(self) -> str:
        return in_words(self, "Numeric", self.values.shape[1:])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.values.shape[self.weights.ndim :]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def mean(self) -> Array:
        """E[x]."""
        return each(self, lambda q: jnp.tensordot(q.weights, q.values, axes=1))

    @property
    def variance(self) -> Array:
        """Var[x]."""
        return each(self, lambda q: jnp.tensordot(q.weights, (q.values - q.mean) ** 2, axes=1))

    @property
    def std(self) -> Array:
        return jnp.sqrt(self.variance)

    def quantile(self, p: ArrayLike) -> Array:
        """The x with `P(x' <= x) = p`, of shape `(*p.shape, *shape)`."""
        check_probabilities(p)
        p = jnp.asarray(p, self.dtype)
        return each(self, lambda q: q._entries(lambda t: _inverse(t, p), p.ndim), p.ndim)

    def density(self, x: ArrayLike) -> Array:
        """The density at points x, of shape `(*x.shape, *shape)`."""
        x = jnp.asarray(x, self.dtype)
        return each(self, lambda q: q._entries(lambda t: _density(t, x), x.ndim), x.ndim)

    def log_density(self, x: ArrayLike) -> Array:
        return jnp.log(self.density(x))

    def cdf(self, x: ArrayLike) -> Array:
        """`P(x' <= x)`, of shape `(*x.shape, *shape)`."""
        x = jnp.asarray(x, self.dtype)
        return each(self, lambda q: q._entries(lambda t: _below(t, x), x.ndim), x.ndim)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `(*shape, *self.shape)`, by the inverse of the distribution function."""
        p = jax.random.uniform(key, (*shape, *self.batch_shape), self.dtype, 1e-7, 1 - 1e-7)
        flat = p.reshape(*shape, -1)
        rows = self._entries(lambda t: t, 0)
        found = jax.vmap(_inverse, in_axes=(0, -1), out_axes=-1)(_flat(rows, len(self.batch_shape)), flat)
        return found.reshape(p.shape)

    def _entries(self, function: Any, axis: int) -> Any:
        """A function of the table of every number."""
        u = self.u.reshape(self.u.shape[0], -1)
        found = jax.vmap(lambda column: function(self._table(column)), in_axes=1, out_axes=axis)(u)
        shape = self.batch_shape
        return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :]), found)

    def _table(self, u: Float[Array, " m"]) -> "_Table":
        if len(self.sides) == 1:
            return _Table(*_scored(u, self.weights), self.ends, self.support)
        mean, variance = _moments(self.weights, u)
        u, mass, width = _finer(u, self.log_mass, self.weights, self.sides)
        near, spread = _moments(mass, u)
        width = jnp.minimum(width, 0.5 * jnp.sqrt(variance))
        centres = mean + jnp.sqrt((variance - width**2) / spread) * (u - near)
        seen = mass > 1e-9
        low = jnp.min(jnp.where(seen, centres, jnp.inf)) - 4 * width
        high = jnp.max(jnp.where(seen, centres, -jnp.inf)) + 4 * width
        grid = low + (high - low) * jnp.linspace(0.0, 1.0, _TABLE, dtype=u.dtype)
        off = (grid[:, None] - centres) / width
        return _Table(grid, ndtr(off) @ mass, jnp.exp(-0.5 * off**2) @ mass / (width * np.sqrt(2 * np.pi)), self.ends,
                      self.support)  # fmt: skip


class _Table(eqx.Module):
    """Distribution function and density of one number on a grid of the real line."""

    grid: Array
    cdf: Array
    density: Array
    ends: tuple[Array, Array]
    support: str = eqx.field(static=True)


def _flat(tables: Any, ndim: int) -> Any:
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[ndim:]) if x.ndim > ndim or ndim == 0 else x, tables)


def _inverse(table: _Table, p: Array) -> Array:
    return from_real(table.support, jnp.interp(p, table.cdf, table.grid), table.ends)


def _below(table: _Table, x: Array) -> Array:
    return jnp.interp(to_real(table.support, x, table.ends), table.grid, table.cdf, left=0.0, right=1.0)


def _density(table: _Table, x: Array) -> Array:
    u = to_real(table.support, x, table.ends)
    slope = jnp.exp(log_slope(table.support, u, table.ends))
    return jnp.interp(u, table.grid, table.density, left=0.0, right=0.0) / slope


def _finer(u: Array, log_mass: Array, weights: Array, sides: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Values and masses on a finer lattice, and the width that fills the gaps between them."""
    grids, *axes = sides
    times, shape = _FINER[len(axes)], (grids, *axes)
    fine = [np.linspace(0.0, side - 1.0, (side - 1) * times + 1) for side in axes]
    splines = [CubicSpline(np.arange(side), np.eye(side))(x) for side, x in zip(axes, fine, strict=True)]
    hats = [np.maximum(1 - np.abs(x[:, None] - np.arange(side)), 0.0) for side, x in zip(axes, fine, strict=True)]
    log_mass = jnp.maximum(log_mass, jnp.max(log_mass) - _FLOOR).reshape(shape)
    u, log_mass = (_along(splines, x) for x in (u.reshape(shape), log_mass))
    mass = jax.nn.softmax(log_mass.reshape(-1)).reshape(log_mass.shape)
    # Splines overshoot where the density falls steeply: what is around a node adds up to what the nodes say of it, the
    # integral of the density times a hat, h (f_- + 10 f + f_+) / 12.
    around = _along([hat.T for hat in hats], mass)
    wanted = _along([_simpson(side) for side in axes], weights.reshape(shape))
    mass = mass * _along(hats, wanted / jnp.maximum(around, 1e-30))
    mass = mass / jnp.sum(mass)
    gaps = []
    for axis in range(1, u.ndim):
        both = jax.lax.slice_in_dim(mass, 1, None, axis=axis)
        gaps.append(jnp.sum(both * jnp.abs(jnp.diff(u, axis=axis))) / jnp.sum(both))
    return u.reshape(-1), mass.reshape(-1), 0.55 * jnp.max(jnp.stack(gaps))


def _scored(u: Array, weights: Array) -> tuple[Array, Array, Array]:
    r"""Values, distribution function and density on a lattice of normal scores g.

    $u(g)$ is a straight line through the points near g, weighed by $w_m e^{-(g - g_m)^2 / 2 h^2}$, where
    $g_m = \Phi^{-1}(F(u_m))$. Then $F(u(g)) = \Phi(g)$ and the density is $\phi(g) / u'(g)$. Of a Gaussian all is
    one line, whatever h.
    """
    order = jnp.argsort(u)
    u, weights = u[order], weights[order]
    below = jnp.clip(jnp.cumsum(weights) - 0.5 * weights, jnp.finfo(u.dtype).tiny, 1 - jnp.finfo(u.dtype).epsneg)
    g, at = ndtri(below), jnp.linspace(-_SCORES, _SCORES, _TABLE, dtype=u.dtype)
    h = 0.9 * jnp.sum(weights**2) ** 0.2
    near = jnp.log(jnp.maximum(weights, 1e-30)) - 0.5 * ((at[:, None] - g) / h) ** 2
    near = jax.nn.softmax(near, axis=1)
    middle, height = near @ g, near @ u
    spread = near @ g**2 - middle**2
    whole = jnp.sqrt(_moments(weights, u)[1])
    slope = (near @ (g * u) - middle * height + _STIFF * h**2 * whole) / (spread + _STIFF * h**2)
    values = jax.lax.cummax(height + slope * (at - middle))
    density = jnp.exp(-0.5 * at**2) / np.sqrt(2 * np.pi) / jnp.maximum(slope, 1e-6 * whole)
    return values, ndtr(at), density


def _simpson(side: int) -> np.ndarray:
    """Integrals of hats times a function, over its values at the nodes (times the spacing): they add up to the same."""
    near = np.eye(side, k=1) + np.eye(side, k=-1)
    return np.diag(1 - near.sum(1) / 12) + near / 12


def _along(matrices: list[np.ndarray], x: Array) -> Array:
    """A matrix applied along every axis but the first."""
    for axis, matrix in enumerate(matrices, start=1):
        x = jnp.moveaxis(jnp.tensordot(jnp.asarray(matrix, x.dtype), x, axes=(1, axis)), 0, axis)
    return x


def _moments(weights: Array, x: Array) -> tuple[Array, Array]:
    mean = jnp.sum(weights * x)
    return mean, jnp.sum(weights * (x - mean) ** 2)
