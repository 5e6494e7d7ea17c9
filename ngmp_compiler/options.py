"""Options of a program, checked against the model they are given for."""

import fnmatch
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import optax

from ngmp_kernels import AbstractProjected

from .declare.renewed import NEW
from .emit.rules import EP, NGMP, RULES, AbstractRule
from .errors import ModelError, Problem, listed
from .graph.groups import FactorGroup
from .passes.factorise import separated
from .passes.join import Asked
from .passes.prefer import prefer
from .solve.anderson import adaptive, anderson
from .solve.step import AbstractStep, Optax

LOG_GAUSSIAN = "log-gaussian"


class Effort(NamedTuple):
    """What is spent on an integral: more nodes, a grid for every mode, draws in place of nodes."""

    finer: bool = False
    modes: bool = False
    draws: bool = False


class Options(NamedTuple):
    """What `ngmp.compile` was given."""

    method: Any  # None: by kind, see `passes.prefer`
    rules: dict[str, Any]
    families: dict[str, Any]
    factorise: list[tuple[str, ...]]
    schedule: list[tuple[str, ...]] | None
    executors: dict[str, str]
    carry: dict[str, str]
    solver: AbstractStep | None  # None: the ladder
    max_sweeps: int | None
    tol: float | None
    max_specialisations: int
    joint: Asked = None
    integrate: tuple[str, ...] = ()  # sites that are integrated numerically
    rung: int = 0  # of the ladder
    effort: Effort = Effort()  # for an integral
    direct: bool = False  # integrated sites are given as values, not as coordinates

    @property
    def rungs(self) -> tuple[AbstractStep, ...]:
        """What is tried, in order, as long as nothing has converged."""
        if self.solver is not None:
            return (self.solver,)
        return _LADDER if self.max_sweeps is None else _LADDER[:1]

    @property
    def descends(self) -> bool:
        """Whether this is the last rung: free energies that are made to fall, see `Solver`."""
        return self.solver is None and 0 < self.rung == len(self.rungs) - 1

    @property
    def newton(self) -> bool:
        """Whether this rung begins with Newton's method."""
        return self.solver is None and self.rungs[self.rung] is _NEWTON

    @property
    def halves(self) -> bool:
        """Whether this rung hears half of every factor at a time."""
        return self.solver is None and self.rungs[self.rung] is _HALVES

    @property
    def sweeps(self) -> int:
        """At most so many; a descent is slow and sure."""
        return MAX_SWEEPS * (4 if self.descends else 1) if self.max_sweeps is None else self.max_sweeps

    @property
    def logs(self) -> tuple[str, ...]:
        """The variables that stand by their logarithms."""
        return tuple(name for name, family in self.families.items() if family == LOG_GAUSSIAN)

    @property
    def settles(self) -> bool:
        """Whether unary factors are solved on their edges: the default solver does, until it descends."""
        return self.solver is None and not self.descends


_BOLD = anderson(8, cautious=False)
_NEWTON = anderson(8, cautious=False)  # what goes on where Newton's method has ended
_SMALL: Any = optax.chain(adaptive(grow=1.05, memory=0), optax.scale(0.1))  # type: ignore[arg-type]
_HALVES = adaptive()  # for rules of half the power, see `Options.halves`
_LADDER = adaptive(), _BOLD, _NEWTON, Optax(_SMALL), _HALVES, _BOLD
MAX_SWEEPS = 500  # by default


def set_apart(options: Options, named: Iterable[str], names: Iterable[str]) -> dict[str, Hashable]:
    """What sets each name apart from its like: the rule it is given, or that the options (or `named`) speak of it."""
    blocks = [name for block in options.schedule or [] for name in block]
    spoken = {*named, *options.families, *options.executors, *options.carry, *options.carry.values(), *blocks}
    clusters = [*options.factorise, *(options.joint if isinstance(options.joint, tuple) else ())]
    spoken |= {name for cluster in clusters for name in cluster}
    spoken |= {name.rpartition(".")[0] for name in blocks}  # "y.tau" is an interface of y
    return {name: name if name in spoken else _rule_key(options, name) for name in names}


def _rule_key(options: Options, name: str) -> str | None:
    """The entry of `rules=` for a site: its name, or the first pattern that fits it, such as `neuron*/out`."""
    name = name.removeprefix(NEW)  # predicted for new inputs, a site has the rule that it was fitted by
    if name in options.rules:
        return name
    return next((key for key in options.rules if fnmatch.fnmatchcase(name, key)), None)


def rules_by_kind(options: Options, rules: dict[str, Any], groups: list[FactorGroup], weighed: bool) -> Any:
    """Groups and rules, with EP where none was asked for and that kind of factor is better served by it; if
    hyperparameters are `weighed` by the evidence, with that of matched moments where a factor has one interface."""

    def free(group: FactorGroup) -> bool:
        asked = options.method is not None or _rule_key(options, group.given.names[0]) is not None
        return not asked and isinstance(rules[group.name], NGMP)

    groups = prefer(groups, free)
    own = [g for g in groups if weighed and g.projected and free(g) and len(g.factor.interfaces) == 1]
    matched = {g.name: NGMP(matched=True) for g in own if EP().supports(g.factor, 0) is None}  # type: ignore[arg-type]
    return groups, rules | matched | {g.name: EP() for g in groups if g.preferred}


def choose_rules(options: Options, names: dict[str, Any], groups: list[FactorGroup]) -> dict[str, Any]:
    """The rule of every group; unknown names are refused."""
    problems = []
    sites = {name for g in groups for name in g.given.names}
    used = {_rule_key(options, name) for name in sites}
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
    chosen = {}
    for group in groups:
        key = _rule_key(options, group.given.names[0])
        rule: AbstractRule = (options.method or NGMP()) if key is None else options.rules[key]
        if group.factor.deterministic:
            chosen[group.name] = rule if _supported(rule, group.factor) else NGMP()
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
