"""The passes in order: from the inputs of a model to the map and solver of one specialisation of it."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr

from .declare.inputs import Input, wrap
from .declare.integrated import ASKED, AUTO, MOST, Coordinates, Integrated
from .declare.sample import trace
from .emit.map import Map
from .errors import ModelError
from .graph.groups import FactorGroup
from .options import MAX_SWEEPS, Options, check_repeats, check_rules, choose_blocks, choose_rules, set_apart
from .passes.condition import Carry, check_sources, replace_priors, unobserved
from .passes.factorise import factorise
from .passes.join import join
from .passes.lower import lower, shared_scales
from .passes.roll import Rolled, roll
from .precision import precision, widen_halves
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


class Front(Value):
    """A model declared, rolled and typed; `integrated` are the sites that stand as numbers."""

    def __init__(self, rolled: Rolled, groups: list[FactorGroup], dtype: Any, integrated: dict[str, Integrated]):
        self.rolled, self.groups, self.dtype = rolled._replace(groups=[]), groups, dtype
        self.integrated = integrated

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


def split(arguments: dict[str, Any]) -> tuple[Static, list[Any]]:
    """The inputs of a model, by name, as what is static and a list of what is traced."""
    check_inputs(arguments, jax.tree.leaves(arguments))
    leaves, tree = jax.tree.flatten(widen_halves(arguments))
    static = tuple(None if isinstance(x, _DYNAMIC) else x for x in leaves)
    return Static(tree, static, tuple(map(type, static))), [x for x in leaves if isinstance(x, _DYNAMIC)]


def front(model: Callable, options: Options, static: Static, dynamic: list[Any], named: Iterable[str] = ()) -> Front:
    """Declare, roll, type; variables that are `named` are not rolled together with others.

    Where sites are integrated, their coordinates are the last of the inputs.
    """
    *inputs, v = dynamic if options.integrate else [*dynamic, None]
    dtype = precision(inputs)
    values = iter(inputs)
    leaves = [next(values) if s is None else s for s in static.static]
    arguments = {k: wrap(x) for k, x in jax.tree.unflatten(static.tree, leaves).items()}
    arguments = _spread(inspect.signature(model), arguments)

    def typed(coordinates: Coordinates | None) -> Front:
        graph = trace(model, arguments, coordinates)
        names = dict.fromkeys((*graph.nodes, *(site.name for site in graph.sites)))
        rolled = roll(graph, set_apart(options, named, names))
        check_sources(options.carry, rolled.names)
        return Front(rolled, lower(rolled, dtype), dtype, graph.integrated)

    if options.integrate == (AUTO,):
        return _automatic(typed, v)
    return typed(Coordinates(dict.fromkeys(options.integrate, ASKED), v) if options.integrate else None)


def _automatic(typed: Callable[[Coordinates], Front], v: Any) -> Front:
    """The front with the sites integrated that need it: those without a family; if there is no kernel then, scalars
    that are in no Gaussian part; and scales that many factors share. The model runs again for every set it takes."""
    chosen: dict[str, str] = {}
    while True:
        coordinates = Coordinates(chosen, v, automatic=True)
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


def build(typed: Front, options: Options, carry: Carry, seen: bool) -> Specialised:
    """Factorise, schedule, emit; with `carry` in place of priors, and without data that are not to be seen."""
    rolled, groups, dtype = typed.rolled, typed.groups, typed.dtype
    groups = replace_priors(groups, carry, rolled.names, dtype)
    groups = groups if seen else unobserved(groups)
    rules = choose_rules(options, rolled.names, groups)
    groups = join(groups, rules, options.joint, rolled.names)
    check_repeats(groups)
    groups = factorise(groups, rules, options.factorise, rolled.names)
    check_rules(rules, groups)
    plan = schedule(rolled, groups, dtype, options.executors)
    map = Map(plan, rules, options.settles)
    tol = options.tol if options.tol is not None else (1e-8 if dtype == jnp.float64 else 1e-4)
    sweeps = MAX_SWEEPS if options.max_sweeps is None else options.max_sweeps
    return Specialised(Solver(map, options.rungs[options.rung], sweeps, tol, choose_blocks(options, groups)))


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
