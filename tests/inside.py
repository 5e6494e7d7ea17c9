"""What tests read off programs and the registry from inside: sizes, words about the core, joint marginals, factors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
from ngmp_kernels import REGISTRY, AbstractFactor


def equations(jaxpr: Any) -> int:
    """The number of equations of a jaxpr, inner ones included."""
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            total += equations(inner) if hasattr(inner, "eqns") else 0
    return total


def core_line(program: ngmp.Program, **inputs: Any) -> str:
    """The lines of `describe` about the core."""
    return program.lower(**inputs).describe().split("conjugate core\n")[1].split("\n\n")[0]


def tables_of(program: ngmp.Program, **inputs: Any) -> dict[str, dict]:
    """Joint marginals of the tables of every site, by group and row, at the posterior, straight from the core."""
    static, dynamic = program._split((), inputs)
    compiled = program._build(static, jax.tree.map(jnp.asarray, dynamic))
    core, groups = compiled.map.core, compiled.plan.groups
    unary = {p: t.eta1 for p, t in core.totals.items() if p.family is ngmp.families.Categorical}
    found = {}
    for executor in compiled.plan.discrete:
        for g, parts in executor.solve(unary, core.tables, frozenset(core.tables)).tables.items():
            for rows, joint in parts:
                rows = np.arange(groups[g].n) if rows is None else rows
                found.setdefault(groups[g].name, {}).update(
                    {(g, row): table for row, table in zip(rows.tolist(), np.exp(joint), strict=True)}
                )
    return found


def registered_factors() -> tuple[type[AbstractFactor], ...]:
    """Every factor class some registered signature lowers to, each once, in order."""
    return tuple(dict.fromkeys(s.factor for cls in REGISTRY.values() for s in cls.signatures))
