"""The default step: damping, and Anderson mixing where that is slow; in natural coordinates, safeguarded."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..emit.rules import select
from .adaptive import Damped, secant_rate
from .stacks import Layout, Stack, scaled, scales
from .step import AbstractStep, Blamed, Memory

_AFTER = 10  # sweeps that the default solver only damps: what is done by then needs no more
_LOCAL = 0.1  # relative residual, of the worst coordinate, below which the map counts as nearly affine
_GROWTH = 2.0  # of the residual in one sweep, beyond which the history is not believed
_RIDGE = 1e-10  # relative to the squared norms of the differences
_FIRST_REST, _LONGEST_REST = 4, 64  # sweeps without mixing after it has failed: twice as many every time


class AndersonState(Memory):
    """The damping of every leaf; some points before and their residuals, how many of them count; when to mix."""

    damping: list[Float[Array, " rows"]]  # along the stacks
    points: list[Stack]  # with an axis of length `memory` in front, written in turn
    residuals: list[Stack]
    counts: Int[Array, "4"]  # see the properties
    size: Float[Array, ""]  # the square of the newest residual
    mixes: Bool[Array, ""]
    layout: Layout = eqx.field(static=True)

    @property
    def slot(self) -> Int[Array, ""]:
        """Where the next point is written."""
        return self.counts[0]

    @property
    def count(self) -> Int[Array, ""]:
        """How many points there are."""
        return self.counts[1]

    @property
    def wait(self) -> Int[Array, ""]:
        """Sweeps until mixing begins."""
        return self.counts[2]

    @property
    def rest(self) -> Int[Array, ""]:
        """How many there will be when it fails."""
        return self.counts[3]

    @property
    def rate(self) -> dict[str, Float[Array, " n"]]:
        """The damping by leaf."""
        return self.layout.by_leaf(self.damping)

    def damped(self) -> "AndersonState":
        """For a block that is not to mix: damping alone."""
        return dataclasses.replace(self, mixes=jnp.zeros_like(self.mixes))

    def forgetful(self, when: Array) -> "AndersonState":
        """Without the points before."""
        return dataclasses.replace(self, counts=jnp.where(when, self.counts * np.array([0, 0, 1, 1]), self.counts))

    def failed(self, when: Array) -> "AndersonState":
        """Points before are forgotten; if there was mixing, there is none for a while, and longer the next time."""
        longer = jnp.minimum(2 * self.rest, _LONGEST_REST)
        rested = jnp.stack([self.slot, self.count, self.rest, longer])
        counts = jnp.where(when & (self.wait == 0), rested, self.counts)
        return dataclasses.replace(self, counts=counts).forgetful(when)

    def refused(self, blamed: Blamed, written: Any) -> "AndersonState":
        """After a step that was not accepted: the rates of the rows to blame halved, and the history dropped."""
        rows = zip(self.layout.rows(blamed), self.damping, strict=True)
        # What was written is not read. Kept as it is, no copy of the whole is made in every sweep to choose from.
        return dataclasses.replace(
            self.failed(jnp.asarray(True)), size=jnp.full_like(self.size, jnp.inf), points=written.points,
            residuals=written.residuals, damping=[jnp.where(own, 0.5 * a, a) for own, a in rows],
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
        layout = Layout.of(params)
        stacks = layout.stack(params)
        history = jax.tree.map(lambda x: jnp.zeros((self.memory, *x.shape), x.dtype), stacks)
        dtype = jnp.result_type(*(jax.tree.leaves(stacks) or [jnp.float32]))  # of nothing: the narrowest
        rates = [jnp.ones(x.batch_shape, x.dtype) for x in stacks]
        counts = jnp.asarray([0, 0, self.after, _FIRST_REST])
        return AndersonState(rates, history, history, counts, jnp.asarray(jnp.inf, dtype), jnp.asarray(True), layout)

    def update(self, updates: Any, state: AndersonState, params: Any = None) -> tuple[Any, AndersonState]:
        if params is None:
            raise ValueError("anderson needs the natural parameters: call update(gradients, state, params)")
        steps, memory = self.advance(state.layout, state.layout.stack(updates), state, state.layout.stack(params), None)
        return state.layout.unstack(steps, updates), memory

    def advance(
        self, layout: Layout, gradient: list[Stack], state: AndersonState, eta: list[Stack], like: Any
    ) -> tuple[list[Stack], AndersonState]:
        rate = self._rate(gradient, state, eta)
        size = _size(eta, gradient).astype(state.size.dtype)
        sound = ~(size > _GROWTH**2 * state.size)
        ready = state.mixes & sound & (state.wait == 0) & (state.count >= min(2, self.memory))
        near = _is_local(eta, gradient) if self.cautious else jnp.asarray(True)
        steps = jax.lax.cond(
            ready & near,
            lambda: self._mixed(gradient, state, eta, rate),
            lambda: [_damped(g, a) for g, a in zip(gradient, rate, strict=True)],
        )
        state = state.failed(~sound).forgetful(~near)
        points, residuals = (
            jax.tree.map(lambda x, old: jax.lax.dynamic_update_index_in_dim(old, x, state.slot, 0), *pair)
            for pair in ((eta, state.points), (gradient, state.residuals))
        )
        count, slot = jnp.minimum(state.count + 1, self.memory), (state.slot + 1) % self.memory
        counts = jnp.stack([slot, count, jnp.maximum(state.wait - 1, 0), state.rest])
        written = AndersonState(rate, points, residuals, counts, size, state.mixes, state.layout)
        return steps, written

    def _rate(self, gradient: list[Stack], state: AndersonState, eta: list[Stack]) -> list[Array]:
        """The damping of every element, from its last move and what that made of its residual."""
        newest = (state.slot - 1) % self.memory
        before, last = (jax.tree.map(lambda x: x[newest], h) for h in (state.points, state.residuals))
        move = jax.tree.map(lambda x, old: jnp.where(state.count > 0, x - old, 0), eta, before)
        return [
            secant_rate(*stack, least=self.least, cut=self.cut, grow=self.grow)
            for stack in zip(gradient, last, move, state.damping, eta, strict=True)
        ]

    def _mixed(self, gradient: list[Stack], state: AndersonState, eta: list[Stack], rate: list[Array]) -> list[Stack]:
        """The step of `anderson`."""
        number = jnp.arange(self.memory)
        latest, known = number == (state.slot - 1) % self.memory, number < state.count
        moves, changes = (
            jax.tree.map(lambda x, old: _differences(x, old, latest, known), *pair)
            for pair in ((eta, state.points), (gradient, state.residuals))
        )
        mix = _weights(eta, gradient, changes, known)
        jump, explained = (jax.tree.map(lambda x: jnp.tensordot(mix, x, 1), d) for d in (moves, changes))
        rest = jax.tree.map(jnp.subtract, gradient, explained)
        damped = [_damped(r, a) for r, a in zip(rest, rate, strict=True)]
        mixed = jax.tree.map(jnp.subtract, damped, jump)
        return [_onward(*stack) for stack in zip(mixed, gradient, rate, eta, strict=True)]


def _damped(gradient: Stack, rate: Float[Array, " rows"]) -> Stack:
    return jax.tree.map(jnp.negative, scaled(gradient, rate))


def _onward(step: Stack, gradient: Stack, rate: Float[Array, " rows"], eta: Stack) -> Stack:
    """A mixed step; for elements that it takes away from their targets, thrice as far as these are, the damped one.

    A precision that grows by a part of itself in every sweep, on a long way, has a secant through zero behind it.
    """
    along, longer = jnp.zeros_like(rate), jnp.zeros_like(rate)
    for s, g, scale in zip(step.natural, gradient.natural, scales(eta, gradient), strict=True):
        event, s, g = tuple(range(rate.ndim, s.ndim)), s / scale, g / scale
        along, longer = along - jnp.sum(s * g, event), longer + jnp.sum(s * s - 9 * g * g, event)
    return select((along >= 0) | (longer <= 0), step, _damped(gradient, rate))


def _differences(x: Array, old: Float[Array, "m ..."], latest: Array, known: Array) -> Float[Array, "m ..."]:
    """What followed each known point minus that point: the next in the circle, or after the latest one `x`."""
    latest, known = (rows.reshape(-1, *(1,) * x.ndim) for rows in (latest, known))
    return jnp.where(known, jnp.where(latest, x, jnp.roll(old, -1, 0)) - old, 0)


def _size(params: list[Stack], gradient: list[Stack]) -> Float[Array, ""]:
    """The squared norm of a residual, every coordinate relative to its own size."""
    found = [jnp.zeros(())]
    for eta, residual in zip(params, gradient, strict=True):
        for g, scale in zip(residual.natural, scales(eta, residual), strict=True):
            found.append(jnp.sum((g / scale) ** 2))
    return sum(found[1:], found[0])


def _is_local(params: list[Stack], gradient: list[Stack]) -> Bool[Array, ""]:
    """Whether the residual of every natural parameter is a small part of it."""
    local = jnp.asarray(True)
    for eta, residual in zip(params, gradient, strict=True):
        # An element that says next to nothing, such as a masked one, has no say here either.
        target = [x - g for x, g in zip(eta.natural, residual.natural, strict=True)]
        elements = sum(x.size for x in target)
        least = 1e-6 * jnp.sqrt(sum(jnp.vdot(x, x) for x in target) / max(elements, 1))
        for g, scale in zip(residual.natural, scales(eta, residual), strict=True):
            local &= jnp.all(jnp.abs(g) <= _LOCAL * (scale + least))
    return local


def _weights(
    params: list[Stack], gradient: list[Stack], changes: list[Stack], valid: Bool[Array, " m"]
) -> Float[Array, " m"]:
    """Least squares: the combination of the valid changes that is closest to the residual.

    The normal equations, in units of the changes, have a ridge, so elimination needs no pivots. It is written out: a
    LAPACK call would cost more than all of it.
    """
    memory, grams, slopes = len(valid), [], []
    for eta, residual, change in zip(params, gradient, changes, strict=True):
        # An element that is zero now has no size but that of its changes.
        most = jax.tree.map(lambda x: jnp.max(jnp.abs(x), 0), change)
        for g, d, scale in zip(residual.natural, change.natural, scales(eta, residual, most), strict=True):
            rows = (d / scale).reshape(memory, -1)
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

    def eliminate(i: Array, rows: Array) -> Array:
        pivot = rows[i] / rows[i, i]
        return (rows - rows[:, i, None] * pivot).at[i].set(pivot)

    return jax.lax.fori_loop(0, memory, eliminate, rows)[:, -1] / unit
