"""The default step: damping, and Anderson mixing where that is slow; in natural coordinates, safeguarded."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import AbstractFamily

from .adaptive import Damped, each, halved, ones, scales, secant_rate
from .step import AbstractStep, Blamed, Memory

_AFTER = 10  # sweeps that the default solver only damps: what is done by then needs no more
_LOCAL = 0.1  # relative residual, of the worst coordinate, below which the map counts as nearly affine
_GROWTH = 2.0  # of the residual in one sweep, beyond which the history is not believed
_RIDGE = 1e-10  # relative to the squared norms of the differences
_FIRST_REST, _LONGEST_REST = 4, 64  # sweeps without mixing after it has failed: twice as many every time


class AndersonState(Memory):
    """The damping of every leaf; some points before and their residuals, how many of them count; when to mix."""

    rate: Any
    points: Any  # as the leaves, with an axis of length `memory` in front, written in turn
    residuals: Any
    slot: Int[Array, ""]  # where the next one is written
    count: Int[Array, ""]
    size: Float[Array, ""]  # the square of the newest residual
    wait: Int[Array, ""]  # sweeps until mixing begins
    rest: Int[Array, ""]  # how many there will be when it fails
    mixes: Bool[Array, ""]

    def damped(self) -> "AndersonState":
        """For a block that is not to mix: damping alone."""
        return dataclasses.replace(self, mixes=jnp.zeros_like(self.mixes))

    def forgetful(self, when: Array) -> "AndersonState":
        """Without the points before."""
        return dataclasses.replace(self, slot=jnp.where(when, 0, self.slot), count=jnp.where(when, 0, self.count))

    def failed(self, when: Array) -> "AndersonState":
        """Points before are forgotten; if there was mixing, there is none for a while, and longer the next time."""
        blamed = when & (self.wait == 0)
        return dataclasses.replace(
            self.forgetful(when),
            wait=jnp.where(blamed, self.rest, self.wait),
            rest=jnp.where(blamed, jnp.minimum(2 * self.rest, _LONGEST_REST), self.rest),
        )

    def refused(self, blamed: Blamed, written: Any) -> "AndersonState":
        """After a step that was not accepted: the rates of the rows to blame halved, and the history dropped."""
        # What was written is not read. Kept as it is, no copy of the whole is made in every sweep to choose from.
        return dataclasses.replace(
            self.failed(jnp.asarray(True)), size=jnp.full_like(self.size, jnp.inf), points=written.points,
            residuals=written.residuals, rate=halved(self.rate, blamed),
        )  # fmt: skip


def adaptive(least: float = 0.02, cut: float = 0.5, grow: float = 1.3, memory: int = 4) -> AbstractStep:
    """The default solver: damping with a rate for every element of a leaf, and mixing where that is slow.

    Rates are set by a secant through the last two residuals (`damped`): they change by at most the factors `cut` and
    `grow` a sweep and stay in [least, 1]. A run that is not done after ten sweeps has directions in which it goes
    slowly; from then on the steps are those of `anderson`, of `memory` points, as long as these help. With `memory=0`
    there is damping only. There is nothing to tune.
    """
    return Mixing(memory, _AFTER, False, least, cut, grow) if memory else Damped(least, cut, grow)


def anderson(memory: int = 5, cautious: bool = True) -> AbstractStep:
    r"""Anderson acceleration from the start: often fewer sweeps than `adaptive`, to the same fixed point.

    With residuals $r_t = \eta_t - \eta^*(\eta_t)$, and the differences $\Delta x_j$ and $\Delta r_j$ between the last
    `memory` + 1 points and between their residuals,

    $$ \gamma = \arg\min_\gamma \| r_t - \textstyle\sum_j \gamma_j \Delta r_j \|^2, \qquad
       \eta_{t+1} = \eta_t - \textstyle\sum_j \gamma_j \Delta x_j - \alpha \circ (r_t - \sum_j \gamma_j \Delta r_j), $$

    where the rates $\alpha$, one for every element of a leaf, are those of `adaptive`: what the weights do not explain
    is damped as it would be without them. In the norm every coordinate is relative to its own size, or to that of its
    largest change, and the small system has a ridge of 1e-10 times its diagonal (in float32, of ten rounding units).

    A secant is worth something only where the map is nearly affine, so mixing is safeguarded. There is none until
    the residual of *every* natural parameter is below a tenth of it (until then there is damping), nor before two
    differences are there. If the residual has more than doubled in a sweep, or a proposal was refused, all points
    before are forgotten, and the next sweeps only damp: 4 of them, then 8, up to 64.

    In a schedule of several blocks only the last one mixes. It keeps 2 `memory` arrays of the size of the leaves.

    Args:
        memory: how many points before the current one are used; at least 1.
        cautious: whether to wait until every residual is small. A run that has not got there will not either.
    """
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer):
        raise TypeError(f"anderson(memory={memory!r}): give a whole number of points, such as 5")
    if memory < 1:
        raise ValueError(f"anderson(memory={memory}): memory must be at least 1; ngmp.adaptive() uses none")
    return Mixing(int(memory), 0, cautious)


class Mixing(AbstractStep):
    """Damping for `after` sweeps, then mixing with `memory` points: see `anderson`."""

    memory: int
    after: int
    cautious: bool
    least: float = 0.02
    cut: float = 0.5
    grow: float = 1.3

    def __str__(self) -> str:
        return f"{'adaptive' if self.after else 'anderson'}(memory={self.memory})"

    def init(self, params: Any) -> AndersonState:
        history = jax.tree.map(lambda x: jnp.zeros((self.memory, *x.shape), x.dtype), params)
        dtype = jnp.result_type(*(jax.tree.leaves(params) or [jnp.float32]))  # of nothing: the narrowest
        size, zero = jnp.asarray(jnp.inf, dtype), jnp.asarray(0)
        wait, rest = jnp.asarray(self.after), jnp.asarray(_FIRST_REST)
        return AndersonState(ones(params), history, history, zero, zero, size, wait, rest, jnp.asarray(True))

    def update(self, updates: Any, state: AndersonState, params: Any = None) -> tuple[Any, AndersonState]:
        if params is None:
            raise ValueError("anderson needs the natural parameters: call update(gradients, state, params)")
        rate = self._rate(updates, state, params)
        size = _size(params, updates).astype(state.size.dtype)
        sound = ~(size > _GROWTH**2 * state.size)
        ready = state.mixes & sound & (state.wait == 0) & (state.count >= min(2, self.memory))
        near = _is_local(params, updates) if self.cautious else jnp.asarray(True)
        steps = jax.lax.cond(
            ready & near,
            lambda: self._mixed(updates, state, params, rate),
            lambda: each(lambda g, a: -(g * a), updates, rate),
        )
        state = state.failed(~sound).forgetful(~near)
        points, residuals = (
            jax.tree.map(lambda x, old: jax.lax.dynamic_update_index_in_dim(old, x, state.slot, 0), *pair)
            for pair in ((params, state.points), (updates, state.residuals))
        )
        count, slot = jnp.minimum(state.count + 1, self.memory), (state.slot + 1) % self.memory
        wait = jnp.maximum(state.wait - 1, 0)
        return steps, AndersonState(rate, points, residuals, slot, count, size, wait, state.rest, state.mixes)

    def _rate(self, updates: Any, state: AndersonState, params: Any) -> Any:
        """The damping of every element, from its last move and what that made of its residual."""
        newest = (state.slot - 1) % self.memory
        before, last = (jax.tree.map(lambda x: x[newest], h) for h in (state.points, state.residuals))
        move = jax.tree.map(lambda x, old: jnp.where(state.count > 0, x - old, 0), params, before)
        return each(
            lambda *leaf: secant_rate(*leaf, least=self.least, cut=self.cut, grow=self.grow),
            updates, last, move, state.rate, params,
        )  # fmt: skip

    def _mixed(self, updates: Any, state: AndersonState, params: Any, rate: Any) -> Any:
        """The step of `anderson`."""
        number = jnp.arange(self.memory)
        latest, known = number == (state.slot - 1) % self.memory, number < state.count
        moves, changes = (
            jax.tree.map(lambda x, old: _differences(x, old, latest, known), *pair)
            for pair in ((params, state.points), (updates, state.residuals))
        )
        mix = _weights(params, updates, changes, known)
        jump, explained = (jax.tree.map(lambda x: jnp.tensordot(mix, x, 1), d) for d in (moves, changes))
        return each(lambda j, g, k, a: -(j + (g - k) * a), jump, updates, explained, rate)


def _differences(x: Array, old: Float[Array, "m ..."], latest: Array, known: Array) -> Float[Array, "m ..."]:
    """What followed each known point minus that point: the next in the circle, or after the latest one `x`."""
    latest, known = (rows.reshape(-1, *(1,) * x.ndim) for rows in (latest, known))
    return jnp.where(known, jnp.where(latest, x, jnp.roll(old, -1, 0)) - old, 0)


def _square(eta: AbstractFamily) -> Float[Array, ""]:
    """The squared Euclidean norm over all elements of a leaf."""
    squares = [jnp.vdot(x, x) for x in eta.natural]
    return sum(squares[1:], squares[0])


def _size(params: Any, gradient: Any) -> Float[Array, ""]:
    """The squared norm of a residual, every coordinate relative to its own size."""
    found = [jnp.zeros(())]
    for key, eta in params.items():
        for g, scale in zip(gradient[key].natural, scales(eta, gradient[key]), strict=True):
            found.append(jnp.sum((g / scale) ** 2))
    return sum(found[1:], found[0])


def _is_local(params: Any, gradient: Any) -> Bool[Array, ""]:
    """Whether the residual of every natural parameter is a small part of it."""
    local = jnp.asarray(True)
    for key, eta in params.items():
        # An element that says next to nothing, such as a masked one, has no say here either.
        elements = sum(x.size for x in eta.natural)
        least = 1e-6 * jnp.sqrt(_square(eta - gradient[key]) / max(elements, 1))
        for g, scale in zip(gradient[key].natural, scales(eta, gradient[key]), strict=True):
            local &= jnp.all(jnp.abs(g) <= _LOCAL * (scale + least))
    return local


def _weights(params: Any, gradient: Any, changes: Any, valid: Bool[Array, " m"]) -> Float[Array, " m"]:
    """Least squares: the combination of the valid changes that is closest to the residual.

    The normal equations, in units of the changes, have a ridge, so elimination needs no pivots. It is written out: a
    LAPACK call would cost more than all of it.
    """
    memory, grams, slopes = len(valid), [], []
    for key, eta in params.items():
        # An element that is zero now has no size but that of its changes.
        most = jax.tree.map(lambda x: jnp.max(jnp.abs(x), 0), changes[key])
        parts = zip(gradient[key].natural, changes[key].natural, scales(eta, gradient[key], most), strict=True)
        for g, change, scale in parts:
            rows = (change / scale).reshape(memory, -1)
            grams.append(rows @ rows.T)
            slopes.append(rows @ (g / scale).reshape(-1))
    gram, slope = (sum(terms[1:], terms[0]) for terms in (grams, slopes))
    square = jnp.diagonal(gram)
    valid &= square > 0
    unit = jnp.sqrt(jnp.where(valid, square, 1))
    gram = jnp.where(valid[:, None] & valid, gram / (unit[:, None] * unit), 0)
    ridge = max(_RIDGE, 10 * float(jnp.finfo(gram.dtype).eps))
    gram += jnp.diag(jnp.where(valid, jnp.asarray(ridge, gram.dtype), 1))
    rows = jnp.concatenate([gram, jnp.where(valid, slope / unit, 0)[:, None]], 1)
    for i in range(memory):
        pivot = rows[i] / rows[i, i]
        rows = (rows - rows[:, i, None] * pivot).at[i].set(pivot)
    return rows[:, -1] / unit
