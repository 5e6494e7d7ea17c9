"""Programs: `ngmp.compile(model)` returns one. Like `jax.jit`, it specialises on the shapes of its inputs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from ._adaptive import adaptive
from ._checks import checks, explain
from ._core import Leaves
from ._declare import trace
from ._describe import Description
from ._emit import Map
from ._errors import DataError
from ._factorise import factorise
from ._implicit import attach
from ._inputs import Input, wrap
from ._options import Options, check_repeats, check_rules, choose_blocks, choose_rules
from ._posterior import Posterior, Prediction, runs
from ._predict import predict
from ._roll import roll
from ._rules import NGMP
from ._schedule import Plan, schedule
from ._solve import CONVERGED, INVALID, Solver, State
from ._type import lower
from ._validate import bind, check_inputs, check_options


class _Static(NamedTuple):
    """What a program is specialised on besides shapes: the tree of its inputs and the values that are not arrays."""

    tree: Any
    static: tuple[Any, ...]


def _is_dynamic(x: Any) -> bool:
    return isinstance(x, (float, complex, np.ndarray, np.generic, jax.Array, Input))


class Compiled(NamedTuple):
    """All that one specialisation of a program consists of."""

    plan: Plan
    map: Map
    solver: Solver


class Program:
    """A compiled model. Calling it runs inference to the fixed point; it is pure and composes with `jit` and `vmap`.

    Arrays and floats among the inputs are traced; integers, booleans, strings and callables are static, and a new
    value of one compiles anew, as does a new shape.
    """

    def __init__(self, model: Callable, options: Options):
        self.model = model
        self._options = options
        self._signature = inspect.signature(model)
        functools.update_wrapper(self, model, updated=())
        # Bound methods hash by instance, so every program has its own cache.
        self._run = jax.jit(self._run_impl, static_argnums=0)
        self._init = jax.jit(self._init_impl, static_argnums=0)
        self._step = jax.jit(self._step_impl, static_argnums=0)
        self._posterior = jax.jit(self._posterior_impl, static_argnums=0)
        self._predict = jax.jit(self._predict_impl, static_argnums=(0, 1))

    # -- inputs -----------------------------------------------------------------------------------------------------

    def _split(self, args: tuple, kwargs: dict[str, Any]) -> tuple[_Static, list[Any]]:
        arguments = bind(self.model, self._signature, args, kwargs)
        leaves, tree = jax.tree.flatten(arguments)
        check_inputs(arguments, leaves)
        static = tuple(None if _is_dynamic(x) else x for x in leaves)
        return _Static(tree, static), [x for x in leaves if _is_dynamic(x)]

    def _build(self, static: _Static, dynamic: list[Any]) -> Compiled:
        arrays = [x for x in dynamic if not isinstance(x, (float, complex)) and not getattr(x, "weak_type", False)]
        floats = [x.dtype for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)]
        dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
        values = iter(dynamic)
        leaves = [next(values) if s is None else s for s in static.static]
        arguments = {k: wrap(v) for k, v in jax.tree.unflatten(static.tree, leaves).items()}
        rolled = roll(trace(self.model, _spread(self._signature, arguments)))
        options = self._options
        groups = lower(rolled, dtype)
        check_repeats(groups)
        rules = choose_rules(options, rolled.names, groups)
        groups = factorise(groups, rules, options.factorise, rolled.names)
        check_rules(rules, groups)
        plan = schedule(rolled, groups, dtype)
        map = Map(plan, rules)
        tol = options.tol if options.tol is not None else (1e-8 if dtype == jnp.float64 else 1e-4)
        return Compiled(plan, map, Solver(map, options.solver, options.max_sweeps, tol, choose_blocks(options, map)))

    # -- the compiled functions --------------------------------------------------------------------------------------

    def _violations(self, compiled: Compiled) -> jax.Array:
        found = [jnp.any(~check.ok) for check in checks(compiled.plan)]
        return jnp.any(jnp.stack(found)) if found else jnp.asarray(False)

    def _run_impl(self, static: _Static, dynamic: list[Any], init: State | None) -> tuple[Posterior, jax.Array]:
        compiled = self._build(static, dynamic)
        invalid = self._violations(compiled)
        if not compiled.map.projected:
            return self._finish(compiled, compiled.solver.init({}), invalid), invalid
        # The iteration is not differentiated; the fixed point is.
        frozen = self._build(static, jax.lax.stop_gradient(dynamic))
        start = frozen.map.initial() if init is None else jax.lax.stop_gradient(init.leaves)
        state = frozen.solver.run(frozen.solver.init(start))

        def target(leaves: Leaves, dynamic: list[Any]) -> Leaves:
            return self._build(static, dynamic).map.evaluate(leaves).target

        state = eqx.tree_at(lambda s: s.leaves, state, attach(target, state.leaves, dynamic))
        return self._finish(compiled, state, invalid), invalid

    def _finish(self, compiled: Compiled, state: State, invalid: jax.Array) -> Posterior:
        plan, map = compiled.plan, compiled.map
        result = map.core.run(state.leaves)
        if map.projected:
            status = compiled.solver.status(state)
        else:  # conjugate: the core is exact, in one sweep
            residuals = jnp.where(result.proper, 0.0, jnp.inf).astype(plan.dtype)[None]
            state = State(state.leaves, state.step, state.memory, residuals, jnp.asarray(1), state.shrinks)
            status = compiled.solver.status(state)
        status = jnp.where(invalid, INVALID, status)
        marginals = {}
        for name, (plane, positions) in plan.names.items():
            start, count = int(positions.reshape(-1)[0]), positions.size
            whole = result.planes[plane]

            def shaped(x: jax.Array, start=start, count=count, shape=positions.shape) -> jax.Array:
                part = x if count == x.shape[0] else x[start : start + count]
                return part.reshape(*shape, *x.shape[1:])

            marginals[name] = jax.tree.map(shaped, whole)
        energy = map.free_energy(state.leaves, result)
        neighbours = runs(plan.names, result.neighbours)
        return Posterior(
            marginals, energy, status == CONVERGED, state.sweeps, state.residual, status, state, neighbours
        )

    def _init_impl(self, static: _Static, dynamic: list[Any]) -> State:
        compiled = self._build(static, dynamic)
        return compiled.solver.init(compiled.map.initial())

    def _step_impl(self, static: _Static, dynamic: list[Any], state: State) -> State:
        return self._build(static, dynamic).solver.sweep(state)

    def _posterior_impl(self, static: _Static, dynamic: list[Any], state: State) -> tuple[Posterior, jax.Array]:
        compiled = self._build(static, dynamic)
        invalid = self._violations(compiled)
        return self._finish(compiled, state, invalid), invalid

    def _predict_impl(self, static: _Static, site: str, dynamic: list[Any], state: State) -> Prediction:
        return predict(self._build(static, dynamic).map, site, state.leaves)

    def _checked(self, static: _Static, dynamic: list[Any], invalid: jax.Array) -> None:
        if isinstance(invalid, Tracer) or not bool(jnp.any(invalid)):
            return
        # Rare: find out what is wrong by tracing once more.
        raise DataError(explain(lambda values: self._build(static, values).plan, dynamic))

    # -- what the user calls ----------------------------------------------------------------------------------------

    def __call__(self, *args: Any, init: State | None = None, **kwargs: Any) -> Posterior:
        """Run to the fixed point.

        Args:
            args, kwargs: inputs of the model function.
            init: a `State` to start from (`post.state`), instead of the automatic initialisation.
        """
        static, dynamic = self._split(args, kwargs)
        post, invalid = self._run(static, dynamic, init)
        self._checked(static, dynamic, invalid)
        return post

    def init(self, *args: Any, **kwargs: Any) -> State:
        """The state a run starts from."""
        return self._init(*self._split(args, kwargs))

    def step(self, state: State, *args: Any, **kwargs: Any) -> State:
        """One sweep: evaluate the map at the pending proposal and prepare the next. Pure."""
        return self._step(*self._split(args, kwargs), state)

    def posterior(self, state: State, *args: Any, **kwargs: Any) -> Posterior:
        """The posterior at a state."""
        static, dynamic = self._split(args, kwargs)
        post, invalid = self._posterior(static, dynamic, state)
        self._checked(static, dynamic, invalid)
        return post

    def predict(self, post: Posterior, site: str, *args: Any, **kwargs: Any) -> Prediction:
        """Predictive distribution of an observed site, also where it was masked, under the posterior's marginals."""
        static, dynamic = self._split(args, kwargs)
        return self._predict(static, site, dynamic, post.state)

    def lower(self, *args: Any, **kwargs: Any) -> Description:
        """The plan for inputs of these shapes (arrays or `jax.ShapeDtypeStruct`), without running anything."""
        leaves, tree = jax.tree.flatten(bind(self.model, self._signature, args, kwargs))
        dynamic = [_is_dynamic(x) or isinstance(x, jax.ShapeDtypeStruct) for x in leaves]
        static = _Static(tree, tuple(None if d else x for d, x in zip(dynamic, leaves, strict=True)))
        built: list[Compiled] = []

        def build(values: list[Any]) -> int:
            built.append(self._build(static, values))
            built[-1].map.initial()
            return 0

        jax.eval_shape(build, [x for d, x in zip(dynamic, leaves, strict=True) if d])
        return Description(built[0].plan, built[0].map, built[0].solver, getattr(self.model, "__name__", "model"))


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


def compile(
    model: Callable,
    *,
    method: Any = None,
    rules: dict[str, Any] | None = None,
    families: dict[str, Any] | None = None,
    factorise: list[str | tuple[Any, ...]] | None = None,
    schedule: list[str | tuple[str, ...]] | None = None,
    solver: optax.GradientTransformation | None = None,
    max_sweeps: int = 500,
    tol: float | None = None,
) -> Program:
    """Compile a model function to a program.

    Args:
        model: declares the model with `ngmp.sample`, `ngmp.scan`, `ngmp.factor`.
        method: the message rule of every interface without a conjugate kernel; `NGMP()` by default.
        rules: rules by site name, where they differ from `method`.
        families: families by variable name, asserted against the model.
        factorise: clusters that are independent of each other: `[("x", "tau")]` is q(x) q(tau), and a nested tuple
            keeps several names joint, `[(("z0", "z"), "tau")]`. A factor between clusters sends mean-field messages
            (NGMP becomes NCVMP there); under a mean-field rule, every variable that is not named is on its own.
        schedule: blocks of sites (`"y"`) or interfaces (`"y.tau"`) updated one after the other in a sweep, each at the
            newest marginals; by default all at once.
        solver: any `optax` transformation; it sees `eta - eta*` as the gradient. By default `ngmp.adaptive()`.
        max_sweeps: give up, and say so, after this many sweeps.
        tol: relative residual at which a run has converged; by default 1e-8 in float64, 1e-4 in float32.

    Returns:
        A `Program`.
    """
    if not callable(model):
        raise TypeError(f"compile needs a model function, not {type(model).__name__}")
    check_options(method, rules or {}, families or {}, solver, max_sweeps, tol)
    entries = [(e,) if isinstance(e, str) else tuple(e) for e in factorise or []]
    clusters = [(c,) if isinstance(c, str) else tuple(c) for entry in entries for c in entry]
    blocks = None if schedule is None else [(b,) if isinstance(b, str) else tuple(b) for b in schedule]
    options = Options(
        method or NGMP(), dict(rules or {}), dict(families or {}), clusters, blocks, solver or adaptive(),
        int(max_sweeps), tol,
    )  # fmt: skip
    return Program(model, options)
