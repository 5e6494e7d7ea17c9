"""The passes in order: from the inputs of a model to the map and solver of one specialisation of it."""

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr

from .declare.inputs import Input, wrap
from .declare.integrated import ASKED, AUTO, MOST, Coordinates, Integrated
from .declare.numbers import LAZY, Number
from .declare.sample import trace
from .emit.map import Map
from .emit.rules.halved import halved
from .errors import ModelError
from .graph.groups import FactorGroup
from .graph.index import GivenMap
from .lift.own import Lifted, went_through_jax
from .options import Options
from .passes.condition import Carry, check_sources, replace_priors, unobserved
from .passes.factorise import factorise
from .passes.join import join
from .passes.lower import lower, shared_scales
from .passes.roll import Rolled, roll
from .passes.rules import check_repeats, check_rules, choose_blocks, choose_rules, rules_by_kind, set_apart
from .precision import input_name, precision, widen_halves
from .schedule.choose import Plan, schedule
from .solve.solver import Solver
from .validate import check_inputs
from .value import Value

_DYNAMIC = (float, complex, np.ndarray, np.generic, jax.Array, Input, jax.ShapeDtypeStruct)


class Static(NamedTuple):
    """What a program is specialised on besides shapes: the tree of its inputs and the values that are not arrays."""

    tree: Any
    static: tuple[Any, ...]
    kinds: tuple[type, ...]  # of these values: 1 == True, and yet they are not the same

    @property
    def words(self) -> str:
        """What else than shapes and plain values it is for."""
        places = jax.tree.unflatten(self.tree, range(len(self.static)))
        own = {i for i, x in enumerate(self.static) if isinstance(x, Contents)}
        names = [input_name(path) for path, i in jax.tree_util.tree_leaves_with_path(places) if i in own]
        return f"\n  compiled for the contents of {', '.join(names)}: the schedule depends on them" if names else ""


class Front(Value):
    """A model declared, rolled and typed; `integrated` are the sites that stand as numbers."""

    def __init__(
        self, rolled: Rolled, groups: list[FactorGroup], dtype: Any, integrated: dict[str, Integrated],
        notes: tuple = (),
    ):
        self.rolled, self.groups, self.dtype = rolled._replace(groups=[]), groups, dtype
        self.integrated, self.notes = integrated, notes

    @property
    def given(self) -> bool:
        """Whether inputs say which variables factors touch."""
        ends = (end for group in self.groups for edge in group.edges if edge is not None for end in edge.ends())
        return any(isinstance(end.index, GivenMap) for end in ends)

    @property
    def log_jacobian(self) -> Any:
        """Of the values of all integrated sites in their coordinates."""
        return sum(site.log_jacobian for site in self.integrated.values())


class Specialised(Value):
    """All that one specialisation of a program consists of: plan, map and solver, with the arrays of its inputs."""

    def __init__(self, solver: Solver):
        self.solver = solver

    @property
    def map(self) -> Map:
        return self.solver.map

    @property
    def plan(self) -> Plan:
        return self.map.plan


class Contents:
    """An array among the static values: the structure of the model depends on what is in it."""

    def __init__(self, array: Any):
        self.array = np.asarray(array)
        self._hash = hash((self.array.shape, self.array.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and np.array_equal(self.array, other.array)

    def __repr__(self) -> str:
        return f"an index of shape {self.array.shape}"


def split(
    arguments: dict[str, Any], data: Callable[[Any, int], bool] | None = None, contents: Collection[tuple] = ()
) -> tuple[Static, list[Any]]:
    """The inputs of a model, by name, as what is static and a list of what is traced.

    `data` says which integers, by the tree of the inputs and their place among its leaves, are traced as well;
    `contents` are the arrays, by tree and place, that are static.
    """
    check_inputs(arguments, jax.tree.leaves(arguments))
    leaves, tree = jax.tree.flatten(widen_halves(arguments))
    static = [None if isinstance(x, _DYNAMIC) else x for x in leaves]
    for i in (i for of, i in contents if of == tree and not isinstance(leaves[i], Tracer)):
        static[i] = Contents(leaves[i])
    if data is not None:
        static = [LAZY if type(x) is int and data(tree, i) else x for i, x in enumerate(static)]
    dynamic = [np.asarray(x) if s is LAZY else x for x, s in zip(leaves, static, strict=True) if s is None or s is LAZY]
    return Static(tree, tuple(static), tuple(map(type, static))), dynamic


def front(model: Callable, options: Options, static: Static, dynamic: list[Any], named: Iterable[str] = ()) -> Front:
    """Declare, roll, type; variables that are `named` are not rolled together with others.

    Where sites are integrated, their coordinates are the last of the inputs.
    """
    *inputs, v = dynamic if options.integrate else [*dynamic, None]
    dtype = precision(inputs)
    values = iter(inputs)
    leaves = [next(values) if s is None else Number(next(values), i) if s is LAZY else
              s.array if isinstance(s, Contents) else s for i, s in enumerate(static.static)]  # fmt: skip
    arguments = {k: wrap(x, leaves) for k, x in jax.tree.unflatten(static.tree, leaves).items()}
    arguments = _spread(inspect.signature(model), arguments)

    def typed(coordinates: Coordinates | None) -> Front:
        graph = _traced(model, arguments, coordinates, options.logs)
        names = dict.fromkeys((*graph.nodes, *(site.name for site in graph.sites)))
        rolled = roll(graph, set_apart(options, named, names))
        check_sources(options.carry, rolled.names)
        return Front(rolled, lower(rolled, dtype), dtype, graph.integrated, graph.notes)

    if options.integrate == (AUTO,):
        return _automatic(typed, v, options.direct)
    names = dict.fromkeys(options.integrate, ASKED)
    return typed(Coordinates(names, v, direct=options.direct) if options.integrate else None)


def _traced(model: Callable, arguments: dict[str, Any], coordinates: Coordinates | None, logs: Iterable[str]) -> Any:
    """The graph of a model; where functions of jax met its random variables, as the interpreter reads it."""
    state = None if coordinates is None else (coordinates.used, dict(coordinates.found))
    try:
        return trace(model, arguments, coordinates, logs)
    except (ModelError, TypeError) as error:
        if not went_through_jax(error):
            raise
        first = error
    if coordinates is not None and state is not None:
        coordinates.used, coordinates.found = state
    try:
        return trace(Lifted(model), arguments, coordinates, logs)
    except Exception as error:
        # What only says that arrays are no variables (the carry of a scan, say) says less than the first error.
        if isinstance(error, ModelError) and all(p.site not in (None, "ngmp.scan") for p in error.problems):
            raise
        raise first from error


def _automatic(typed: Callable[[Coordinates], Front], v: Any, direct: bool) -> Front:
    """The front with the sites integrated that need it: those without a family; if there is no kernel then, scalars
    that are in no Gaussian part; and scales that many factors share. The model runs again for every set it takes."""
    chosen: dict[str, str] = {}
    while True:
        coordinates = Coordinates(chosen, v, automatic=True, direct=direct)
        try:
            found = typed(coordinates)
        except (ModelError, TypeError):
            more = {k: why for k, why in coordinates.candidates.items() if k not in chosen}
            if not more:
                raise
        else:
            more = {k: why for k, why in shared_scales(found.groups, found.rolled.names).items() if k not in chosen}
            if not more or coordinates.used + len(more) > MOST:
                return found
        chosen |= more


def stage(model: Callable, options: Options, static: Static, dynamic: list[Any], named: Iterable[str]) -> Callable:
    """`front`, run once, as a function of the traced inputs that runs no model: for inputs of these shapes."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in dynamic]
    program, found = jax.make_jaxpr(lambda x: front(model, options, static, x, named), return_shape=True)(shapes)
    tree = jax.tree.structure(found)

    def typed(dynamic: list[Any]) -> Front:
        found = eval_jaxpr(program.jaxpr, program.consts, *dynamic)
        # Literals come as a kind of array of their own.
        return jax.tree.unflatten(tree, [x if isinstance(x, jax.Array) else np.asarray(x) for x in found])

    return typed


def build(typed: Front, options: Options, carry: Carry | None = None, seen: bool = True) -> Specialised:
    """Factorise, schedule, emit; with `carry` in place of priors, and without data that are not to be seen."""
    rolled, groups, dtype = typed.rolled, typed.groups, typed.dtype
    groups = replace_priors(groups, carry or {}, rolled.names, dtype)
    groups = groups if seen else unobserved(groups)
    rules = choose_rules(options, rolled.names, groups)
    groups = join(groups, rules, options.joint, rolled.names)
    groups, rules = rules_by_kind(options, rules, groups, bool(typed.integrated))
    check_repeats(groups)
    groups = factorise(groups, rules, options.factorise, rolled.names)
    check_rules(rules, groups)
    plan = schedule(rolled, groups, dtype, options.executors)
    if options.descends:
        rules = {g.name: rules[g.name].variational(g.factor) if g.projected else rules[g.name] for g in plan.groups}
    if options.halves:
        rules = {g.name: halved(rules[g.name], g.factor) if g.projected else rules[g.name] for g in plan.groups}
    map = Map(plan, rules, options.settles)
    tol = options.tol if options.tol is not None else (1e-8 if dtype == jnp.float64 else 1e-4)
    step, blocks = options.rungs[options.rung], choose_blocks(options, groups)
    descends = options.descends and map.stationary
    return Specialised(Solver(map, step, options.sweeps, tol, blocks, descends, options.newton))


def _spread(signature: inspect.Signature, arguments: dict[str, Any]) -> dict[str, Any]:
    """Undo the nesting of **kwargs in bound arguments."""
    out = {}
    for name, value in arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            out.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise TypeError(f"model argument '{name}' must be usable by name; *args are not supported")
        else:
            out[name] = value
    return out
