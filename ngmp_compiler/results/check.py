r"""Checks: how far the surrogate is from the posterior of the model itself, by importance sampling from it.

Draws x of the surrogate q are weighed by $p(x, y) / q(x)$, with p as declared; the tail of the weights is smoothed
(`pareto`), and its shape, k-hat, says whether the weights are to be believed. Where they are, they correct evidence,
means and standard deviations. In many dimensions weights fail though every marginal be fine; then chains of the model
itself, begun at the draws, say whether these stay where they are (`drift`). Neither sees a mode that no draw is near:
for models with several, compare `ngmp.restarts`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..emit.map import Map
from ..emit.surrogate import draw, log_density
from ..pipeline import Front
from .density import computed, log_joint
from .draws import by_name
from .drift import CHAINS, FORGOTTEN, Drift
from .pareto import smooth

SHIFT, NARROW, WIDE = 0.15, 0.85, 1.15  # of means in standard deviations, and of these: what is still fine
_MANY = 30  # dimensions from which on weights may fail by their number alone
_EVEN = 0.8  # of the draws that are effective: what little the tail holds does not matter for means
_TOGETHER = 256
_TRIES = "try method=ngmp.EP(), joint= for unknowns that share a factor, integrate= for scales, or program.refine"
REFUSED = "cannot tell, whatever is drawn: "


class Check(NamedTuple):
    """What importance sampling says of a posterior."""

    khat: float  # of the tail of the weights: below 0.5 all is well, beyond 0.7 nothing below is to be believed
    ess: float  # of `draws`
    draws: int
    log_evidence: float  # corrected
    log_evidence_se: float
    means: dict[str, np.ndarray]  # corrected
    stds: dict[str, np.ndarray]
    shift: dict[str, float]  # the largest change of a mean, in standard deviations, by name
    ratio: dict[str, float]  # the standard deviation that differs most, surrogate over corrected, by name
    ok: bool
    verdict: str
    by: str = "weights"  # what means and standard deviations were corrected by: importance "weights", or "chains"

    def __repr__(self) -> str:
        found = f"khat={self.khat:.2f}, ess={self.ess:.0f} of {self.draws}, log_evidence={self.log_evidence:.3f}"
        return f"Check({found} +- {self.log_evidence_se:.3f}, ok={self.ok})\n{self.verdict}"


def log_ratios(map: Map, front: Front, leaves: Any, key: Any, count: int) -> tuple[Array, dict[str, Array]]:
    """`log p(x, y) - log q(x)` of draws, and the draws by name."""
    values = draw(map.core, leaves, key, count)
    density = log_density(map.core, leaves)

    def ratio(x: Any) -> Array:
        return log_joint(front, x) - density(x)

    found = jax.lax.map(ratio, values, batch_size=min(_TOGETHER, count))
    return found, by_name(map.plan, jax.vmap(lambda x: computed(front.groups, x))(values))


def mixed_log_ratios(
    at: Callable[[Array], tuple[Front, Map]], nodes: Any, energy: Array, key: Any, count: int
) -> tuple[Array, dict[str, Array]]:
    """The same where hyperparameters were integrated: a node is drawn by its weight, which its evidence is part of."""
    which, rest = jax.random.split(key)
    picked = jax.random.categorical(which, jnp.log(nodes.weights), shape=(count,))

    def one(x: tuple[Array, Array]) -> Any:
        key, m = x
        front, map = at(nodes.coordinates[m])
        found, draws = log_ratios(map, front, jax.tree.map(lambda a: a[m], nodes.runs.state.leaves), key, 1)
        return found[0] + nodes.runs.free_energy[m] - energy, jax.tree.map(lambda a: a[0], draws)

    found, draws = jax.lax.map(one, (jax.random.split(rest, count), picked), batch_size=min(64, count))
    return found, {name: values[picked] for name, values in nodes.values.items()} | draws


def checked(ratios: np.ndarray, draws: dict[str, np.ndarray], classes: frozenset[str], doubt: str) -> Check:
    """The verdict on draws and their log-ratios; `classes` are the names of categorical variables, and `doubt` why
    nothing can be told, if that is so."""
    count, finite = ratios.size, np.isfinite(ratios)
    if not finite.any():
        doubt = doubt or "the declared density is zero, or undefined, at every draw"
    ratios = np.where(finite, ratios, -1e30)
    found = smooth(ratios)
    weights = np.exp(found.log_weights)
    top = ratios.max()
    evidence = top + np.log(np.mean(np.exp(ratios - top)))
    se = float(np.std(np.exp(ratios - evidence)) / np.sqrt(count))
    means, stds, shift, spread = {}, {}, {}, {}
    for name, x in draws.items():
        if name in classes:
            continue
        x = np.asarray(x, float)
        means[name] = np.tensordot(weights, x, 1)
        stds[name] = np.sqrt(np.maximum(np.tensordot(weights, (x - means[name]) ** 2, 1), 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(stds[name] > 0, stds[name], 1)
            moved = np.abs(x.mean(0) - means[name]) / own
            ratio = np.where(stds[name] > 0, x.std(0) / own, 1.0)
        shift[name] = float(np.max(moved, initial=0.0))
        spread[name] = float(ratio.reshape(-1)[np.argmax(np.abs(np.log(np.maximum(ratio, 1e-12))))]) if x.size else 1.0
    dims = sum(int(np.prod(x.shape[1:])) for x in draws.values())
    off = [n for n in means if shift[n] > SHIFT + 4 / np.sqrt(found.ess) or not NARROW < spread[n] < WIDE]
    # Tails that are heavy and yet weigh next to nothing move no mean.
    verdict = _verdict(found.khat, found.ess > _EVEN * count, dims, off, shift, spread, doubt)
    ok = verdict.startswith(("reliable", "means fine"))
    return Check(found.khat, found.ess, count, float(evidence), se, means, stds, shift, spread, ok, verdict)


def failed(check: Check) -> bool:
    """Whether weights cannot tell what is wrong, or whether anything is: their second moments need a khat below 0.5."""
    return check.khat >= 0.5 and check.ess <= _EVEN * check.draws and not check.verdict.startswith(REFUSED)


def moved(check: Check, draws: dict[str, np.ndarray], found: Drift) -> Check:
    """The verdict by chains that began at the draws.

    What is off by less than the chance of 4 standard errors of the mean over chains is not seen in single elements of a
    plate; in the mean over a plate it is.
    """
    shift, spread, forgotten = {}, {}, {}
    noise = 1.5 / np.sqrt(CHAINS)  # of means in standard deviations; about that of logarithms of those
    for name, std in found.stds.items():
        own, wide = np.asarray(draws[name], float), np.where(std > 0, std, 1.0)
        off = (own.mean(0) - found.means[name]) / wide
        logs = np.log(np.maximum(own.std(0), 1e-30) / wide)
        shift[name], spread[name] = abs(_largest(off, noise)), float(np.exp(_largest(logs, noise)))
        forgotten[name] = bool(np.quantile(found.memory[name], 0.9) < FORGOTTEN)
    off = [n for n in shift if shift[n] > SHIFT or not NARROW < spread[n] < WIDE]
    unseen = [n for n in shift if not forgotten[n] and n not in off]
    named = ", ".join(_off(n, shift, spread) for n in off[:5])
    if off:
        verdict = f"do not trust {named}: `means` and `stds` of this check are corrected by chains; {_TRIES}"
    elif unseen or not found.acceptance > 0.3:
        names = ", ".join(unseen[:5]) or "anything"
        given = f"chains still remember where they began in {names}: too short to say"
        verdict = f"cannot tell: weights are unsure (khat {check.khat:.2f}), and {given}. Use program.refine"
    else:
        given = f"weights are unsure (khat {check.khat:.2f}), but chains of the model stay where the draws are"
        verdict = f"reliable: {given}"
    means, stds = dict(found.means), dict(found.stds)
    ok = verdict.startswith("reliable")
    return check._replace(means=means, stds=stds, shift=shift, ratio=spread, ok=ok, verdict=verdict, by="chains")


def _largest(x: np.ndarray, noise: float) -> float:
    """The deviation of most weight: of the elements of a plate, less what chance gives the largest of so many; or of
    their mean."""
    x = np.ravel(x)
    if x.size <= 4:
        return float(x[np.argmax(np.abs(x))]) if x.size else 0.0
    one = x[np.argmax(np.abs(x))]
    one = np.sign(one) * max(abs(one) - noise * np.sqrt(2 * np.log(x.size)), 0.0)
    half = np.sort(x)[[x.size // 10, -1 - x.size // 10]]  # a tenth of them are as far off: no chance
    half = half[np.argmax(np.abs(half))]
    half = np.sign(half) * max(abs(half) - 1.3 * noise, 0.0)
    return float(max((one, half, np.mean(x)), key=abs))


def _off(name: str, shift: dict[str, float], ratio: dict[str, float]) -> str:
    return f"{name} (mean off by {shift[name]:.2f} sd, sd {ratio[name]:.2f} of what it should be)"


def _verdict(khat: float, even: bool, dims: int, off: list[str], shift: dict, ratio: dict, doubt: str) -> str:
    """In words."""
    if doubt:
        return f"{REFUSED}{doubt}"
    named = ", ".join(_off(n, shift, ratio) for n in off[:5])
    tries = _TRIES
    if khat >= 0.7 and not even:
        if dims < _MANY:
            return f"do not trust it: the posterior has mass where the surrogate has none (khat {khat:.2f}); {tries}"
        more = f"; if the weights are right, off are {named}" if off else ""
        given = f"in {dims} dimensions weights fail (khat {khat:.2f}) even where every marginal is fine{more}"
        return f"cannot tell: {given}. Compare with program.refine"
    if off:
        return f"do not trust {named}: `means` and `stds` of this check are corrected; {tries}"
    if khat >= 0.5:
        return f"means fine, tails not: khat {khat:.2f}, quantiles far out may be off"
    return f"reliable: khat {khat:.2f}; means and standard deviations agree with those of the model itself"
