"""Gates: a site whose arguments a categorical variable picks becomes one site for every class.

`Normal(take(m, z), precision=take(w, z))` is declared as K sites `Normal(m[k], precision=w[k])`, each of which counts
only where z = k. They are isomorphic, so rolling makes one group of them; see `ngmp_kernels.gated` for the factor.
"""

from typing import Any

import numpy as np

from ngmp_kernels import Gate

from ._expressions import Take, Variable
from ._frame import refuse
from ._inputs import as_constant


def gates(name: str, distribution: Any, tied: bool) -> list[Any]:
    """The distribution of every class of a selector, or the one that was given where no argument is gated.

    Args:
        name: the site, for messages.
        distribution: as declared; `take` arguments that it has kernels for are left to them.
        tied: whether the outcome is latent.
    """
    taken = {k: v for k, v in distribution.arguments.items() if isinstance(v, Take)}
    if not taken:
        return [distribution]
    kernel = _kernel(distribution, tied)
    if kernel and len(taken) == 1:  # tables with several indices among them
        return [distribution]
    selector = _selector(name, taken)
    if kernel:
        return [distribution]
    classes = selector.plane.event_shape[0]
    out = []
    for k in range(classes):
        arguments = {a: _entry(taken[a], k) if a in taken else v for a, v in distribution.arguments.items()}
        out.append(Gate(distribution, {**arguments, "selector": selector}, k, classes, tied))
    return out


def _kernel(distribution: Any, tied: bool) -> bool:
    """Whether some signature takes the tables as they are."""
    kinds = {k: _kind(v) for k, v in distribution.arguments.items()}
    if "out" in distribution.event_ndims:
        kinds["out"] = distribution.family.kind if tied else "constant"
    return any(
        set(s.arguments) == set(kinds) and all(kinds[k] in v for k, v in s.arguments.items())
        for s in distribution.signatures
    )


def _kind(value: Any) -> str:
    from ._type import kind  # that pass comes later, and imports this one

    if isinstance(value, Take) and value.random and not isinstance(value.table[0], Variable):
        return "take(expression)"
    return kind(value)


def _selector(name: str, taken: dict[str, Take]) -> Variable:
    """The variable that picks every argument; there must be only one."""
    indices = [(argument, index) for argument, value in taken.items() for index in value.indices]
    first: Variable = indices[0][1]
    for argument, index in indices[1:]:
        same = (index.frame, index.plane) == (first.frame, first.plane) and np.array_equal(index.index, first.index)
        if not same or len(taken[argument].indices) > 1:
            listed = " and ".join(f"{a}=take(..., {i!r})" for a, i in indices)
            works = "one selector picks all of them; join two selectors to one variable with a class for every pair"
            refuse(name, f"argument {argument}", f"several selectors in one site: {listed}", works)
    return first


def _entry(value: Take, k: int) -> Any:
    """The k-th entry of a table; a number stays one, so that it can be checked while compiling."""
    if value.random:
        return value.table[k]
    table = as_constant(value.table)
    return float(table[k]) if isinstance(table, np.ndarray) and table.ndim == 1 else table[k]
