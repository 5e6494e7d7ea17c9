"""Gaussian parts that are solved jointly, dense or along a band: which of the two, in how many executors, and why."""

import numpy as np

from ..declare.expressions import Plane
from ..errors import ModelError, Problem, listed
from ..executors import Layout
from ..passes.lower import FactorGroup
from .bands import BAND_LIMIT, DENSE_LIMIT, Arrangement, Parts, banded, classes, dense, layout
from .components import Nodes, Shape


class Joint:
    """Dense and banded arrangements of parts, made when they are needed: of all that no other executor solves."""

    def __init__(self, nodes: Nodes, shapes: list[Shape], touched: list[np.ndarray]):
        self.nodes, self.shapes, self.touched = nodes, shapes, touched
        self.sizes = np.asarray([p.event_shape[0] if p.event_shape else 1 for p in nodes.planes])
        self._found: tuple[Parts, dict[str, Arrangement]] | None = None

    def dimensions(self, shape: Shape) -> int:
        return int(self.sizes[self.nodes.plane_of(shape.nodes)].sum())

    def found(self) -> tuple[Parts, dict[str, Arrangement]]:
        if self._found is None:
            every = np.concatenate([s.nodes for s in self.shapes])
            label = np.repeat(np.arange(len(self.shapes)), [len(s.nodes) for s in self.shapes])
            order = np.argsort(every)
            every, label = every[order], label[order]
            place = np.full(self.nodes.size, -1)
            place[every] = np.arange(len(every))
            ends = [place[t][:, (place[t] >= 0).all(0)] for t in self.touched if len(t)]
            parts = Parts(every, label, self.sizes[self.nodes.plane_of(every)], [e for e in ends if e.size])
            self._found = parts, {"dense": dense(parts), "banded": banded(parts)}
        return self._found

    def fit(self, p: int) -> tuple[str, ...]:
        """Of dense and banded those that a part is not too large for, the cheaper first."""
        found = self.found()[1]
        return tuple(sorted((k for k in found if found[k].fits[p]), key=lambda k: found[k].cost[p]))

    def best(self, p: int) -> str:
        return next(iter(self.fit(p)), "banded")

    def misfits(self, p: int) -> dict[str, str]:
        _, found = self.found()
        shape = "the variables are no"
        return {
            "dense": f"{found['dense'].size[p]} dimensions exceed {DENSE_LIMIT}",
            "banded": f"its band of {found['banded'].size[p]} exceeds {BAND_LIMIT} numbers",
            "chain": f"{shape} path of equal ones, tied once each",
            "star": f"{shape} star of scalars",
            "tree": f"{shape} tree of scalars",
            "weight": "it has no vector at the hub of a star",
            "function": "it has no vector at the hub of a star",
        }

    def check(self, kind: str, own: list[int], functionals: list, groups: list[FactorGroup]) -> None:
        """Refuse parts that are too large even for a band."""
        problems = []
        for p in own:
            _, found = self.found()
            if found[kind].fits[p]:
                continue
            inside = np.zeros(self.nodes.size, bool)
            inside[self.shapes[p].nodes] = True
            tied = [f for f, t in enumerate(self.touched) if len(t) > 1 and inside[t[0]].any()]
            sites = listed(dict.fromkeys(groups[functionals[f][0]].given.name for f in tied))
            total, wide = found["dense"].size[p], found["banded"].size[p] + found["banded"].border[p]
            what = f"they tie {total} Gaussian dimensions in loops, and a band of them is {wide} wide"
            works = (
                f"a joint solution takes {DENSE_LIMIT} dimensions, or a band of {BAND_LIMIT} numbers; tie variables "
            )
            works += "to fewer others, declare states as vectors in a scan, or set them apart with factorise="
            problems.append(Problem(sites, None, what, works))
        if problems:
            raise ModelError(problems)

    def layouts(self, kind: str, own: list[int], planes: dict[Plane, int]) -> list[tuple[np.ndarray, Layout]]:
        """The parts of every executor, and where their dimensions go."""
        if not own:
            return []
        parts, every = self.found()
        groups = classes(every[kind], np.asarray(own))
        return [(some, layout(parts, every[kind], some, self.nodes, planes)) for some in groups]

    def why(self, kind: str, own: np.ndarray, made: Layout, asked: bool) -> str:
        _, found = self.found()
        costs = {k: float(x.cost[own].sum()) for k, x in found.items()}
        other = "banded" if kind == "dense" else "dense"
        text = f"{found['dense'].size[own].sum()} Gaussian dimensions tied in cycles"
        text += f", {len(own)} parts side by side" if len(own) > 1 else ""
        if kind == "banded":
            text += f", {made.blocks} blocks of {made.size} in reverse Cuthill-McKee order"
            text += f" and a border of {made.border}" if made.border else ""
        against = f"against {costs[other]:.1e} {other}" if found[other].fits[own].all() else f"too large for {other}"
        return f"{text}: {costs[kind]:.1e} operations a sweep, {against}" + ", as asked with executors=" * asked
