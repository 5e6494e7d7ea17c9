"""Options of a program, checked against the model they are given for."""

from typing import Any, NamedTuple

import numpy as np
import optax

from ._emit import Map
from ._errors import ModelError, Problem
from ._factorise import separated
from ._rules import BP, NCVMP, NGMP, VMP
from ._type import FactorGroup, Functional, PairEdge


class Options(NamedTuple):
    """What `ngmp.compile` was given."""

    method: Any
    rules: dict[str, Any]
    families: dict[str, Any]
    factorise: list[tuple[str, ...]]
    schedule: list[tuple[str, ...]] | None
    carry: dict[str, str]
    solver: optax.GradientTransformation
    max_sweeps: int
    tol: float | None


def choose_rules(options: Options, names: dict[str, Any], groups: list[FactorGroup]) -> dict[str, Any]:
    """The rule of every group; unknown names are refused."""
    problems = []
    sites = {g.given.name for g in groups}
    for name in options.rules:
        if name not in sites:
            problems.append(Problem(name, None, "rules= names no site", f"the sites are {sorted(sites)}"))
    for name, family in options.families.items():
        if name not in names:
            problems.append(Problem(name, None, "families= names no variable", f"there are {sorted(names)}"))
        elif family is not names[name][0].family:
            own, other = names[name][0].family.__name__, getattr(family, "__name__", repr(family))
            problems.append(Problem(name, None, f"families= asks for {other}", f"the site's family is {own}"))
    chosen = {}
    for group in groups:
        rule = options.rules.get(group.given.name, options.method)
        if not rule.mean_field and separated(group, options.factorise, names):
            if isinstance(rule, NGMP):  # with marginals in place of cavities, one NGMP projection is NCVMP
                rule = NCVMP(rule.projection)
            else:
                what = f"factorise= puts its variables in different clusters, but its rule is {type(rule).__name__}"
                problems.append(Problem(group.given.name, None, what, "NGMP(), VMP(), NCVMP() and PVMP() work here"))
        chosen[group.name] = rule
    if problems:
        raise ModelError(problems)
    return chosen


def check_repeats(groups: list[FactorGroup]) -> None:
    """Refuse a factor with one variable behind two of its interfaces: their messages would not be independent."""
    problems = []
    for group in groups:
        seen: dict[Any, np.ndarray] = {}
        for j, edge in enumerate(group.edges if not group.conjugate else ()):
            if edge is None or isinstance(edge, PairEdge):
                continue
            for end in edge.links if isinstance(edge, Functional) else (edge,):
                for plane, other, positions in [(p, i, x) for (p, i), x in seen.items()]:
                    if plane == end.plane and other != j and np.any(positions == end.index.positions):
                        names = " and ".join(group.factor.interfaces[k] for k in (other, j))
                        what = f"one variable stands behind two interfaces, {names}"
                        works = "write the site as ngmp.factor of that variable alone"
                        problems.append(Problem(group.given.name, None, what, works))
                seen[end.plane, j] = end.index.positions
    if problems:
        raise ModelError(problems)


def check_rules(rules: dict[str, Any], groups: list[FactorGroup]) -> None:
    """Refuse a rule that an interface cannot use."""
    problems = []
    for group in groups:
        rule, factor = rules[group.name], group.factor
        if group.conjugate or all(e is None for e in group.edges):
            continue
        what = f"{type(rule).__name__} on the non-conjugate {type(factor).__name__}"
        if isinstance(rule, BP):
            interfaces = ", ".join(factor.interfaces)
            works = "NGMP(), EP(), NCVMP() and PVMP() work here"
            problems.append(Problem(group.given.name, f"interfaces {interfaces}", what, works))
        elif isinstance(rule, VMP):
            for name, inside in zip(factor.interfaces, factor.in_family(), strict=True):  # type: ignore[attr-defined]
                if not inside:
                    works = "its expected logarithm is not in the family; NCVMP(), PVMP(), NGMP() and EP() project it"
                    problems.append(Problem(group.given.name, f"interface {name}", what, works))
    problems += _check_powers(rules, groups)
    if problems:
        raise ModelError(problems)


def _check_powers(rules: dict[str, Any], groups: list[FactorGroup]) -> list[Problem]:
    """Names in `power=` that are interfaces of none of the factors a rule was given for."""
    shared: dict[int, tuple[Any, list[FactorGroup]]] = {}
    for group in groups:
        if not group.conjugate:
            shared.setdefault(id(rules[group.name]), (rules[group.name], []))[1].append(group)
    problems = []
    for rule, own in shared.values():
        powers = getattr(rule, "power", 1.0)
        known = sorted({name for g in own for name in g.factor.interfaces})
        for name, _ in powers if isinstance(powers, tuple) else ():
            if name not in known:
                sites = ", ".join(dict.fromkeys(g.given.name for g in own))
                given = f"power= names '{name}', which is no interface here"
                problems.append(Problem(sites, None, given, f"the interfaces are {', '.join(known)}"))
    return problems


def choose_blocks(options: Options, map: Map) -> list[list[str]]:
    """The leaves of every block of the schedule; those that no block names form a last one."""
    keys = [g.key(j) for g in map.projected for j in range(len(g.edges))]
    if options.schedule is None:
        return [keys]
    pairs = [(g, j) for g in map.projected for j in range(len(g.edges))]
    # The groups of one site ("y" and "y#2", say) go by the name of the site.
    known = {g.key(j): {g.key(j), g.given.name, f"{g.given.name}.{g.factor.interfaces[j]}"} for g, j in pairs}
    blocks, left, problems = [], list(keys), []
    for block in options.schedule:
        found = [k for k in left if known[k] & set(block)]
        for name in block:
            if not any(name in names for names in known.values()):
                works = f"projected interfaces are {keys}"
                problems.append(Problem(name, None, "schedule= names no projected site or interface", works))
        left = [k for k in left if k not in found]
        blocks += [found] if found else []
    if problems:
        raise ModelError(problems)
    return [*blocks, left] if left else blocks
