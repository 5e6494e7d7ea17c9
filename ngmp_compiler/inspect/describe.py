"""Describe a plan in words: groups, families, kernels, executors with their cost and reason, and warnings."""

import html
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from ..emit.apart import selectors
from ..graph.groups import FactorGroup
from ..pipeline import Front, Specialised
from ..results.infer import approximations
from ..schedule.choose import Plan
from ..value import Value, replaced
from .draw import draw
from .explore import Subject, page


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


class Description(Value):
    """A lowered program: print `describe()`, or `draw()` the factor graph and its surrogate as SVG."""

    def __init__(self, passes: tuple[Front, Specialised], name: str, why: str = ""):
        front, specialised = passes
        self.specialised, self.name, self.integrated = specialised, name, front.integrated
        self.notes = front.notes
        self.why = why  # the precision is what it is
        self.hinted, self.by_newton = specialised.map.hinted(), specialised.map.by_newton

    @property
    def plan(self) -> Plan:
        return self.specialised.plan

    def of(self, subject: Subject) -> "Description":
        """The same, with the program and the inputs that it is a description of."""
        found = replaced(self)
        object.__setattr__(found, "_subject", subject)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """A copy has forgotten its program: a model need not be one that can be pickled."""
        return {name: value for name, value in super().__getstate__().items() if name != "_subject"}

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        """In a notebook: the factor graph, and the plan in words."""
        return f"<div>{self.draw()}<pre>{html.escape(self.describe())}</pre></div>"

    def draw(self, path: str | Path | None = None, style: str = "bipartite") -> str:
        """The SVG of the factor graph with its plates and of its surrogate, written to `path` if one is given.

        `style` is "bipartite", or "forney": variables are the edges between factors.
        """
        text = draw(self.plan, self.name, style, self.integrated)
        if path is not None:
            Path(path).write_text(text)
        return text

    def explore(self, path: str | Path, style: str = "bipartite") -> None:
        """Write a page to click through: the graph, every pass, the source that declared it, and a run.

        The page is one HTML file that needs no network. It holds the source of the model, no data.

        Args:
            path: the file.
            style: of the drawing, as in `draw`.
        """
        subject = getattr(self, "_subject", None)
        if subject is None:
            works = "take the one that program.lower(...) gives, or call program.explore(path, **inputs)"
            raise TypeError(f"explore: this description has forgotten its program; {works}")
        Path(path).write_text(page(self, subject, style), encoding="utf-8")

    def describe(self) -> str:
        """The plan in words."""
        plan = self.plan
        lines = [f"program {self.name} ({jnp.dtype(plan.dtype).name})"]
        lines += [f"  computed in {jnp.dtype(plan.dtype).name}, {self.why}"] if self.why else []
        if self.integrated:
            lines += ["", "integrated numerically, around all that follows"]
            rows = [(name, site.support, str(site.value.shape), site.why) for name, site in self.integrated.items()]
            lines += _table([("name", "support", "shape", "why"), *rows])
            rules = self.specialised.map.rules
            own = [g.name for g in plan.groups if getattr(rules.get(g.name), "matched", False)]
            lines += [f"  weighed by the evidence of matched moments (EP's) of {', '.join(own)}"] if own else []
        if self.notes:
            lines += ["", "recognised", *_table([("site", "line", "as"), *self.notes])]
        lines += ["", "variables"]
        lines += _table([("name", "family", "shape")] + [
            (name, str(plane), str(positions.shape)) for name, (plane, positions, _) in plan.collections.items()
        ]) if plan.names else ["  none"]  # fmt: skip
        lines += ["", "factors"]
        lines += _table([("site", "count", "kernel", "interface", "family", "rule", "touches")] + [
            row for group in plan.groups for row in self._group(group)
        ])  # fmt: skip
        joined = [f"  {g.keys[0]}: one edge, since {g.joined}" for g in plan.groups if g.joined]
        lines += ["", "joint edges", *joined] if joined else []
        chosen = [f"  {g.name}: {self._rule(g)}, for {g.preferred}; method=ngmp.NGMP() for NGMP"
                  for g in plan.groups if g.preferred]  # fmt: skip
        lines += ["", "rules by kind", *chosen] if chosen else []
        lines += ["", "conjugate core"]
        for executor in (*([plan.sums] if plan.sums else []), *plan.gaussian, *plan.discrete):
            instead = f"; {', '.join(executor.others)} would do too" if executor.others else ""
            lines.append(f"  {executor.name}: {executor.why}; {executor.work} a sweep{instead}")
        products = [p for p in plan.planes if p.family.core == "product"]
        for plane in products:
            lines.append(f"  product: {plan.planes[plane]} {plane} variable(s), sums of messages")
        lines += ["", "initialisation", *self._initialisation(), "", "solver", f"  {self._steps()}"]
        warnings = self._warnings()
        return "\n".join([*lines, "", "warnings", *warnings]) if warnings else "\n".join(lines)

    def _group(self, group: FactorGroup) -> list[tuple[str, ...]]:
        kernel, count = group.factor.label, str(group.n) + (" masked" if group.mask is not None else "")
        if not group.edges:
            return [(group.name, count, kernel, "-", "-", "constant", "-")]
        rows = []
        for j, edge in enumerate(group.edges):
            rule = "constant" if edge is None else "conjugate" if group.conjugate else self._rule(group)
            first = (group.name, count, kernel) if j == 0 else ("", "", "")
            family = group.factor.families[j].__name__ if j < len(group.factor.families) else "-"
            rows.append((*first, group.factor.interfaces[j], family, rule, "constant" if edge is None else str(edge)))
        return rows

    def _rule(self, group: FactorGroup) -> str:
        return str(self.specialised.map.rules[group.name])

    def _initialisation(self) -> list[str]:
        rows = []
        for key, hinted in self.hinted.items():
            start = "a few of Newton's steps toward the mode" if key in self.by_newton else "flat"
            rows.append(f"  {key}: {'projected at the marginal the data suggest' if hinted else start}")
        for selector in selectors(self.specialised.map):
            how = "classes that the priors do not tell apart start at clusters of the outcomes (k-means, in order)"
            rows.append(f"  {selector.name}: {how}")
        return rows or ["  none needed: every factor is conjugate"]

    def _steps(self) -> str:
        if not self.specialised.map.projected:
            approximate = any(e.approximate for e in self.plan.discrete)
            return "one sweep, approximate: flooding iterates inside the core" if approximate else "exact in one sweep"
        solver = self.specialised.solver
        return f"at most {solver.max_sweeps} sweeps, to a relative residual of {solver.tol:g}, by {solver.step}"

    def _warnings(self) -> list[str]:
        plan, out = self.plan, []
        if jnp.dtype(plan.dtype) == jnp.float32:
            if any(e.name == "chain" and e.order.shape[1] > 1000 for e in plan.gaussian):  # type: ignore[attr-defined]
                out.append("  float32 on a chain of over 1000 variables: expect 3 to 4 digits; prefer float64")
            cautions = {p.family.__name__: p.family.caution for p in plan.planes if p.family.caution}
            out += [f"  float32 with {family} variables: {caution}" for family, caution in cautions.items()]
            if any(e.name in ("dense", "banded") for e in plan.gaussian):
                out.append("  float32 Cholesky factors: badly conditioned posteriors may turn improper")
        return out + [f"  approximate: {text}" for text in approximations(self.specialised.map)]
