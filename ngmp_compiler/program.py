"""Programs: `ngmp.compile(model)` returns one. Like `jax.jit`, it specialises on the shapes of its inputs."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .analyses import Analyses
from .emit.initial import Given
from .errors import ConvergenceWarning, DataError, warn
from .files.export import export_run
from .inspect.describe import Description
from .inspect.explore import Subject
from .integrate.run import NodeTable, integrate
from .ladder import climb
from .passes.checks import Failure, explain, failures
from .passes.condition import Carry, check_carry, next_carry, prior_marginals
from .pipeline import Specialised, Static, build
from .precision import precision, reason
from .progress import said, watched
from .results.anneal import check_schedules, places
from .results.draws import Origin, Source, remember, sourced
from .results.infer import infer, posterior, settle
from .results.labels import Labels, labels_of
from .results.mixture import mixed_prediction
from .results.posterior import Posterior, Prediction, not_converged
from .results.predict import predict
from .results.renew import forecast, predict_new
from .solve.implicit import flagged
from .solve.solver import CONVERGED, INVALID, REASONS, UNDEFINED, State
from .validate import bind


class Program(Analyses):
    """A compiled model. Calling it runs inference to the fixed point; it is pure and composes with `jit` and `vmap`.

    Arrays and floats among the inputs are traced, and so are integers unless the structure of the model depends on
    their value; booleans, strings and callables are static, and a new value of one compiles anew, as does a new shape.
    Threads may share a program.
    """

    def __repr__(self) -> str:
        given = f", integrate={self._options.integrate}" if self._options.integrate else ""
        count = f"{len(self._compiled)} functions compiled" if len(self._compiled) else "nothing compiled yet"
        return f"Program {getattr(self.model, '__name__', 'model')}{self.signature}{given}: {count}"

    # -- the compiled functions --------------------------------------------------------------------------------------

    def _run_impl(
        self, static: Static, dynamic: list[Any], carry: Carry | None, init: State | Given | None
    ) -> Posterior:
        if self._options.integrate:
            declared, options = functools.partial(self._front_at, static), self._options
            return integrate(declared, lambda f: build(f, options), dynamic, precision(dynamic), options.effort)
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
        if (codes == UNDEFINED).any() and not np.ndim(codes):
            found = self._jitted(self._undefined_impl, static, dynamic)(jax.lax.stop_gradient(dynamic), post.state)
            raise DataError(f"{REASONS[UNDEFINED]}: site {', '.join(name for name, nan in found.items() if nan)}")
        if not any(isinstance(x, Tracer) for x in dynamic):  # derivatives of such a run are NaN, which says it
            warn(not_converged(getattr(self.model, "__name__", "model"), post), ConvergenceWarning)
        return post

    # -- what the user calls ----------------------------------------------------------------------------------------

    def __call__(
        self, *args: Any, init: State | Given | None = None, anneal: dict[str, Any] | None = None,
        progress: bool = False, verbose: bool = False, **kwargs: Any,
    ) -> Posterior:  # fmt: skip
        """Run to the fixed point.

        Args:
            args, kwargs: inputs of the model function.
            init: where to start from instead of the automatic initialisation: a `State` (`post.state`), or marginals
                by name or pattern, `{"m": Gaussian.from_mean_variance(...), "neuron*/x": ...}`, of the shape of the
                variable or one for all of it.
            anneal: inputs that change from sweep to sweep, by name: one value a sweep, `{"beta": betas}`, in the place
                of the input. The last value holds from then on, and is what the posterior is of.
            progress: show sweeps, residual and time left of an eager run that takes more than a second (with tqdm, if
                that is installed).
            verbose: print what was compiled, how long that took, and what every sweep does.
        """
        if init is not None:
            self._needs_state("init=")
        inputs = bind(self.model, self.signature, args, kwargs)
        schedules = check_schedules(anneal, inputs, getattr(self.model, "__name__", "model"), self._options.integrate)
        inputs |= {name: values[-1] for name, values in schedules.items()}
        static, dynamic = self._numbers.split(inputs, self._try)
        name = getattr(self.model, "__name__", "model")
        plan = functools.partial(jax.eval_shape, lambda x: self._build(static, x).plan, dynamic)
        with said(name, plan) if verbose else contextlib.nullcontext():
            end = self._watched(static, dynamic, init) if progress and not schedules else None
            if schedules:
                run = self._jitted(self._anneal_impl, static, dynamic, places(static, list(schedules)))
                post = run(dynamic, list(schedules.values()), init)
            elif end is None:
                post = self._jitted(self._run_impl, static, dynamic)(dynamic, None, init)
            else:
                post = self._jitted(self._posterior_impl, static, dynamic)(dynamic, end)
            post = self._checked(static, dynamic, climb(self, static, dynamic, post, init=init))
        return remember(post, Origin(self, inputs, static, dynamic, labels=self._labels(args, kwargs)))

    def _chunk_impl(self, static: Static, dynamic: list[Any], state: State, until: Any) -> tuple[State, Any]:
        solver = self._build(static, dynamic).solver
        state = jax.lax.while_loop(lambda s: solver.running(s) & (s.sweeps < until), solver.sweep, state)
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state), solver.running(state)

    def _watched(self, static: Static, dynamic: list[Any], init: State | Given | None) -> State | None:
        """The end of a run that is shown while it goes on; None where there is nothing to show."""
        if self._options.integrate or any(isinstance(x, Tracer) for x in dynamic):
            return None
        shapes = jax.eval_shape(lambda x: self._build(static, x), dynamic)
        if not shapes.map.projected:
            return None
        state = init if isinstance(init, State) else self._jitted(self._init_impl, static, dynamic)(dynamic, init)
        advance = self._jitted(self._chunk_impl, static, dynamic)
        begin = jax.tree.map(np.asarray, state)  # of the types that comes back: nothing compiles twice
        name = getattr(self.model, "__name__", "model")
        return watched(lambda state, until: advance(dynamic, state, until), begin, shapes.solver.tol, name)

    def _labels(self, args: tuple, kwargs: dict[str, Any]) -> Labels:
        """What inputs say of their axes, as they were given."""
        return labels_of(dict(self.signature.bind_partial(*args, **kwargs).arguments))

    def init(self, *args: Any, init: Given | None = None, **kwargs: Any) -> State:
        """The state a run starts from; with `init`, at marginals by name, as in a call."""
        self._needs_state("program.init")
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._init_impl, static, dynamic)(dynamic, init)

    def step(self, state: State, *args: Any, **kwargs: Any) -> State:
        """One sweep. Pure."""
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._step_impl, static, dynamic)(dynamic, state)

    def posterior(self, state: State, *args: Any, **kwargs: Any) -> Posterior:
        """The posterior at a state."""
        static, dynamic = self._split(args, kwargs)
        post = self._checked(static, dynamic, self._jitted(self._posterior_impl, static, dynamic)(dynamic, state))
        return remember(post, Origin(self, bind(self.model, self.signature, args, kwargs), static, dynamic))

    def predict(self, given: Posterior | Carry, site: str, *args: Any, **kwargs: Any) -> Prediction:
        """Predictive distribution of an observed site.

        Args:
            given: a posterior: predicts the elements of the site, also the masked ones. Other inputs than its own are
                new rows, from which nothing is learned; see `results.renew`. (One that went through `jit`, `vmap` or a
                file has forgotten its inputs, and takes the same ones only.) Or marginals by name, `{"v": post["v"]}`
                or the carry of a filter, with any inputs: they take the place of priors, and data are only scored.
            site: its name.
        """
        if isinstance(given, Posterior) and (found := predict_new(self, given, site, args, kwargs)) is not None:
            known = getattr(found, "origin", None)  # labels are those of the inputs as they were given here
            return found if known is None else sourced(found, known._replace(labels=self._labels(args, kwargs)))
        static, dynamic = self._split(args, kwargs)
        if isinstance(given, Posterior):
            if not isinstance(given.status, Tracer) and np.asarray(given.status).any():
                warn(f"prediction of '{site}' from a posterior that has not converged", ConvergenceWarning)
            if given.nodes is not None:
                found = self._jitted(self._mixed_impl, static, dynamic, site)(dynamic, given.nodes)
            else:
                found = self._jitted(self._predict_impl, static, dynamic, site)(dynamic, given.state)
            return sourced(found, Source(self, given, site, static, dynamic, labels=self._labels(args, kwargs)))
        self._needs_state("program.predict from marginals")
        if not isinstance(given, dict):
            raise TypeError(f"predict was given a {type(given).__name__}; give a posterior, or marginals by name")
        prediction, status = self._jitted(self._forecast_impl, static, dynamic, site)(dynamic, given)
        if not isinstance(status, Tracer) and np.asarray(status) != CONVERGED:
            warn(f"prediction of '{site}': {REASONS[int(status)]}", ConvergenceWarning)
        return prediction

    def forecast(self, post: Posterior, steps: int, site: str | None = None, **future: Any) -> Prediction:
        """The predictive distribution of the steps after those of a posterior, of an observed site (the only one).

        `future` are values, at these steps, of inputs that have one for each and are no observations. The whole is
        solved again, from the posterior's inputs and with all outcomes to come missing.
        """
        return forecast(self, post, steps, site, future)

    def start(self, *args: Any, **kwargs: Any) -> Carry:
        """The first carry of a filter: the declared priors of the variables that `carry=` names."""
        self._needs_carry()
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._start_impl, static, dynamic)(dynamic)

    def update(self, carry: Carry, batch: dict[str, Any]) -> tuple[Carry, Posterior]:
        """One step of a filter: run on a batch, the inputs by name, with the marginals of `carry` as priors. Pure.

        `jax.lax.scan(program.update, program.start(**first), batches)` runs it over stacked batches.
        """
        self._needs_carry()
        static, dynamic = self._split((), batch)
        check_carry(self._options.carry, carry)
        post = climb(self, static, dynamic, self._jitted(self._run_impl, static, dynamic)(dynamic, carry, None), carry)
        self._checked(static, dynamic, post, carry)
        post = remember(post, Origin(self, batch, static, dynamic, carry))
        return next_carry(self._options.carry, post.marginals), post

    @property
    def carried(self) -> dict[str, str]:
        """What `carry=` named: the variable whose marginal becomes the next prior of each name."""
        return dict(self._options.carry)

    def _needs_carry(self) -> None:
        self._needs_state("a filter")
        if not self._options.carry:
            raise ValueError("this program carries nothing: say what with ngmp.compile(..., carry=('v', 'w'))")

    def like(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        """The shapes of a "Posterior", a "State" or a "dict" (a carry), for inputs of these shapes."""
        static, dynamic = self._split(args, kwargs)
        make = {
            "Posterior": lambda x: self._run_impl(static, x, None, None),
            "State": lambda x: self._init_impl(static, x, None),
            "dict": lambda x: self._start_impl(static, x),
        }
        return jax.eval_shape(make[kind], dynamic)

    def export(self, path: str | Path, *args: Any, platforms: tuple[str, ...] | None = None, **kwargs: Any) -> None:
        """Write the program, compiled for these inputs, to a file that runs without the source of the model.

        `ngmp.load_exported(path)` gives back a function of the traced inputs, of exactly these shapes; all others are
        fixed. `platforms` are such as `("cpu", "cuda")`, by default the one this process runs on.
        """
        bound = bind(self.model, self.signature, args, kwargs)
        self._split(args, kwargs)  # finds the arrays whose contents are structure, and so fixed

        def run(static: Static, dynamic: list[Any]) -> Posterior:
            return self._run_impl(static, dynamic, None, None)

        export_run(run, path, bound, platforms, self._numbers.contents)

    def lower(self, *args: Any, **kwargs: Any) -> Description:
        """The plan for inputs of these shapes (arrays or `jax.ShapeDtypeStruct`), without running anything."""
        static, dynamic = self._split(args, kwargs)
        name = getattr(self.model, "__name__", "model")
        why = reason(bind(self.model, self.signature, args, kwargs)) + static.words
        found = jax.eval_shape(lambda x: Description(self._passes(static, x), name, why), dynamic)
        return found.of(Subject(self, args, kwargs))

    def explore(self, path: str | Path, *args: Any, **kwargs: Any) -> None:
        """Run the program, and write a page that shows the model, every pass and the run; see `lower(...).explore`."""
        self.lower(*args, **kwargs).explore(path)

    def specialise(self, *args: Any, **kwargs: Any) -> Specialised:
        """The plan, map and solver for these inputs, as one value: to print, compare, or pass to jitted functions."""
        static, dynamic = self._split(args, kwargs)
        return self._jitted(self._build, static, dynamic)(dynamic)
