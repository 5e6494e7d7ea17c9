"""Programs: `ngmp.compile(model)` returns one. Like `jax.jit`, it specialises on the shapes of its inputs."""

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .declare.integrated import AUTO, SLOTS
from .emit.initial import Given
from .errors import ConvergenceWarning, DataError, warn
from .files.export import export, traced_and_fixed
from .inspect.describe import Description
from .integrate.run import NodeTable, integrate
from .ladder import climb
from .options import Options
from .passes.checks import Failure, explain, failures
from .passes.condition import Carry, check_carry, next_carry, prior_marginals
from .pipeline import Front, Specialised, Static, build, split, stage
from .precision import precision, reason
from .results.infer import infer, posterior, settle
from .results.mixture import mixed_prediction
from .results.posterior import Posterior, Prediction, not_converged
from .results.predict import predict
from .solve.implicit import flagged
from .solve.solver import CONVERGED, INVALID, REASONS, State
from .specialise import Specialisations
from .validate import bind, check_picklable


class Program:
    """A compiled model. Calling it runs inference to the fixed point; it is pure and composes with `jit` and `vmap`.

    Arrays and floats among the inputs are traced; integers, booleans, strings and callables are static, and a new
    value of one compiles anew, as does a new shape. Threads may share a program.
    """

    def __init__(self, model: Callable[..., Any], options: Options):
        self.model = model
        self._options = options
        self._signature = inspect.signature(model)
        functools.update_wrapper(self, model, updated=())
        self._compiled = Specialisations(options.max_specialisations)
        self._next: Program | None = None  # the next rung of the ladder, once one is needed

    def __deepcopy__(self, memo: dict) -> "Program":
        """A program of its own, with nothing compiled yet; models and options do not change, so they are shared."""
        return Program(self.model, self._options)

    def __reduce__(self) -> tuple:
        check_picklable(self.model, self._options._asdict())
        return Program, (self.model, self._options)

    def _split(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Static, list[Any]]:
        return split(bind(self.model, self._signature, args, kwargs))

    def _jitted(self, function: Callable, static: Static, dynamic: list[Any], *fixed: Any) -> Callable:
        """`function(static, *fixed, ...)` compiled for inputs of these shapes: a function of the rest."""
        return self._compiled.find(function, (static, *fixed), dynamic)

    def clear(self) -> None:
        """Drop everything that was compiled, and its memory; the next call compiles anew."""
        self._compiled.clear()

    def _front(self, static: Static, dynamic: list[Any], named: Iterable[str]) -> Front:
        """The model declared, rolled and typed; the model function runs once for inputs of these shapes and types."""
        dynamic = [jnp.asarray(x) for x in dynamic]
        key = static, frozenset(named), tuple([(x.shape, x.dtype, x.weak_type) for x in dynamic])
        make = functools.partial(stage, self.model, self._options, static, dynamic, key[1])
        return self._compiled.stage(key, make)(dynamic)

    def _build(
        self, static: Static, dynamic: list[Any], carry: Carry | None = None, seen: bool = True, v: Any = None
    ) -> Specialised:
        """All passes; with `carry` in place of priors, and without the data if they are not to be seen."""
        return self._passes(static, dynamic, carry, seen, v)[1]

    def _passes(
        self, static: Static, dynamic: list[Any], carry: Carry | None = None, seen: bool = True, v: Any = None
    ) -> tuple[Front, Specialised]:
        """The front and all passes, at coordinates v of the integrated sites, by default the centre of their priors."""
        carry = carry or {}
        others = (name for name in carry if name not in self._options.carry)
        if self._options.integrate:
            dynamic = [*dynamic, jnp.zeros(SLOTS, precision(dynamic)) if v is None else v]
        front = self._front(static, dynamic, others)
        return front, build(front, self._options, carry, seen)

    # -- the compiled functions --------------------------------------------------------------------------------------

    def _run_impl(
        self, static: Static, dynamic: list[Any], carry: Carry | None, init: State | Given | None
    ) -> Posterior:
        if self._options.integrate:
            passes = functools.partial(self._passes, static)
            return integrate(passes, dynamic, precision(dynamic), self._options.finer)
        return infer(self._build(static, dynamic, carry), init)

    def _init_impl(self, static: Static, dynamic: list[Any], init: Given | None) -> State:
        compiled = self._build(static, dynamic)
        return compiled.solver.init(compiled.map.initial(init))

    def _step_impl(self, static: Static, dynamic: list[Any], state: State) -> State:
        return self._build(static, dynamic).solver.sweep(state)

    def _posterior_impl(self, static: Static, dynamic: list[Any], state: State) -> Posterior:
        return posterior(self._build(static, dynamic), state)

    def _predict_impl(self, static: Static, site: str, dynamic: list[Any], state: State) -> Prediction:
        return predict(self._build(static, dynamic).map, site, state.leaves)

    def _mixed_impl(self, static: Static, site: str, dynamic: list[Any], nodes: NodeTable) -> Prediction:
        each = nodes.each(lambda v, leaves: predict(self._build(static, dynamic, v=v).map, site, leaves))
        return mixed_prediction(nodes.weights, each)

    def _start_impl(self, static: Static, dynamic: list[Any]) -> Carry:
        typed = self._front(static, dynamic, ())
        return prior_marginals(self._options.carry, typed.groups, typed.rolled.names)

    def _forecast_impl(
        self, static: Static, site: str, dynamic: list[Any], carry: Carry
    ) -> tuple[Prediction, jax.Array]:
        solver = self._build(static, dynamic, carry, seen=False).solver
        # Levels between the carried variables and the site may have messages of their own to agree on.
        state = settle(solver, solver.map.initial())
        status = solver.status(state)
        return flagged(status == CONVERGED, predict(solver.map, site, state.leaves)), status

    def _failures_impl(self, static: Static, dynamic: list[Any], carry: Carry | None) -> list[Failure]:
        return failures(self._build(static, dynamic, carry).plan)

    def _checked(self, static: Static, dynamic: list[Any], post: Posterior, carry: Carry | None = None) -> Posterior:
        """`post`, after an error if it is invalid and a warning if it has not converged; nothing if it is traced."""
        # In numpy: `jnp.any` would dispatch a program of its own, which costs as much as a tiny model.
        if isinstance(post.status, Tracer) or not (codes := np.asarray(post.status)).any():
            return post
        if (codes == INVALID).any():
            # Rare: find out what is wrong with these values, also where derivatives are being taken.
            values = jax.lax.stop_gradient(dynamic)
            raise DataError(explain(self._jitted(self._failures_impl, static, dynamic)(values, carry)))
        if not any(isinstance(x, Tracer) for x in dynamic):  # derivatives of such a run are NaN, which says it
            warn(not_converged(getattr(self.model, "__name__", "model"), post), ConvergenceWarning)
        return post

    def _other(self, **options: Any) -> "Program":
        """The same model with other options, kept for the next time."""
        if self._next is None:
            self._next = Program(self.model, self._options._replace(**options))
        return self._next

    # -- what the user calls ----------------------------------------------------------------------------------------

    def __call__(self, *args: Any, init: State | Given | None = None, **kwargs: Any) -> Posterior:
        """Run to the fixed point.

        Args:
            args, kwargs: inputs of the model function.
            init: where to start from instead of the automatic initialisation: a `State` (`post.state`), or marginals
                by name or pattern, `{"m": Gaussian.from_mean_variance(...), "neuron*/x": ...}`, of the shape of the
                variable or one for all of it.
        """
        if init is not None:
            self._needs_state("init=")
        static, dynamic = self._split(args, kwargs)
        post = self._jitted(self._run_impl, static, dynamic)(dynamic, None, init)
        return self._checked(static, dynamic, climb(self, static, dynamic, post))

    def init(self, *args: Any, init: Given | None = None, **kwargs: Any) -> State:
        """The state a run starts from; with `init`, at marginals by name, as in a call."""
        self._needs_state("program.init")
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._init_impl, static, dynamic)(dynamic, init)

    def step(self, state: State, *args: Any, **kwargs: Any) -> State:
        """One sweep: evaluate the map at the pending proposal and prepare the next. Pure."""
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._step_impl, static, dynamic)(dynamic, state)

    def posterior(self, state: State, *args: Any, **kwargs: Any) -> Posterior:
        """The posterior at a state."""
        static, dynamic = self._split(args, kwargs)
        return self._checked(static, dynamic, self._jitted(self._posterior_impl, static, dynamic)(dynamic, state))

    def predict(self, given: Posterior | Carry, site: str, *args: Any, **kwargs: Any) -> Prediction:
        """Predictive distribution of an observed site.

        Args:
            given: a posterior, together with the inputs it was computed from: predicts the elements of the site, also
                the masked ones. Or marginals by name, such as `{"v": post["v"], "w": post["w"]}` or the carry of a
                filter, together with any other inputs: the marginals take the place of priors, and the data of the
                inputs are not learned from, only scored.
            site: its name.
        """
        static, dynamic = self._split(args, kwargs)
        if isinstance(given, Posterior):
            if not isinstance(given.status, Tracer) and np.asarray(given.status).any():
                warn(f"prediction of '{site}' from a posterior that has not converged", ConvergenceWarning)
            if given.nodes is not None:
                return self._jitted(self._mixed_impl, static, dynamic, site)(dynamic, given.nodes)
            return self._jitted(self._predict_impl, static, dynamic, site)(dynamic, given.state)
        self._needs_state("program.predict from marginals")
        if not isinstance(given, dict):
            raise TypeError(f"predict was given a {type(given).__name__}; give a posterior, or marginals by name")
        prediction, status = self._jitted(self._forecast_impl, static, dynamic, site)(dynamic, given)
        if not isinstance(status, Tracer) and np.asarray(status) != CONVERGED:
            warn(f"prediction of '{site}': {REASONS[int(status)]}", ConvergenceWarning)
        return prediction

    def start(self, *args: Any, **kwargs: Any) -> Carry:
        """The first carry of a filter: the declared priors of the variables that `carry=` names."""
        self._needs_carry()
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._start_impl, static, dynamic)(dynamic)

    def update(self, carry: Carry, batch: dict[str, Any]) -> tuple[Carry, Posterior]:
        """One step of a filter: run on a batch with the marginals of `carry` as priors. Pure.

        `jax.lax.scan(program.update, program.start(**first), batches)` runs it over stacked batches. The carry is that
        of `start` or of the update before, a batch the inputs by name; returned are the next carry and the posterior.
        """
        self._needs_carry()
        static, dynamic = self._split((), batch)
        check_carry(self._options.carry, carry)
        post = climb(self, static, dynamic, self._jitted(self._run_impl, static, dynamic)(dynamic, carry, None), carry)
        self._checked(static, dynamic, post, carry)
        return next_carry(self._options.carry, post.marginals), post

    @property
    def carried(self) -> dict[str, str]:
        """What `carry=` named: the variable whose marginal becomes the next prior of each name."""
        return dict(self._options.carry)

    def _needs_state(self, what: str) -> None:
        """Refuse what is about one run, where a call is an integral over many."""
        if self._options.integrate and self._options.integrate != (AUTO,):
            works = "compile without integrate=, with the hyperparameters as inputs"
            raise TypeError(f"{what} is about one run, and integrate= makes a call many of them; {works}")

    def _needs_carry(self) -> None:
        self._needs_state("a filter")
        if not self._options.carry:
            raise ValueError("this program carries nothing: say what with ngmp.compile(..., carry=('v', 'w'))")

    def like(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        """The shapes of a result, `"Posterior"`, `"State"` or `"dict"` (a carry), for inputs of these shapes."""
        static, dynamic = self._split(args, kwargs)
        make = {
            "Posterior": lambda x: self._run_impl(static, x, None, None),
            "State": lambda x: self._init_impl(static, x, None),
            "dict": lambda x: self._start_impl(static, x),
        }
        return jax.eval_shape(make[kind], dynamic)

    def export(self, path: str | Path, *args: Any, platforms: tuple[str, ...] | None = None, **kwargs: Any) -> None:
        """Write the program, compiled for these inputs, to a file that runs without the source of the model.

        `ngmp.load_exported(path)` gives back a function of the inputs that are traced, of exactly these shapes; all
        others are fixed at what is given here: arrays or `jax.ShapeDtypeStruct`. `platforms` are such as
        `("cpu", "cuda")`, by default the one this process runs on.
        """
        bound = bind(self.model, self._signature, args, kwargs)
        traced, fixed = traced_and_fixed(bound)

        def run(inputs: dict[str, Any]) -> Posterior:
            static, dynamic = split({name: {**fixed, **inputs}[name] for name in bound})
            return self._run_impl(static, dynamic, None, None)

        export(run, path, traced, fixed, platforms)

    def lower(self, *args: Any, **kwargs: Any) -> Description:
        """The plan for inputs of these shapes (arrays or `jax.ShapeDtypeStruct`), without running anything."""
        static, dynamic = self._split(args, kwargs)
        name = getattr(self.model, "__name__", "model")
        why = reason(bind(self.model, self._signature, args, kwargs))
        return jax.eval_shape(lambda x: Description(self._passes(static, x), name, why), dynamic)

    def specialise(self, *args: Any, **kwargs: Any) -> Specialised:
        """The plan, map and solver for these inputs, as one value: a pytree of arrays with static structure.

        It can be printed, compared, and passed to jitted functions, `jax.jit(lambda s: s.map.energy(leaves))(found)`.
        """
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._build, static, dynamic)(dynamic)
