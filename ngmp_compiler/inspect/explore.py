"""The compiler explorer: one self-contained page with the graph, every pass and a run of a program.

What the page shows is collected here as plain values: tables, each row with the names of the variables and sites
that it is about, the drawing, the source, and the run. `explorer.html` beside this file shows them, and does all the
linking.
"""

import copy
import inspect
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..declare.where import Lines, noting
from ..graph.groups import FactorGroup
from .diagram import find_components, find_leaves, find_touches, leaf_name

_NAMES, _LINES, _SWEEPS = 6, 400, 200  # of many: names in a cell, lines of one function, sweeps that are shown


class Subject(NamedTuple):
    """What a description is of: the program, and the inputs as they were given."""

    program: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_NAMES]) + (f", ... {len(names)} in all" if len(names) > _NAMES else "")


def _row(names: Any, *cells: Any) -> dict[str, Any]:
    return {"names": list(dict.fromkeys(names)), "cells": [str(c) for c in cells]}


def _table(title: str, what: str, head: tuple[str, ...], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "what": what, "head": head, "rows": rows}


class _Touching(NamedTuple):
    """A group, and the names of the variables that it touches."""

    group: FactorGroup
    names: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (self.group.name, *self.names)


def _declared(touching: list[_Touching], variables: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for group, names in touching:
        given = group.given
        kinds = {k: getattr(v, "is_expression", False) for k, v in given.arguments.items() if k != "out"}
        words = ", ".join(f"{k}: {'an expression' if random else 'constant'}" for k, random in kinds.items())
        seen = ("masked data" if group.mask is not None else "data") if group.observed else "latent"
        shown = _listed(given.names or (group.name,))
        rows.append(_row((group.name, *names), shown, given.distribution.label, words or "-", group.shape, seen))
    return rows


def _tables(description: Any) -> list[dict[str, Any]]:
    """One for every pass, in the order of the pipeline."""
    plan, map = description.plan, description.specialised.map
    touching = [_Touching(g, tuple(t.name for t in find_touches(plan, k))) for k, g in enumerate(plan.groups)]
    out = [
        _table("Declared", "sites of the model function, in order; those that differ in nothing but their data are one "
               "row", ("site", "distribution", "arguments", "shape", "outcome"),
               _declared(touching, plan.collections)),
        _table("Variables", "every unknown, and the family of its marginal", ("name", "family", "shape"),
               [_row([n], n, c.plane, c.positions.shape) for n, c in plan.collections.items()]),
    ]  # fmt: skip
    if description.integrated:
        rows = [_row([n], n, s.support, s.value.shape, s.why) for n, s in description.integrated.items()]
        what = "sites that stand as numbers; the program below is run at nodes around their mode"
        out.append(_table("Integrated", what, ("site", "support", "shape", "why"), rows))
    if description.notes:
        what = "how lines of a foreign model were read"
        rows = [_row([site], site, line, what) for site, line, what in description.notes]
        out.append(_table("Recognised", what, ("site", "line", "as"), rows))
    out.append(_kernels(touching))
    rows = [_row(t.all, t.group.name, "conjugate: exact" if t.group.conjugate else map.rules[t.group.name],
                 t.group.joined or "-", t.group.preferred or "-") for t in touching]  # fmt: skip
    what = "how every group speaks to its variables; several interfaces that are projected together are one edge"
    out.append(_table("Rules", what, ("group", "rule", "one edge, since", "not NGMP, for"), rows))
    rows = [_row(names, kind, _listed(tuple(names)), why[0], why[-1], others)
            for (kind, names, why), others in zip(find_components(plan), _others(plan), strict=False)]  # fmt: skip
    what = "connected parts of the conjugate core; each is solved exactly, once a sweep"
    out.append(_table("Schedule", what, ("executor", "variables", "why", "cost", "would do too"), rows))
    out.append(_leaves(description, touching))
    return out


def _kernels(touching: list[_Touching]) -> dict[str, Any]:
    rows = []
    for t in touching:
        edges = "; ".join("constant" if e is None else str(e) for e in t.group.edges)
        interfaces = ", ".join(t.group.factor.interfaces)
        rows.append(_row(t.all, t.group.name, t.group.n, t.group.factor.label, interfaces, edges))
    what = "groups of equal factors, the kernel of each, and what its interfaces stand on"
    return _table("Rolled and lowered", what, ("group", "factors", "kernel", "interfaces", "edges"), rows)


def _others(plan: Any) -> list[str]:
    found = (*([plan.sums] if plan.sums else []), *plan.gaussian, *plan.discrete)
    return [*(", ".join(e.others) or "-" for e in found), *("-" for _ in plan.planes)]


def _leaves(description: Any, touching: list[_Touching]) -> dict[str, Any]:
    """The surrogate: a leaf for every interface that is not conjugate."""
    map, rows = description.specialised.map, []
    for g, t in enumerate(touching):
        for leaf in find_leaves(t.group, touches := find_touches(description.plan, g)):
            names = [x.name for x in touches if x.j in leaf]
            key = t.group.keys[leaf[0]]
            hinted = description.hinted.get(key)
            start = "at the data" if hinted else "by Newton's steps" if key in description.by_newton else "flat"
            family = t.group.factor.families[leaf[0]].__name__
            cells = (leaf_name(t.group, leaf), family, t.group.n, map.rules[t.group.name], start)
            rows.append(_row([t.group.name, leaf_name(t.group, leaf), *names], *cells))
    what = "conjugate messages that stand for projected factors; what a sweep updates"
    return _table("Surrogate leaves", what, ("leaf", "family", "leaves", "rule", "starts"), rows)


def _source(lines: Lines, model: Any) -> list[dict[str, Any]]:
    """The functions that declared something, with the sites of every line."""
    codes = list(dict.fromkeys(code for places in lines.values() for code, _ in places))
    root = getattr(inspect.unwrap(model), "__code__", None)
    codes = [c for c in codes if not any(c in o.co_consts for o in [*codes, *([root] if root else [])])]
    codes += [root] if root is not None and root not in codes else []
    out = []
    for code in codes:
        try:
            text, first = inspect.getsourcelines(code)
        except (OSError, TypeError):  # typed into a prompt, or executed from a string
            continue
        text = text[:_LINES]
        sites: dict[int, list[str]] = {}
        for site, places in lines.items():
            for c, line in places:
                if c.co_filename == code.co_filename and first <= line < first + len(text):
                    sites.setdefault(line, []).append(site)
        title = f"{Path(code.co_filename).name}, from line {first}"
        out.append({"title": title, "first": first, "lines": [x.rstrip("\n") for x in text], "sites": sites})
    return out


def _marginals(post: Any) -> list[dict[str, Any]]:
    rows = []
    for row in post.summary().rows:
        name = row.label.split("[")[0].split(" ")[0]
        rows.append(_row([name], row.label, *(f"{v:.4g}" for v in row.values[:2]), row.family, row.shape))
    return rows


def _run(subject: Subject) -> dict[str, Any]:
    """A run for these inputs: residual and free energy of every sweep, and where it ended."""
    program, inputs = subject.program, dict(program_inputs(subject))
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(inputs)):
        return {"why": "it was lowered for shapes, without values: nothing could be run"}
    post = program(**inputs)
    found: dict[str, Any] = {"why": "", "residual": [], "energy": []}
    if post.nodes is not None:
        found["why"] = f"hyperparameters are integrated: {post.nodes.weights.size} runs, one at every node"
    else:
        trace = program.trace(sweeps=_SWEEPS, **inputs)
        found["residual"], found["energy"] = (_numbers(x) for x in (trace.residual, trace.free_energy))
    end = {"converged": bool(post.converged), "sweeps": int(np.max(np.asarray(post.sweeps))), "reason": post.reason,
           "free energy": f"{float(post.free_energy):.6g}", "approximate": "; ".join(post.approximate)}  # fmt: skip
    return found | {"end": {k: str(v) for k, v in end.items()}, "marginals": _marginals(post)}


def _numbers(x: Any) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in np.asarray(x)]


def program_inputs(subject: Subject) -> dict[str, Any]:
    """The inputs by name, as they were given."""
    return dict(subject.program.signature.bind(*subject.args, **subject.kwargs).arguments)


def page(description: Any, subject: Subject, style: str = "bipartite") -> str:
    """The page, as HTML."""
    with noting() as lines:  # the model runs anew, of a program that has compiled nothing
        copy.deepcopy(subject.program).lower(*subject.args, **subject.kwargs)
    found = {
        "name": description.name, "words": description.describe(), "svg": description.draw(style=style),
        "tables": _tables(description), "source": _source(lines, subject.program.model), "run": _run(subject),
    }  # fmt: skip
    data = json.dumps(found, ensure_ascii=True).replace("<", "\\u003c")  # no tag in it can end the script
    template = files(str(__package__)).joinpath("explorer.html").read_text(encoding="utf-8")
    title = found["name"].replace("<", "")
    return template.replace("{{title}}", title, 1).replace("{{data}}", data, 1)
