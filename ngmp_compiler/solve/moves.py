"""Moves: how far a step takes the marginals, row by row, and how far it may."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import AbstractFamily

from .flat import Flat

_ROUNDING = 8.0  # rounding units of a location that count as no move
_AHEAD = 100.0  # times tol: how far the fixed point may be, where every sweep comes only little nearer
_LEAPT = 0.1  # part of a step by mixing that may be left of the way after it
_NOTHING = 64.0  # rounding units of a standard deviation: how often such steps follow each other says nothing
_LONGEST = 1e4  # lag, and way of steps that do not shrink
_LONGEST_WAY = 1e8  # in steps
_FORGETS = 0.99  # what is left of such a way in every sweep

Places = dict[str, tuple[Array, Array]]


class Moves(NamedTuple):
    """How far the marginals moved, for every block of the schedule, when its last step was tried."""

    distance: Float[Array, " blocks"]  # in standard deviations, of the marginal that moved farthest
    whole: Bool[Array, " blocks"]  # whether that step was undamped
    wanted: Bool[Array, " blocks"]  # whether the next one is to be
    next: Bool[Array, " blocks"]  # whether it is
    lag: Float[Array, " blocks"]  # how much farther undamped steps were seen to go than the damped ones before them
    ahead: Float[Array, " blocks"]  # how far the fixed point still is, by the last three steps
    earlier: Float[Array, " blocks"]  # the distance of the step before
    reach: Float[Array, " blocks"]  # how many times farther than the steps before it one by mixing has gone, of late

    def seen(self, block: int, distance: Array, tol: float) -> "Moves":
        r"""After a step of a block has moved the marginals by `distance`.

        Where one step is $\rho$ times the one before it, all that follow add up to $d \rho / (1 - \rho)$; steps may
        alternate, so three are looked at. After one that was not whole, perhaps a leap by mixing, a tenth of it may be
        left, too. A leap of r times the step before it has found $1 / (1 - \rho) \ge r$, of a way on which steps are so
        small beside the others that these hide it; so for a while r times the distance counts as left.
        """
        before, whole = self.distance[block], self.next[block]
        slow = jnp.maximum(distance / before, jnp.sqrt(distance / self.earlier[block]))
        # Where they do not shrink, so many are taken to follow: the rounding of long chains is steps of that kind.
        left = distance * jnp.where(slow < 1, slow / (1 - slow), _LONGEST)
        left = jnp.where(self.whole[block], left, jnp.maximum(left, _LEAPT * before))
        left = jnp.where(distance > _NOTHING * jnp.finfo(self.lag.dtype).eps, left, 0.0)
        leap = distance / jnp.minimum(before, self.earlier[block])
        leap = jnp.where(whole | ~jnp.isfinite(leap), 1.0, jnp.minimum(leap, _LONGEST_WAY))
        reach = jnp.maximum(_FORGETS * self.reach[block], leap)
        left = jnp.maximum(left, distance * reach)
        # At the pace of the last two steps, and with the lag of a damped one, would a whole step move less than tol?
        pace = jnp.where(before > 0, jnp.minimum(distance / before, 1.0), 1.0)
        # A lag is forgotten in time, or one bad surprise would keep a run from ending.
        lag = jnp.maximum(0.5 * self.lag[block], 1.0)
        longer = jnp.where(whole & (distance > tol), jnp.maximum(distance / before, lag), lag)
        longer = jnp.where(whole & (distance <= tol), jnp.clip(left / (_AHEAD * tol), lag, _LONGEST), longer)
        wanted = jnp.isfinite(before) & (distance * pace * longer <= tol)
        return Moves(
            put(self.distance, block, distance), put(self.whole, block, whole), put(self.wanted, block, wanted),
            self.next, put(self.lag, block, longer), put(self.ahead, block, left), put(self.earlier, block, before),
            put(self.reach, block, reach),
        )  # fmt: skip

    def small(self, tol: float) -> Bool[Array, " blocks"]:
        """Whether the last steps were whole, have moved nothing by more than tol, and lead nowhere far."""
        return self.whole & (self.distance <= tol) & (self.ahead <= _AHEAD * tol)


def put(values: Array, block: int, value: Array) -> Array:
    """Values with another one for a block: unlike an update at an index, a part of the kernel around it."""
    return jnp.where(np.arange(len(values)) == block, value, values)


def places_of(edges: dict[str, AbstractFamily]) -> Places:
    """Location and squared scale of every marginal."""
    return {key: q.location_scale() for key, q in edges.items()}


def moved_by(before: Places, after: Places) -> Float[Array, ""]:
    """The largest move of a location in units of its scale, or of a squared scale in units of itself."""
    locations = {key: location for key, (location, _) in after.items() if location.size}
    flat = Flat.of(locations)
    pairs = [{key: jnp.broadcast_arrays(*places[key]) for key in locations} for places in (before, after)]
    parts = map(flat.pack, [{key: x[i] for key, x in each.items()} for each in pairs for i in (0, 1)])
    found = [jnp.zeros(())]
    for old_location, old_square, location, square in zip(*parts, strict=True):
        noise = _ROUNDING * jnp.finfo(location.dtype).eps * jnp.abs(location)
        shift = jnp.maximum(jnp.abs(location - old_location) - noise, 0.0)
        weight = 1 / jnp.maximum(old_square, jnp.finfo(square.dtype).tiny)  # a marginal that turns flat has moved far
        found.append(jnp.max(jnp.maximum(shift**2 * weight, ((square - old_square) * weight) ** 2)))
    return jnp.sqrt(jnp.max(jnp.stack(found)))


def within(marginal: AbstractFamily, step: AbstractFamily) -> AbstractFamily:
    """The part of a step, row by row, that leaves a quarter of the precision (concentration, rate) of its marginal.

    What a row does to its own marginal is bounded, whatever the others do: a row that turns nearly flat runs off.
    """
    return step * room(marginal, step)


def room(marginal: AbstractFamily, step: AbstractFamily) -> Float[Array, " n"]:
    """How much of a step that is, at most one."""
    part = jnp.ones(step.batch_shape, step.dtype)
    for before, after in zip(marginal.slack(), (marginal + step).slack(), strict=True):
        lost = before - after
        left = jnp.where(lost > 0.75 * before, 0.75 * before / jnp.where(lost > 0, lost, 1.0), 1.0)
        part = jnp.minimum(part, jnp.min(left, axis=tuple(range(part.ndim, left.ndim))))
    return part


def broadens(step: AbstractFamily) -> Bool[Array, " n"]:
    """Whether a step makes its marginal broader, row by row."""
    rows = jnp.zeros(step.batch_shape, bool)
    for before, after in zip((0 * step).slack(), step.slack(), strict=True):
        rows |= jnp.any(after < before, axis=tuple(range(rows.ndim, after.ndim)))
    return rows
