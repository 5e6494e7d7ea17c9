"""Filtering: marginals that take the place of priors.

`replace_priors(groups, carry, names) -> groups` puts a given marginal where a variable was declared with a prior of
constant parameters; `prior_marginals` reads those priors, `next_carry` the marginals that become the next ones. A
carry is a dictionary of family instances by name, and nothing else.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ngmp_kernels import Given
from ngmp_kernels.families import AbstractFamily

from ..errors import ModelError, Problem, listed
from ..graph.groups import FactorGroup
from ..graph.planes import Plane

Carry = dict[str, AbstractFamily]
Names = dict[str, tuple[Plane, np.ndarray]]


def as_sources(carry: Any) -> dict[str, str]:
    """`carry=` of `ngmp.compile` as a dictionary: whose marginal becomes the prior of each name."""
    if carry is None:
        return {}
    entries = [carry] if isinstance(carry, (str, dict)) else list(carry)
    sources: dict[Any, Any] = {}
    for entry in entries:  # names, and mappings among them
        sources |= entry if isinstance(entry, dict) else {entry: entry}
    for name, source in sources.items():
        if not isinstance(name, str) or not isinstance(source, str):
            works = "give names, ('v', 'w'), a dictionary of names, {'z0': 'z'}, or both, ('v', {'z0': 'z'})"
            raise TypeError(f"carry= has the entry {name!r}: {source!r}; {works}")
    return sources


def check_sources(sources: dict[str, str], names: Names) -> None:
    """Refuse names the model does not declare, and an end state of another family than the start it is to become."""
    problems = []
    for name, source in sources.items():
        for unknown in {n for n in (name, source) if n not in names}:
            problems.append(Problem(unknown, None, "carry= names no variable", f"there are {listed(names)}"))
        if name == source or name not in names or source not in names:
            continue
        (plane, at), (other, run) = names[name], names[source]
        if plane != other or at.shape not in (run.shape[1:], run.shape):
            given = f"carry= puts the last of '{source}', {other} of shape {run.shape}, in place of {plane} {at.shape}"
            problems.append(Problem(name, None, given, "a chain's first and last state must be alike"))
    if problems:
        raise ModelError(problems)


def check_carry(sources: dict[str, str], carry: Any) -> None:
    """Refuse a carry that does not hold exactly the carried names."""
    if not isinstance(carry, dict) or set(carry) != set(sources):
        given = sorted(map(str, carry)) if isinstance(carry, dict) else type(carry).__name__
        raise ValueError(f"the carry holds {given}; this program carries {sorted(sources)}: begin with program.start")


def _prior(name: str, groups: list[FactorGroup], names: Names) -> int | Problem:
    """The one group that is the prior of a name."""
    if name not in names:
        return Problem(name, None, "carry names no variable", f"there are {listed(names)}")
    own = [g for g, group in enumerate(groups) if group.given.name == name]
    edges = [e for g in own for e in groups[g].edges if e is not None]
    works = "carry variables declared once, with constant parameters; the start of a chain rather than its steps"
    if len(own) != 1 or len(edges) != 1 or len(edges[0].ends()) > 1:
        return Problem(name, None, "its prior depends on other variables, or it has several", works)
    if not groups[own[0]].conjugate:
        given = f"its prior is a {type(groups[own[0]].factor).__name__}, which is not in its family"
        return Problem(name, None, given, works)
    return own[0]


def replace_priors(groups: list[FactorGroup], carry: Carry, names: Names, dtype: Any) -> list[FactorGroup]:
    """The groups with the marginals of `carry` in place of priors, or one error that lists all that cannot be."""
    out, problems = list(groups), []
    for name, q in carry.items():
        at = _prior(name, groups, names)
        if not isinstance(at, Problem):
            at = _mismatch(name, q, names) or at
        if isinstance(at, Problem):
            problems.append(at)
            continue
        group = groups[at]
        (edge,) = group.edges
        batch = len(q.batch_shape)
        flat = jax.tree.map(lambda x, b=batch: x.reshape(-1, *x.shape[b:]).astype(dtype), q)
        if edge.family.core == "gaussian":
            # As a residual, like a declared prior: a mean far from zero costs the free energy no digits.
            edge = dataclasses.replace(edge, offset=-flat.mean)
            flat = type(flat)(jnp.zeros_like(flat.eta1), flat.eta2)  # type: ignore[attr-defined]
        out[at] = dataclasses.replace(group, factor=Given(q=flat), edges=(edge,))  # type: ignore[call-arg]
    if problems:
        raise ModelError(problems)
    return out


def _mismatch(name: str, q: Any, names: Names) -> Problem | None:
    plane, positions = names[name]
    works = f"give {plane} of batch shape {positions.shape}, such as post['{name}']"
    if not isinstance(q, plane.family):
        return Problem(name, None, f"the carry holds a {type(q).__name__}", works)
    if q.batch_shape != positions.shape or q.event_shape != plane.event_shape:
        return Problem(name, None, f"the carry has batch shape {q.batch_shape}, event shape {q.event_shape}", works)
    return None


def prior_marginals(sources: dict[str, str], groups: list[FactorGroup], names: Names) -> Carry:
    """The declared priors of the carried variables, as marginals."""
    out, problems = {}, []
    for name in sources:
        at = _prior(name, groups, names)
        if isinstance(at, Problem):
            problems.append(at)
            continue
        group = groups[at]
        (edge,) = group.edges
        q: Any = group.factor.message()[0]  # type: ignore[attr-defined]
        if edge.family.core == "gaussian":  # a message on the residual `out - mean`
            q = q.shifted(-edge.offset)
        shape = names[name][1].shape
        out[name] = jax.tree.map(
            lambda x, n=group.n, s=shape: jnp.broadcast_to(x, (n, *x.shape[1:])).reshape(*s, *x.shape[1:]), q
        )
    if problems:
        raise ModelError(problems)
    return out


def next_carry(sources: dict[str, str], marginals: dict[str, AbstractFamily]) -> Carry:
    """The marginals that become priors: a variable's own, or the last of the chain it starts."""
    return {name: _end(marginals[source], marginals[name]) for name, source in sources.items()}


def _end(q: AbstractFamily, start: AbstractFamily) -> AbstractFamily:
    """The last of a run, which has an axis more than its start; or what is no run, one step only."""
    return q if len(q.batch_shape) == len(start.batch_shape) else jax.tree.map(lambda x: x[-1], q)


def unobserved(groups: list[FactorGroup]) -> list[FactorGroup]:
    """The groups with all data masked."""
    return [dataclasses.replace(g, mask=jnp.zeros(g.n, bool)) if g.observed else g for g in groups]
