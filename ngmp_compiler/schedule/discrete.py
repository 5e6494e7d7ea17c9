"""Schedule of the categorical variables: an executor for every part of them that tables tie together.

Every part is given to the first of `registry.discrete()` that fits it at the lowest cost (`select`): a variable that
no table touches is independent; a path of variables with as many classes each is a chain; what pairwise tables tie
without loops is a tree; what repeats over time (coupled chains) is a scan over slices; a part of few variables and
cells is summed out by elimination; anything else is left to flooding, which is approximate.
`executors={"z": "flooding"}` overrides the choice for the part that z is in.
"""

import numpy as np

from ..errors import ContentsError, ModelError, Problem
from ..executors import DiscreteCore, DiscreteExecutor, DiscretePart, Ties
from ..executors.registry import discrete
from ..graph.components import Nodes, components, shapes
from ..graph.groups import FactorGroup
from ..graph.index import GivenMap
from ..graph.planes import Plane
from .select import Names, Wishes, build, default


def schedule_discrete(
    planes: dict[Plane, int], groups: list[FactorGroup], names: Names, asked: dict[str, str]
) -> list[DiscreteExecutor]:
    """The executors of all categorical variables; see the module docstring."""
    nodes, executors = Nodes(planes, [p for p in planes if p.family.core == "categorical"]), discrete()
    ties = [
        Ties(g, edge, np.stack([side.index.positions + nodes.offset[side.plane] for side in edge.sides], 1))
        for g, group in enumerate(groups)
        for edge in group.edges  # at most one
        if edge is not None and edge.plane is None and edge.family.core == "categorical"
    ]
    _check_given(ties, groups)
    _check_repeats(ties, groups)
    core = DiscreteCore(planes, nodes, ties)
    parts, lone = _parts(core)
    wishes = Wishes(nodes, names, asked, executors, "categorical", ())
    wishes.nothing(lone, ("independent",))
    chosen, known = [], {}  # parts of equal shape are judged once
    for part in parts:
        executor = wishes.choose(part, {})
        part.asked = executor is not None
        if executor is None and part.signature not in known:
            known[part.signature] = default(part, executors)
        chosen.append((part, executor or known[part.signature]))
    wishes.raise_all()
    for positions in nodes.split(lone).items():
        at = positions[1] + nodes.offset[positions[0]]
        part = DiscretePart(core, at, None, [], False, lone=True)
        chosen.append((part, default(part, executors)))
    return [executor for executor, _ in build(chosen, executors)]


def _check_given(ties: list[Ties], groups: list[FactorGroup]) -> None:
    given = [t for t in ties if any(isinstance(side.index, GivenMap) for side in t.edge.sides)]
    what = "which categorical variables its tables tie is an input of the model"
    works = "close over the index, or call the program outside of jit: it is then compiled for its contents"
    if given:
        places = {side.index.place for t in given for side in t.edge.sides if isinstance(side.index, GivenMap)}
        raise ContentsError([Problem(groups[t.group].given.name, None, what, works) for t in given], places)


def _check_repeats(ties: list[Ties], groups: list[FactorGroup]) -> None:
    problems = []
    for tie in ties:
        ordered = np.sort(tie.ends, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            what, works = "one variable stands in two places of its table", "take the diagonal of the table instead"
            problems.append(Problem(groups[tie.group].given.name, None, what, works))
    if problems:
        raise ModelError(problems)


def _parts(core: DiscreteCore) -> tuple[list[DiscretePart], np.ndarray]:
    """The connected parts of more than one variable, and the variables on their own."""
    nodes, ties = core.nodes, core.ties
    pairs = [t.ends[:, [0, j]] for t in ties for j in range(1, t.ends.shape[1])]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    count = np.bincount(found.label, minlength=found.count)
    edges = np.bincount(found.label[found.edges[:, 0]], minlength=found.count)
    wide = np.zeros(found.count, bool)
    sorted_rows = []
    for t in ties:
        label = found.label[t.ends[:, 0]]
        wide[label] |= t.ends.shape[1] > 2
        order = np.argsort(label, kind="stable")
        sorted_rows.append((order, np.searchsorted(label[order], np.arange(found.count + 1))))
    out = []
    for shape in shapes(found):
        c = found.label[shape.nodes[0]]
        rows = [order[start[c] : start[c + 1]] for order, start in sorted_rows]
        loops = bool(wide[c] or edges[c] >= count[c])
        out.append(DiscretePart(core, shape.nodes, None if loops else shape.path, rows, loops))
    return out, np.flatnonzero(count[found.label] == 1)
