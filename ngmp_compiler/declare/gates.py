"""Gates: a site whose arguments categorical variables pick becomes one site for every different choice.

`Normal(take(m, z), precision=take(w, z))` is declared as K sites `Normal(m[k], precision=w[k])`, each of which counts
only where z = k. They are isomorphic, so rolling makes one group of them; `ngmp_kernels.factors.gated` has the factor.
Classes that pick the same arguments share a site (a change point has two, however many years there are), and several
selectors are one, with a class for every combination of theirs.
"""

import functools
from collections.abc import Hashable
from typing import Any

import numpy as np

from ngmp_kernels import Gate

from .compound import Take
from .expressions import kinds_of
from .inputs import Input, as_constant
from .variables import Variable


def gates(distribution: Any, tied: bool) -> list[Any]:
    """The distribution of every choice of the selectors, or the one that was given where no argument is gated.

    Args:
        distribution: as declared; `take` arguments that it has kernels for are left to them.
        tied: whether the outcome is latent.
    """
    taken = {k: v for k, v in distribution.arguments.items() if isinstance(v, Take)}
    if not taken:
        return [distribution]
    selectors = _selectors(taken)
    if (len(selectors) == 1 or distribution.several) and _kernel(distribution, tied):
        return [distribution]
    numbers = {key_of(z): i for i, z in enumerate(selectors)}
    axes = {a: [numbers[key_of(z)] for z in take.indices] for a, take in taken.items()}
    shape = tuple(z.plane.event_shape[0] for z in selectors)
    choices: dict[Hashable, tuple[dict[str, Any], list[int]]] = {}
    for cell, at in enumerate(np.ndindex(*shape)):
        picked = {a: _entry(take, tuple(at[i] for i in axes[a])) for a, take in taken.items()}
        key = tuple(map(key_of, picked.values()))
        choices.setdefault(key, (picked, []))[1].append(cell)
    out = []
    for picked, cells in choices.values():
        arguments = {a: picked.get(a, v) for a, v in distribution.arguments.items()}
        selector = Take(_members(shape, tuple(cells)), *selectors)
        out.append(Gate(distribution, arguments, selector, len(choices), tied))
    return out


@functools.lru_cache(4096)
def _members(shape: tuple[int, ...], cells: tuple[int, ...]) -> np.ndarray:
    """Ones at some cells of a table of zeros; the same array every time, so that sites of a loop share it."""
    table = np.zeros(shape)
    table.reshape(-1)[list(cells)] = 1.0
    return table


def _kernel(distribution: Any, tied: bool) -> bool:
    """Whether some signature takes the tables as they are."""
    kinds = kinds_of(distribution.arguments)
    if "out" in distribution.event_ndims:
        kinds["out"] = distribution.family.kind if tied else "constant"
    return any(
        set(s.arguments) == set(kinds) and all(kinds[k] in v for k, v in s.arguments.items())
        for s in distribution.signatures
    )


def _selectors(taken: dict[str, Take]) -> list[Variable]:
    """All variables that pick an argument, each once."""
    return list({key_of(z): z for take in taken.values() for z in take.indices}.values())


def key_of(entry: Any) -> Hashable:
    """What two entries that are the same share."""
    if isinstance(entry, Variable):
        frame: Any = id(entry.frame)
        if entry.picked:  # `z[idx]` twice is the same
            at = entry.frame.at
            frame = key_of(entry.frame.source), (id(at.root), at.index) if isinstance(at, Input) else id(at)
        return frame, entry.plane, entry.index.shape, entry.index.tobytes()
    return entry if isinstance(entry, float) else ("object", id(entry))


def _entry(value: Take, at: tuple[int, ...]) -> Any:
    """An entry of a table; a number stays one, so that it can be checked while compiling."""
    if value.random:
        return value.table[np.ravel_multi_index(at, tuple(z.plane.event_shape[0] for z in value.indices))]
    table = as_constant(value.table)
    return float(table[at]) if isinstance(table, np.ndarray) and table.ndim == len(at) else table[at]
