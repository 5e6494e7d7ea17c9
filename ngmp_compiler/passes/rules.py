"""Rules: the message rule of every group, as it was asked for or as its kind of factor is best served; and blocks, the
leaves that are swept one after the other.

NGMP() is the rule wherever neither `method=` nor `rules=` says anything, but for two kinds of factors, which EP() gets
right more often (`benchmarks/accuracy.py --rules`, read in `benchmarks/README.md`):

- products of Gaussian unknowns that are one edge (`matches` is "jointly"): one Gaussian of all of them, by NGMP, is the
  one that is best in the sense of KL[q||p], and too narrow for coefficients by a tenth and more;
- noise of an unknown scale that many factors share, around a variable of each factor's own (`matches` is "own"): the
  effects of a plate, whose marginals are mixtures over scales.

Matching moments is right there, and takes fewer sweeps. `describe` says where that was chosen, and why.
"""

import dataclasses
import fnmatch
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from ngmp_kernels import AbstractProjected
from ngmp_kernels.families import MvGaussian

from ..declare.renewed import NEW
from ..emit.rules import EP, NGMP, RULES, AbstractRule
from ..errors import ModelError, Problem, listed
from ..graph.groups import FactorGroup
from ..options import LOG_GAUSSIAN, Options
from .factorise import separated
from .join import candidates
from .tied import own_interfaces

_JOINTLY = "products of unknowns on one edge: matching moments keeps their widths"
_OWN = "a scale that many share, of variables of each factor's own: their marginals are mixtures over it"


def set_apart(options: Options, named: Iterable[str], names: Iterable[str]) -> dict[str, Hashable]:
    """What sets each name apart from its like: the rule it is given, or that the options (or `named`) speak of it."""
    blocks = [name for block in options.schedule or [] for name in block]
    spoken = {*named, *options.families, *options.executors, *options.carry, *options.carry.values(), *blocks}
    clusters = [*options.factorise, *(options.joint if isinstance(options.joint, tuple) else ())]
    spoken |= {name for cluster in clusters for name in cluster}
    spoken |= {name.rpartition(".")[0] for name in blocks}  # "y.tau" is an interface of y
    return {name: name if name in spoken else rule_key(options, name) for name in names}


def rule_key(options: Options, name: str) -> str | None:
    """The entry of `rules=` for a site: its name, or the first pattern that fits it, such as `neuron*/out`."""
    name = name.removeprefix(NEW)  # predicted for new inputs, a site has the rule that it was fitted by
    if name in options.rules:
        return name
    return next((key for key in options.rules if fnmatch.fnmatchcase(name, key)), None)


def choose_rules(options: Options, names: dict[str, Any], groups: list[FactorGroup]) -> dict[str, Any]:
    """The rule of every group; unknown names are refused."""
    problems = []
    sites = {name for g in groups for name in g.given.names}
    used = {rule_key(options, name) for name in sites}
    for name in options.rules:
        if name not in used:
            problems.append(Problem(name, None, "rules= names no site", f"the sites are {listed(sites)}"))
    for name, family in options.families.items():
        if family == LOG_GAUSSIAN:
            continue
        if name not in names:
            problems.append(Problem(name, None, "families= names no variable", f"there are {listed(names)}"))
        elif family is not names[name][0].family:
            own, other = names[name][0].family.__name__, getattr(family, "__name__", repr(family))
            problems.append(Problem(name, None, f"families= asks for {other}", f"the site's family is {own}"))
    chosen, default = {}, NGMP()
    for group in groups:
        key = rule_key(options, group.given.names[0])
        rule: AbstractRule = (options.method or default) if key is None else options.rules[key]
        if group.factor.deterministic:
            chosen[group.name] = rule if _supported(rule, group.factor) else default
            continue
        if options.factorise and separated(group, options.factorise, names):
            between = rule.apart()
            if between is None:
                what = f"factorise= puts its variables in different clusters, but its rule is {type(rule).__name__}"
                problems.append(Problem(group.given.name, None, what, "NGMP(), VMP(), NCVMP() and PVMP() work here"))
            rule = between or rule
        chosen[group.name] = rule.instead(group.factor) if isinstance(group.factor, AbstractProjected) else rule
    if problems:
        raise ModelError(problems)
    return chosen


def _supported(rule: AbstractRule, factor: Any) -> bool:
    return all(rule.supports(factor, j) is None for j in range(len(factor.interfaces)))


def rules_by_kind(options: Options, rules: dict[str, Any], groups: list[FactorGroup], weighed: bool) -> Any:
    """Groups and rules, with EP where none was asked for and that kind of factor is better served by it; if
    hyperparameters are `weighed` by the evidence, with that of matched moments where a factor has one interface."""

    def free(group: FactorGroup) -> bool:
        asked = options.method is not None or rule_key(options, group.given.names[0]) is not None
        return not asked and isinstance(rules[group.name], NGMP)

    whys = [_why(group, groups) if group.projected and free(group) else "" for group in groups]
    groups = [dataclasses.replace(g, preferred=why) if why else g for g, why in zip(groups, whys, strict=True)]
    own = [g for g in groups if weighed and g.projected and free(g) and len(g.factor.interfaces) == 1]
    matched = {g.name: NGMP(matched=True) for g in own if EP().supports(g.factor, 0) is None}  # type: ignore[arg-type]
    return groups, rules | matched | {g.name: EP() for g in groups if g.preferred}


def _why(group: FactorGroup, groups: list[FactorGroup]) -> str:
    factor: Any = group.factor
    if factor.matches == "jointly" and factor.families == (MvGaussian,):
        return _JOINTLY
    if factor.matches != "own":
        return ""
    return _OWN if own_interfaces(group, candidates(group), groups) == {0} else ""  # the residual, and not its scale


def check_rules(rules: dict[str, Any], groups: list[FactorGroup]) -> None:
    """Refuse a rule that an interface cannot use."""
    problems = []
    for group in groups:
        rule, factor = rules[group.name], group.factor
        if not group.projected:
            continue
        whys: dict[str, list[str]] = {}
        for j, name in enumerate(factor.interfaces):
            why = rule.supports(factor, j)  # type: ignore[arg-type]
            if why is not None:
                whys.setdefault(why, []).append(name)
        for why, own in whys.items():
            works = ", ".join(f"{other.__name__}()" for other in RULES if _supported(other(), factor))
            what = f"{type(rule).__name__} on the non-conjugate {type(factor).__name__}: {why}"
            where = f"interface{'s' * (len(own) > 1)} {', '.join(own)}"
            problems.append(Problem(group.given.name, where, what, f"{works} work here"))
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
        known = sorted({name for g in own for name in g.factor.interfaces})
        for name in rule.named:
            if name not in known:
                sites = ", ".join(dict.fromkeys(g.given.name for g in own))
                given = f"power= names '{name}', which is no interface here"
                problems.append(Problem(sites, None, given, f"the interfaces are {', '.join(known)}"))
    return problems


def check_repeats(groups: list[FactorGroup]) -> None:
    """Refuse a factor with one variable behind two of its interfaces: their messages would not be independent."""
    problems = []
    for group in (g for g in groups if g.projected and len(g.edges) > 1):
        seen: dict[Any, np.ndarray] = {}
        for j, edge in enumerate(group.edges):
            for end in edge.ends():
                for plane, other, positions in [(p, i, x) for (p, i), x in seen.items()]:
                    if plane == end.plane and other != j and np.any(positions == end.index.positions):
                        names = " and ".join(group.factor.interfaces[k] for k in (other, j))
                        what = f"one variable stands behind two interfaces, {names}"
                        works = "write the site as ngmp.factor of that variable alone"
                        problems.append(Problem(group.given.name, None, what, works))
                seen[end.plane, j] = end.index.positions
    if problems:
        raise ModelError(problems)


def choose_blocks(options: Options, groups: list[FactorGroup]) -> list[list[str]]:
    """The leaves of every block of the schedule; those that no block names form a last one."""
    projected = [g for g in groups if g.projected]
    keys = [key for g in projected for key in g.keys]
    if options.schedule is None:
        first = [g.keys[j] for g in projected for j in g.factor.leading()]  # type: ignore[attr-defined]
        rest = [k for k in keys if k not in first]
        return [first, rest] if first and rest else [keys]
    pairs = [(g, j) for g in projected for j in range(len(g.edges))]
    # The groups of one site ("y" and "y#2", say) go by the name of the site.
    known = {g.keys[j]: {g.keys[j], g.given.name, f"{g.given.name}.{g.factor.interfaces[j]}"} for g, j in pairs}
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
