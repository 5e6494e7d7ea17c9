"""What a program says of its posteriors: how well they predict, whether to believe them. A part of `Program`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import logsumexp
from jaxtyping import PRNGKeyArray

from .drawing import Drawing
from .errors import ConvergenceWarning, DataError, warn
from .pipeline import Static, build
from .results.check import Check, checked, failed, log_ratios, mixed_log_ratios, moved
from .results.coordinates import layout
from .results.decouple import decoupled
from .results.draws import size_of
from .results.drift import Drift, drift
from .results.infer import infer, posterior
from .results.loo import MOST, LeaveOneOut, leave_one_out, mixed_leave_one_out, without
from .results.posterior import Posterior, topology
from .results.predict import predict
from .results.refine import Refined, needs_blackjax, nuts, refined


class Trace(NamedTuple):
    """Residuals and free energies by sweep."""

    residual: np.ndarray
    free_energy: np.ndarray


class Analyses(Drawing):
    """The methods of a program that judge its posteriors."""

    # -- how well it predicts --------------------------------------------------------------------------------------

    def _loo_impl(self, static: Static, site: str, dynamic: list[Any], post: Posterior) -> LeaveOneOut:
        if post.nodes is None:
            density, weight, _ = leave_one_out(self._build(static, dynamic).map, site, post.state.leaves)
        else:
            each = post.nodes.each(lambda v, leaves: leave_one_out(self._build(static, dynamic, v=v).map, site, leaves))
            density, weight = mixed_leave_one_out(post.nodes.weights, each)
        return LeaveOneOut(density, weight, jnp.zeros(density.shape, bool))

    def _refit_impl(self, static: Static, site: str, dynamic: list[Any], leaves: Any, elements: Any) -> Any:
        front = self._front_at(static, dynamic)
        outcome = predict(build(front, self._options).map, site, leaves).outcome

        def one(element: Any) -> Any:
            other = build(without(front, site, element, outcome), self._options)
            again = infer(other, other.solver.init(leaves))
            found = predict(other.map, site, again.state.leaves)
            return found.log_density.reshape(-1)[element], again.converged

        return jax.lax.map(one, elements)

    def _refitted(self, static: Static, dynamic: list[Any], post: Posterior, site: str, found: LeaveOneOut) -> Any:
        """With heavy elements predicted by runs without them; the heaviest, if they are many."""
        weight = np.where(np.asarray(found.doubtful), np.asarray(found.weight), 0.0).reshape(-1)
        heavy = np.argsort(-weight)[: min(int((weight > 0).sum()), MOST)]
        if not heavy.size or post.nodes is not None:
            return found
        size = 1 << int(np.ceil(np.log2(heavy.size)))  # other numbers of them compile nothing
        padded = np.concatenate([heavy, np.full(size - heavy.size, heavy[0])])
        density, fine = self._jitted(self._refit_impl, static, dynamic, site)(dynamic, post.state.leaves, padded)
        density, fine = np.asarray(density)[: heavy.size], np.asarray(fine)[: heavy.size]
        whole, again = np.array(found.log_density).reshape(-1), np.zeros(weight.size, bool)
        whole[heavy[fine]], again[heavy[fine]] = density[fine], True
        shape = found.log_density.shape
        return LeaveOneOut(jnp.asarray(whole.reshape(shape)), found.weight, jnp.asarray(again.reshape(shape)))

    def loo(self, post: Posterior, site: str, /, **inputs: Any) -> LeaveOneOut:
        """Leave-one-out log predictive densities of an observed site, from cavities.

        Where a single element weighs much, an eager call runs again without it; see `results.loo`.

        Args:
            post: a posterior of this program.
            site: an observed site.
            inputs: those that the posterior was computed from.

        Returns:
            `log_density` of every element, `elpd`, their sum, and its standard error `se`; `weight`, `refitted` and
            `doubtful` of every element.
        """
        static, dynamic = self._split((), inputs)
        if not isinstance(post.status, Tracer) and np.asarray(post.status).any():
            warn(f"leave-one-out of '{site}' from a posterior that has not converged", ConvergenceWarning)
        found = self._jitted(self._loo_impl, static, dynamic, site)(dynamic, post)
        if any(isinstance(x, Tracer) for x in (post.status, found.weight, *dynamic)) or np.ndim(post.status):
            return found
        return self._refitted(static, dynamic, post, site, found)

    # -- whether to believe it -------------------------------------------------------------------------------------

    def _ratios_impl(self, static: Static, count: int, dynamic: list[Any], key: Any, post: Posterior) -> Any:
        if post.nodes is None:
            specialised = self._build(static, dynamic)
            found = log_ratios(specialised.map, self._front_at(static, dynamic), post.state.leaves, key, count)
            return *found, posterior(specialised, post.state).free_energy

        def at(v: Any) -> Any:
            front, specialised = self._passes(static, dynamic, v=v)
            return front, specialised.map

        energy = -logsumexp(jnp.log(post.nodes.weights))  # nodes were looked at when they were made
        return *mixed_log_ratios(at, post.nodes, post.free_energy, key, count), post.free_energy + energy

    def check(self, post: Posterior, key: PRNGKeyArray, /, *, draws: int = 4000, **inputs: Any) -> Check:
        """How far a posterior is from that of the model itself, by importance sampling; see `results.check`.

        Args:
            post: a posterior of this program.
            key: a jax random key.
            draws: how many to take.
            inputs: those that the posterior was computed from.

        Returns:
            A `Check`: `khat`, `ess`, a corrected `log_evidence` with its standard error, corrected `means` and `stds`,
            `ok`, and a `verdict` in words.
        """
        static, dynamic = self._split((), inputs)
        shapes = jax.eval_shape(lambda x: self._passes(static, x), dynamic)
        plan = shapes[1].plan
        if post.topology != topology(plan):
            raise DataError("check: the posterior is of another model, or of inputs of other shapes")
        ratios, found, energy = self._jitted(self._ratios_impl, static, dynamic, draws)(dynamic, key, post)
        if not np.allclose(energy, post.free_energy, rtol=1e-4, atol=1e-3) and post.converged:
            given = f"its free energy is {float(post.free_energy):.4f}, and {float(energy):.4f} with these"
            raise DataError(f"check: the posterior was not computed from these inputs: {given}")
        doubt = next((f"{e.name} has no joint to draw from" for e in plan.discrete if e.approximate), "")
        if any(g.factor.deterministic for g in shapes[0].groups):
            doubt = doubt or "deterministic nodes (ngmp.apply) have no density to weigh draws by"
        if not post.converged:
            doubt = doubt or "the run has not converged"
        classes = {n for n, (p, _, _) in plan.collections.items() if p.family.core == "categorical"}
        host = {name: np.asarray(x) for name, x in found.items()}
        result = checked(np.asarray(ratios, float), host, frozenset(classes), doubt)
        if classes or not failed(result):
            return result
        moving = self._jitted(self._drift_impl, static, dynamic)
        return moved(result, host, jax.tree.map(np.asarray, moving(dynamic, found, jax.random.fold_in(key, 1))))

    def _drift_impl(self, static: Static, dynamic: list[Any], draws: dict[str, Any], key: Any) -> Drift:
        front = self._front_at(static, dynamic)
        return drift(layout(front), self._density(static, dynamic, front), draws, key)

    # -- draws from the model itself -------------------------------------------------------------------------------

    def _refine_impl(
        self, static: Static, sizes: tuple[int, int, int], dynamic: list[Any], draws: dict[str, Any], key: Any
    ) -> Any:
        front = self._front_at(static, dynamic)
        maps = decoupled(front, self._located(static, dynamic, front), draws)
        return nuts(layout(front), self._density(static, dynamic, front), maps, draws, key, *sizes)

    def refine(
        self, post: Posterior, key: PRNGKeyArray, /, *, draws: int = 1000, chains: int = 4, warmup: int = 200,
        **inputs: Any,
    ) -> Refined:  # fmt: skip
        """Draws from the posterior of the model itself, by NUTS (extra `blackjax`).

        Chains begin at draws of `post` and move in coordinates standardised by its covariance, so that the warm-up has
        little left to find out. Variables must be continuous. A model of `ngmp.from_numpyro` is itself handed to
        NumPyro's NUTS, with that covariance as mass matrix; draws have its names and shapes.

        Args:
            post: a posterior of this program.
            key: a jax random key.
            draws: of each chain, after the warm-up.
            chains: how many.
            warmup: steps that are thrown away.
            inputs: those that the posterior was computed from.

        Returns:
            A `Refined`: `draws` by name, (chains, draws, *shape), `r_hat` and `ess` of each, `ok`.
        """
        foreign = getattr(self.model, "refine", None)
        if foreign is None:
            needs_blackjax()
        sizes = tuple(size_of((n,))[1] for n in (chains, draws, warmup))
        static, dynamic = self._split((), inputs)
        first, second = jax.random.split(key)
        dims = sum(int(np.size(q.mean)) for q in post.marginals.values())
        start = self.draws(static, dynamic, None, post, first, (min(max(1000, 8 * dims), 8000),))
        if foreign is not None:
            return foreign(start, inputs, second, *sizes)
        return refined(*self._jitted(self._refine_impl, static, dynamic, sizes)(dynamic, start, second))

    # -- how it got there ------------------------------------------------------------------------------------------

    def trace(self, *, sweeps: int = 50, **inputs: Any) -> Trace:
        """Residual and free energy, sweep by sweep, of the first sweeps of a run: for `ngmp.plot.convergence`."""
        self._needs_state("program.trace")
        state, rows = self.init(**inputs), []  # type: ignore[attr-defined]
        static, dynamic = self._split((), inputs)
        read = self._jitted(self._posterior_impl, static, dynamic)  # type: ignore[attr-defined]
        for _ in range(sweeps):
            state = self.step(state, **inputs)  # type: ignore[attr-defined]
            post = read(dynamic, state)
            rows.append((float(post.residual), float(post.free_energy)))
            if bool(post.converged):
                break
        residual, energy = (np.asarray(x) for x in zip(*rows, strict=True))
        return Trace(residual, energy)
