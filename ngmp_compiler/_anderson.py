"""Anderson acceleration in natural coordinates, safeguarded, as an optax transformation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import AbstractFamily

from ._adaptive import halved, scales, secant_rate

_LOCAL = 0.1  # relative residual, of the worst coordinate, below which the map counts as nearly affine
_GROWTH = 2.0  # of the residual in one sweep, beyond which the history is not believed
_RIDGE = 1e-6  # relative to the squared norms of the differences


class AndersonState(NamedTuple):
    """The damping of every leaf; the points before, newest first, and their residuals; how many of them count."""

    rate: Any
    points: Any  # as the leaves, with an axis of length `memory` in front
    residuals: Any
    count: Int[Array, ""]
    size: Float[Array, ""]  # the square of the newest residual
    mixes: Bool[Array, ""]

    def damped(self) -> "AndersonState":
        """For a block that is not to mix: the steps of `adaptive`."""
        return self._replace(mixes=jnp.zeros_like(self.mixes))

    def refused(self, blamed: dict[str, Bool[Array, " n"]]) -> "AndersonState":
        """After a step that was not accepted: the rates of the rows to blame halved, and the history dropped."""
        nothing = {"count": jnp.zeros_like(self.count), "size": jnp.full_like(self.size, jnp.inf)}
        return self._replace(rate=halved(self.rate, blamed), **nothing)


def anderson(memory: int = 5, cautious: bool = True) -> optax.GradientTransformation:
    r"""Anderson acceleration of the default solver, `adaptive`: fewer sweeps, to the same fixed point.

    With residuals $r_t = \eta_t - \eta^*(\eta_t)$, and the differences $\Delta x_j$ and $\Delta r_j$ between the last
    `memory` + 1 points and between their residuals,

    $$ \gamma = \arg\min_\gamma \| r_t - \textstyle\sum_j \gamma_j \Delta r_j \|^2, \qquad
       \eta_{t+1} = \eta_t - \textstyle\sum_j \gamma_j \Delta x_j - \alpha \circ (r_t - \sum_j \gamma_j \Delta r_j), $$

    where the rates $\alpha$, one for every element of a leaf, are those of `adaptive`: what the weights do not explain
    is damped as it would be without them. The norm is Euclidean over a leaf, relative to
    its target, and the small system has a ridge of 1e-6 times its diagonal.

    A secant is worth something only where the map is nearly affine, so mixing is safeguarded. There is none until
    the residual of *every* natural parameter is below a tenth of it (until then the steps are those of `adaptive`),
    nor before two differences are there. If the residual has more than doubled in a sweep, or a proposal was refused,
    all points before are forgotten.

    In a schedule of several blocks only the last one mixes.

    It keeps 2 `memory` arrays of the size of the leaves, besides the rates, where `adaptive` keeps one, and reads them
    all in a sweep. Where a sweep itself is only a few passes over the leaves, as for a chain of counts, that costs as
    much as the sweep, so this is not the default; where convergence is slow, as in hierarchies, it pays.

    Args:
        memory: how many points before the current one are used; at least 1.
        cautious: whether to wait until every residual is small. A run that has not got there will not either.
    """
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer):
        raise TypeError(f"anderson(memory={memory!r}): give a whole number of points, such as 5")
    if memory < 1:
        raise ValueError(f"anderson(memory={memory}): memory must be at least 1; ngmp.adaptive() uses none")

    def init(params: Any) -> AndersonState:
        rate = _each(lambda q: jnp.ones(q.batch_shape, q.dtype), params)
        history = jax.tree.map(lambda x: jnp.zeros((memory, *x.shape), x.dtype), params)
        dtype = jnp.result_type(*(jax.tree.leaves(params) or [float]))
        size = jnp.asarray(jnp.inf, dtype)
        return AndersonState(rate, history, history, jnp.asarray(0), size, jnp.asarray(True))

    def update(updates: Any, state: AndersonState, params: Any = None) -> tuple[Any, AndersonState]:
        if params is None:
            raise ValueError("anderson needs the natural parameters: call update(gradients, state, params)")
        before, last = (jax.tree.map(lambda x: x[0], h) for h in (state.points, state.residuals))
        move = jax.tree.map(lambda x, old: jnp.where(state.count > 0, x - old, 0), params, before)
        rate = _each(secant_rate, updates, last, move, state.rate, params)

        weight = _each(lambda eta, g: 1 / (_square(eta - g) + jnp.finfo(g.dtype).tiny), params, updates)
        size = sum((w * _square(updates[k]) for k, w in weight.items()), jnp.zeros_like(state.size))
        sound = (_is_local(params, updates) if cautious else jnp.asarray(True)) & ~(size > _GROWTH**2 * state.size)
        points, residuals = (
            jax.tree.map(lambda x, old: jnp.concatenate([x[None], old[:-1]]), *pair)
            for pair in ((params, state.points), (updates, state.residuals))
        )

        def mixed() -> Any:
            # Each point is where the one before it was: the history minus the old one is all differences.
            moves = jax.tree.map(jnp.subtract, points, state.points)
            changes = jax.tree.map(jnp.subtract, residuals, state.residuals)
            mix = _weights(weight, updates, changes, jnp.arange(memory) < state.count)
            jump, known = (jax.tree.map(lambda x: jnp.tensordot(mix, x, 1), d) for d in (moves, changes))
            return _each(lambda j, g, k, a: -(j + (g - k) * a), jump, updates, known, rate)

        ready = state.mixes & sound & (state.count >= min(2, memory))
        steps = jax.lax.cond(ready, mixed, lambda: _each(lambda g, a: -(g * a), updates, rate))
        count = jnp.minimum(jnp.where(sound, state.count, 0) + 1, memory)
        return steps, AndersonState(rate, points, residuals, count, size, state.mixes)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _each(function: Any, *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, AbstractFamily))


def _square(eta: AbstractFamily) -> Float[Array, ""]:
    """The squared Euclidean norm over all elements of a leaf."""
    squares = [jnp.vdot(x, x) for x in eta.natural]
    return sum(squares[1:], squares[0])


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


def _weights(weight: Any, gradient: Any, changes: Any, valid: Bool[Array, " m"]) -> Float[Array, " m"]:
    """Least squares: the combination of the valid changes that is closest to the residual.

    The normal equations, in units of the changes, have a ridge, so elimination needs no pivots. It is written out: a
    LAPACK call would cost more than all of it.
    """
    memory, grams, slopes = len(valid), [], []
    for key, w in weight.items():
        for g, change in zip(gradient[key].natural, changes[key].natural, strict=True):
            rows = change.reshape(memory, -1)
            grams.append(w * (rows @ rows.T))
            slopes.append(w * (rows @ g.reshape(-1)))
    gram, slope = (sum(terms[1:], terms[0]) for terms in (grams, slopes))
    square = jnp.diagonal(gram)
    valid &= square > 0
    unit = jnp.sqrt(jnp.where(valid, square, 1))
    gram = jnp.where(valid[:, None] & valid, gram / (unit[:, None] * unit), 0)
    gram += jnp.diag(jnp.where(valid, jnp.asarray(_RIDGE, gram.dtype), 1))
    rows = jnp.concatenate([gram, jnp.where(valid, slope / unit, 0)[:, None]], 1)
    for i in range(memory):
        pivot = rows[i] / rows[i, i]
        rows = (rows - rows[:, i, None] * pivot).at[i].set(pivot)
    return rows[:, -1] / unit
