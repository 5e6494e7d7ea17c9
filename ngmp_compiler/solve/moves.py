"""Moves: how far a step takes the marginals, row by row, and how far it may."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import AbstractFamily, MvGaussian

_ROUNDING = 8.0  # rounding units of a location that count as no move
_BLURRED = 0.03  # standard deviations that rounding may take the mean of a vector, and part of a variance

Places = dict[str, tuple[Array, Array]]


class Moves(NamedTuple):
    """How far the marginals moved, for every block of the schedule, when its last step was tried."""

    distance: Float[Array, " blocks"]  # in standard deviations, of the marginal that moved farthest
    whole: Bool[Array, " blocks"]  # whether that step was undamped
    wanted: Bool[Array, " blocks"]  # whether the next one is to be
    next: Bool[Array, " blocks"]  # whether it is
    lag: Float[Array, " blocks"]  # how much farther undamped steps were seen to go than the damped ones before them

    def seen(self, block: int, distance: Array, tol: float) -> "Moves":
        """After a step of a block has moved the marginals by `distance`."""
        before, whole = self.distance[block], self.next[block]
        # At the pace of the last two steps, and with the lag of a damped one, would a whole step move less than tol?
        pace = jnp.minimum(distance / before, 1.0)
        # A lag is forgotten in time, or one bad surprise would keep a run from ending.
        lag = jnp.maximum(0.5 * self.lag[block], 1.0)
        longer = jnp.where(whole & (distance > tol), jnp.maximum(distance / before, lag), lag)
        wanted = jnp.isfinite(before) & (distance * pace * longer <= tol)
        return Moves(
            self.distance.at[block].set(distance), self.whole.at[block].set(whole), self.wanted.at[block].set(wanted),
            self.next, self.lag.at[block].set(longer),
        )  # fmt: skip


class Watch(NamedTuple):
    """Whether a run gets anywhere: the smallest moves in the present window of sweeps and in the one before."""

    now: Float[Array, ""]
    before: Float[Array, ""]


def places_of(edges: dict[str, AbstractFamily]) -> Places:
    """Location and squared scale of every marginal."""
    return {key: q.location_scale() for key, q in edges.items()}


def moves_of(before: Places, after: Places) -> dict[str, Float[Array, " n"]]:
    """By leaf, the square of the move of a location in units of its scale, or of a squared scale in units of itself."""
    found = {}
    for key, (location, square) in after.items():
        old_location, old_square = before[key]
        noise = _ROUNDING * jnp.finfo(location.dtype).eps * jnp.abs(location)
        shift = jnp.maximum(jnp.abs(location - old_location) - noise, 0.0)
        weight = 1 / jnp.maximum(old_square, jnp.finfo(square.dtype).tiny)  # a marginal that turns flat has moved far
        ratio = jnp.maximum(shift**2 * weight, ((square - old_square) * weight) ** 2)
        found[key] = jnp.max(ratio, axis=tuple(range(1, ratio.ndim)))
    return found


def largest(moves: dict[str, Float[Array, " n"]]) -> Float[Array, ""]:
    """The largest of all moves."""
    return jnp.sqrt(jnp.max(jnp.stack([jnp.zeros(()), *(jnp.max(x, initial=0.0) for x in moves.values())])))


def within(marginal: AbstractFamily, step: AbstractFamily) -> AbstractFamily:
    """The part of a step, row by row, that leaves a quarter of the precision (concentration, rate) of its marginal.

    What a row does to its own marginal is bounded, whatever the others do: a row that turns nearly flat runs off.
    """
    part = jnp.ones(step.batch_shape, step.dtype)
    for before, after in zip(marginal.slack(), (marginal + step).slack(), strict=True):
        lost = before - after
        room = jnp.where(lost > 0.75 * before, 0.75 * before / jnp.where(lost > 0, lost, 1.0), 1.0)
        part = jnp.minimum(part, jnp.min(room, axis=tuple(range(part.ndim, room.ndim))))
    return step * part


def broadens(step: AbstractFamily) -> Bool[Array, " n"]:
    """Whether a step makes its marginal broader, row by row."""
    rows = jnp.zeros(step.batch_shape, bool)
    for before, after in zip((0 * step).slack(), step.slack(), strict=True):
        rows |= jnp.any(after < before, axis=tuple(range(rows.ndim, after.ndim)))
    return rows


def blurred(q: AbstractFamily) -> Bool[Array, ""]:
    r"""Whether rounding alone takes the mean of a vector, $m = P^{-1} \xi$, away by a part of its standard deviations,
    or a variance by that part of itself.

    With rounding units $\epsilon$ of the terms of $P m = \xi$, each on its own, the Mahalanobis norm of the error is
    about $\epsilon \, (\sum_j v_j \, (|P| |m|)_j^2)^{1/2}$; less than what rounding makes of the mean itself counts as
    nothing. Rounding units of the entries of P change the variance, $v_j = C_{jj}$ with $C = P^{-1}$, by about
    $\epsilon \, (\sum_{ik} (C_{ji} P_{ik} C_{kj})^2)^{1/2}$. Only single precision is looked at.
    """
    if not isinstance(q, MvGaussian) or q.dtype != jnp.float32:
        return jnp.asarray(False)
    unit, mean, variance = jnp.finfo(q.dtype).eps, jnp.abs(q.mean), q.variance
    terms = jnp.einsum("...ij,...j->...i", jnp.abs(q.precision), mean)
    error = unit * jnp.sqrt(jnp.sum(variance * terms**2, -1))
    written = _ROUNDING * unit * jnp.max(mean / jnp.sqrt(variance), -1)
    scale = jnp.sqrt(variance)
    scale = scale[..., :, None] * scale[..., None, :]  # in units of standard deviations no square overflows
    ties, precision = (q.covariance / scale) ** 2, (q.precision * scale) ** 2
    spread = unit * jnp.sqrt(jnp.max(jnp.sum(ties * (precision @ ties), -2), -1))
    return jnp.any((error > _BLURRED + written) | (spread > _BLURRED))
