"""Which items of a drawing stand together in a plate, which plates stand inside others, and where all of it goes.

Items that belong to each other element by element share a *block*, framed as a plate when it is repeated. A block
stands inside another where each of its elements belongs to one of that one, the same number to each.
"""

from typing import NamedTuple

import numpy as np

from ..schedule.choose import Plan
from .diagram import Item, Touch
from .layout import Id, Point, acyclic, lay_out


class Plates(NamedTuple):
    """The stack of every item (a factor over what it declares or observes), its block, and the block around a block."""

    stack: dict[Id, Id]
    block: dict[Id, Id]
    around: dict[Id, Id]

    def path(self, item: Id) -> list[Id]:
        """The blocks of an item, the outermost first."""
        out = [self.block[item]]
        while out[0] in self.around:
            out.insert(0, self.around[out[0]])
        return out

    def levels(self) -> list[dict[Id, Id]]:
        """What every item belongs to, from the item itself to the whole: what `lay_out` places one after the other."""
        paths = {k: self.path(k) for k in self.block}
        out = [{k: k for k in paths}, self.stack]
        for depth in range(max(map(len, paths.values()), default=0) - 1, -1, -1):
            out.append({k: ("block", p[depth]) if depth < len(p) else self.stack[k] for k, p in paths.items()})
        return [*out, dict.fromkeys(paths, ("all", None))]


def find_plates(items: dict[Id, Item], touches: list[Touch], shared: bool, nested: bool) -> Plates:
    """Which items stand together. If `shared`, all that are tied one to one, else only what a factor declares."""
    stack, block = {k: k for k in items}, {k: k for k in items}

    def join(group: dict[Id, Id], a: Id, b: Id) -> None:
        old, new = group[a], group[b]
        group.update({k: new for k, v in group.items() if v == old})

    for kind, g in items:
        if kind == "data":
            join(stack, ("data", g), ("factor", g))
            join(block, ("data", g), ("factor", g))
    chains = {(t.g, t.name) for t in touches if t.chain}
    for t in touches:
        a, b = ("factor", t.g), ("variable", t.name)
        if (t.g, t.name) in chains or (t.tied and (t.out or (shared and items[a].n > 1))):
            join(block, a, b)
            if t.out and stack[b] == b:
                join(stack, a, b)
    return Plates(stack, block, _nest(items, touches, block) if nested else {})


def _nest(items: dict[Id, Item], touches: list[Touch], block: dict[Id, Id]) -> dict[Id, Id]:
    """The block around a block: the largest of those that its elements belong to, the same number to each."""
    belongs: dict[Id, dict[Id, list[np.ndarray]]] = {}
    for t in touches:
        factor, variable = block["factor", t.g], block["variable", t.name]
        if factor == variable or min(items[factor].n, items[variable].n) == 1:
            continue
        if items[factor].n > items[variable].n:
            belongs.setdefault(factor, {}).setdefault(variable, []).append(t.owner)
        else:  # a factor over many variables, through several interfaces or terms
            owner = np.full(items[variable].n, -1)
            for other in touches:
                if (other.g, other.name) == (t.g, t.name):
                    owner[other.owner[other.owner >= 0]] = (other.owner >= 0).nonzero()[0]
            belongs.setdefault(variable, {}).setdefault(factor, []).append(owner)
    around = {}
    for inner, found in belongs.items():
        maps = {outer: _agreed(owners, items[inner].n, items[outer].n) for outer, owners in found.items()}
        best = max(maps, key=lambda k: items[k].n)
        # Inside one of two crossed plates, the other would be lost; inside the inner of two nested ones, it is not.
        if (finest := maps[best]) is not None and all(o is not None and _finer(finest, o) for o in maps.values()):
            around[inner] = best
    return around


def _agreed(owners: list[np.ndarray], n: int, m: int) -> np.ndarray | None:
    """The one of m that each of n elements belongs to, if all say the same and every one has as many."""
    same = all(np.array_equal(o, owners[0]) for o in owners) and len(owners[0]) == n > m and owners[0].min() >= 0
    return owners[0] if same and (np.bincount(owners[0], minlength=m) * m == n).all() else None


def _finer(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether elements with the same owner in `a` have the same owner in `b`."""
    return len(np.unique(np.stack([a, b]), axis=1).T) == len(np.unique(a))


def arrange(plan: Plan, items: dict[Id, Item], touches: list[Touch]) -> tuple[dict[Id, Point], Plates]:
    """Centres of all items, and their plates: as many as leave every parent above its children."""
    age = {name: i for i, name in enumerate(plan.collections)}
    pairs = [(("factor", k[1]), k) for k in items if k[0] == "data"]
    declaring = {t.g for t in touches if t.out}
    for t in touches:
        factor, variable = ("factor", t.g), ("variable", t.name)
        if t.out:
            pairs.append((factor, variable))
        # Others run backwards in time; of one name are the factors that a structured prior is made of.
        elif age[t.name] < age.get(plan.groups[t.g].given.name, len(age)) + (t.g not in declaring):
            pairs.append((variable, factor))
    for shared, nested in ((True, True), (True, False), (False, False)):
        plates = find_plates(items, touches, shared, nested)
        if acyclic(plates.levels(), pairs):
            break
    framed: set[Id] = {("block", k) for k in plates.block.values() if items[k].n > 1}
    return lay_out(plates.levels(), pairs, {k: item.room for k, item in items.items()}, framed), plates
