"""Type and normalise: a kernel for every group, and the interfaces it stands on.

`lower(rolled, options) -> list[FactorGroup]`. The kinds of a group's arguments pick a `Signature` of its
distribution; the signature returns the factor (with its parameters) and one expression per interface: an affine
functional for a Gaussian interface (the residual form of the design), positions in a plane for any other.
Every group without a kernel is reported, in one error.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels.families import FAMILIES

from ..declare.affine import TAIL, Affine
from ..declare.energies import Whole
from ..declare.expressions import kinds_of
from ..declare.variables import Variable
from ..errors import ModelError, Problem
from ..graph.edges import Functional, Link, PlaneEdge, TableEdge
from ..graph.groups import FactorGroup, Group
from ..graph.index import given_map, index_map
from ..graph.planes import Plane
from .roll import Rolled
from .stack import merge, shortest, stacked

_WORDS = {
    "constant": "a constant",
    "exp(gaussian)": "exp(z) of a Gaussian z",
    "multiple(gamma)": "a constant times a Gamma variable",
    "exp(mvgaussian)": "exp of a vector",
    "sigmoid(gaussian)": "sigmoid(z) of a Gaussian z",
    "phi(gaussian)": "Phi(z) of a Gaussian z",
    "cloglog(gaussian)": "cloglog(z) of a Gaussian z",
    "take(categorical)": "take(table, z) of a Categorical z",
}


def _words(kind: str) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    outer, _, inner = kind.rstrip(")").rpartition("(")
    family = FAMILIES[inner]
    return f"take(p, z) of {family.__name__} variables p and a Categorical z" if outer else family.words


def _problems(group: Group, kinds: dict[str, str]) -> list[Problem]:
    """Say which arguments are off, against the nearest signature of the distribution."""
    name = group.distribution.label
    every = group.distribution.signatures
    signatures = [s for s in every if set(s.arguments) == set(kinds)]
    if not signatures:
        accepted = sorted({", ".join(k for k in s.arguments if k != "out") for s in every})
        given = ", ".join(k for k in kinds if k != "out")
        return [Problem(group.name, None, f"{name} was given {given}", f"it takes {' or '.join(accepted)}")]

    def wrong(s: Any) -> list[str]:
        return [k for k, accepted in s.arguments.items() if kinds[k] not in accepted]

    nearest = min(signatures, key=lambda s: len(wrong(s)))
    problems = []
    for bad in wrong(nearest):
        # What this argument may be, with the others as they are.
        fit = [s for s in signatures if set(wrong(s)) <= {bad}] or [nearest]
        works = list(dict.fromkeys(k for s in fit for k in sorted(s.arguments[bad])))
        words = ["observed data" if (bad, k) == ("out", "constant") else _words(k) for k in works]
        hint = f"it takes {', or '.join(words)}"
        if kinds[bad] == "gaussian" and "exp(gaussian)" in works:
            hint += f": did you mean {bad}=exp(...)?"
        others = {k for s in every for k, accepted in s.arguments.items() if k not in kinds and kinds[bad] in accepted}
        if others:
            hint += f"; {_words(kinds[bad])} may be given as {' or '.join(f'{k}=' for k in sorted(others))}"
        number = kinds[bad] in FAMILIES and FAMILIES[kinds[bad]].core == "product"
        if bad != "out" and (number or kinds[bad].startswith("exp(")):
            hint += "; if few numbers are behind it, integrate them: ngmp.compile(..., integrate=('name',))"
        given = f"{name} has no kernel where {bad} is {_words(kinds[bad])}"
        problems.append(Problem(group.name, f"interface {bad}", given, hint))
    return problems


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, (int, float, np.ndarray, np.generic)):
        # A numpy constant stays one, so that it can be checked while compiling.
        return np.asarray(value, dtype) if np.asarray(value).dtype != bool else np.asarray(value)
    return value if value.dtype == bool else value.astype(dtype)


def _rows(coefficient: Any, op: str) -> Any:
    """A coefficient with its leading axis n or 1, which the sign of `out - mean` lacks."""
    return coefficient if np.ndim(coefficient) > TAIL[op] else coefficient[None]


def _edge(expression: Any, n: int, sizes: dict[Plane, int], dtype: Any, numbers: dict[int, int]) -> Any:
    """The edge of an expression; `numbers` are those of the indices of its group that are given."""

    def where(v: Variable) -> Any:
        if not v.picked:
            return np.broadcast_to(v.index, (n,))
        number = numbers.setdefault(id(v.frame.at), len(numbers))
        return given_map(v.frame.source.index, v.frame.at, sizes[v.plane], number, v.frame.place)

    if isinstance(expression, Whole):
        return _edge(expression.inside, expression.rows, sizes, dtype, numbers)
    if isinstance(expression, list):
        return stacked([_edge(e, n, sizes, dtype, numbers) for e in expression], n, dtype)
    if isinstance(expression, tuple):
        return TableEdge(tuple(_edge(v, n, sizes, dtype, numbers) for v in expression))
    if isinstance(expression, Variable):
        if expression.plane.family.core == "gaussian":
            return _edge(expression.affine(), n, sizes, dtype, numbers)
        return PlaneEdge(expression.plane, index_map(where(expression), sizes[expression.plane]))
    if isinstance(expression, Affine):
        terms = [(v.plane, where(v), op, None if c is None else _rows(_cast(c, dtype), op))
                 for v, op, c in expression.terms]  # fmt: skip
        links = tuple(Link(plane, index_map(at, sizes[plane]), op, c) for plane, at, op, c in merge(terms, n, dtype))
        event = expression.event_shape
        offset = np.zeros((1, *event), dtype) if expression.offset is None else jnp.asarray(expression.offset, dtype)
        if offset.ndim == len(event):
            offset = offset[None]
        return Functional(links=links, offset=offset, n=n, width=event[0] if event else None)
    return None


def _clean(value: Any, placeholder: Any, mask: Any) -> Any:
    """Data (n|1, *event) with a valid value where they are masked or not finite.

    Values that are not finite are reported by the checks, and the run is marked as invalid; but it must not spread NaN.
    """
    xp = np if isinstance(value, np.ndarray) else jnp  # what is known while compiling stays numpy
    fill = np.asarray(placeholder, value.dtype)
    if jnp.issubdtype(value.dtype, jnp.inexact):
        value = xp.where(xp.isfinite(value), value, fill)
    if mask is None:
        return value
    return jnp.where(mask.reshape(-1, *(1,) * (np.ndim(value) - 1)), value, fill)


def _parameters(group: Group, dtype: Any) -> dict[str, Any]:
    """What a signature's `lower` receives: functions stripped, Gaussian variables as affine expressions.

    Where they are not finite parameters are one, coefficients and offsets zero; see `_clean`.
    """
    out: dict[str, Any] = {}
    for name, x in group.arguments.items():
        if name == "out" and group.observed:  # a boolean outcome would widen to the default precision
            out[name] = _clean(_cast(x, dtype).astype(dtype), group.distribution.placeholder, group.mask)
            continue
        x = x.parameter() if getattr(x, "is_expression", False) else x

        def finite(array: Any, _: int = 0, fill: int = getattr(x, "neutral", 1)) -> Any:
            return _clean(_cast(array, dtype), fill, None)

        random = getattr(x, "is_expression", False)
        out[name] = x.map(finite, lambda v: v) if random else None if x is None else finite(x)
    return out


def lower_group(group: Group, sizes: dict[Plane, int], dtype: Any) -> FactorGroup | list[Problem]:
    """Pick the signature of one group and build its factor."""
    kinds = kinds_of(group.arguments)
    for signature in group.distribution.signatures:
        if set(signature.arguments) == set(kinds) and all(kinds[k] in v for k, v in signature.arguments.items()):
            break
    else:
        return _problems(group, kinds)
    for name, value in group.arguments.items():
        if jnp.issubdtype(getattr(value, "dtype", float), jnp.complexfloating):
            what = "obs" if name == "out" else f"argument {name}"
            return [Problem(group.name, what, f"it has the complex dtype {value.dtype}", "give real numbers")]
    parameters = _parameters(group, dtype)
    try:
        factor, interfaces = signature.lower(**parameters)
    except (TypeError, ValueError) as error:
        return [Problem(group.name, None, str(error), "")]
    numbers: dict[int, int] = {}
    edges = tuple(_edge(e, group.size, sizes, dtype, numbers) for e in interfaces)
    factor, edges = shortest(factor, edges)
    constants = tuple(None if edge is not None else e for edge, e in zip(edges, interfaces, strict=True))
    return FactorGroup(group.name, factor, edges, constants, group.mask, group.size, group.shape, group.observed, group)


def lower(rolled: Rolled, dtype: Any) -> list[FactorGroup]:
    """Lower every group, or raise one error that lists each group without a kernel."""
    lowered = [lower_group(g, rolled.planes, dtype) for g in rolled.groups]
    problems = [problem for g in lowered if isinstance(g, list) for problem in g]
    if problems:
        raise ModelError(problems)
    # A group of the same name (the first step of a loop, say) needs a name of its own for its leaves.
    seen: dict[str, int] = {}
    out = []
    for g in (g for g in lowered if isinstance(g, FactorGroup)):
        count = seen[g.name] = seen.get(g.name, 0) + 1
        out.append(g if count == 1 else dataclasses.replace(g, name=f"{g.name}#{count}"))
    return out


def shared_scales(groups: list[FactorGroup], names: dict[str, tuple[Plane, np.ndarray]]) -> dict[str, str]:
    """Scalar variables behind one interface of many projected factors, by name, and why they are badly served: what
    the factors say of them together is far from what each says by itself."""
    owners = {(plane, int(at.reshape(-1)[0])): name for name, (plane, at) in names.items() if at.size == 1}
    out = {}
    for group in groups:
        for edge in () if group.conjugate else group.edges:
            if edge is not None and edge.plane is not None and edge.shared and group.n > 1:
                key = edge.plane, int(edge.ends()[0].index.positions[0])
                if key in owners:
                    out[owners[key]] = f"the {group.n} factors of '{group.given.name}' share it"
    return out
