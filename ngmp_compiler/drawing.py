"""What a program draws, and the density that was declared. A part of `Program`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from .compiled import Compiled
from .declare.integrated import SLOTS
from .emit.surrogate import Values
from .errors import ConvergenceWarning, warn
from .pipeline import Front, Static
from .results.covariance import at_nodes, covariance
from .results.decouple import Located
from .results.density import by_logarithm, by_plane, log_joint, placed
from .results.draws import drawn, mixed_draws, shaped, size_of
from .results.pointwise import drawn_site, observed_data, predicted
from .results.posterior import Posterior
from .results.simulate import drawn_numbers, simulated


class Drawing(Compiled):
    """The methods of a program about its joint density, its prior, and draws from both and from posteriors."""

    def _sample_impl(self, static: Static, count: int, dynamic: list[Any], key: Any, leaves: Any, carry: Any) -> Any:
        return drawn(self._build(static, dynamic, carry).map, leaves, key, count)

    def _mixed_sample_impl(self, static: Static, count: int, dynamic: list[Any], key: Any, nodes: Any) -> Any:
        return mixed_draws(lambda v: self._build(static, dynamic, v=v).map, nodes, key, count)

    def draws(
        self, static: Static, dynamic: list[Any], carry: Any, post: Posterior, key: PRNGKeyArray, shape: Any
    ) -> dict[str, Array]:
        """`sample`, for inputs that are split already."""
        shape, count = size_of(shape)
        if post.free_energy.ndim:
            raise ValueError("draws from a batch of posteriors: use jax.vmap over it, with a key and inputs for each")
        if not isinstance(post.status, Tracer) and np.asarray(post.status).any():
            warn("draws from a posterior that has not converged", ConvergenceWarning)
        if post.nodes is not None:
            found = self._jitted(self._mixed_sample_impl, static, dynamic, count)(dynamic, key, post.nodes)
        else:
            found = self._jitted(self._sample_impl, static, dynamic, count)(dynamic, key, post.state.leaves, carry)
        return shaped(found, shape)

    def sample(
        self, post: Posterior, key: PRNGKeyArray, shape: int | tuple[int, ...] = (), /, **inputs: Any
    ) -> dict[str, Array]:
        """Joint draws from a posterior, by name: exact draws of its surrogate. Pure.

        Args:
            post: a posterior of this program.
            key: a jax random key.
            shape: leading axes of the draws.
            inputs: those that the posterior was computed from.
        """
        static, dynamic = self._split((), inputs)
        return self.draws(static, dynamic, None, post, key, shape)

    def _cov_impl(self, static: Static, one: str, other: str, dynamic: list[Any], carry: Any, post: Any) -> Array:
        if post.nodes is not None:
            return at_nodes(lambda v: self._build(static, dynamic, v=v).map, post.nodes, one, other)
        return covariance(self._build(static, dynamic, carry).map, post.state.leaves, one, other)

    def covariance(
        self, static: Static, dynamic: list[Any], carry: Any, post: Posterior, one: str, other: str
    ) -> Array:
        """`post.cov`, flattened, for inputs that are split already."""
        return self._jitted(self._cov_impl, static, dynamic, one, other)(dynamic, carry, post)

    # -- the density that was declared -----------------------------------------------------------------------------

    def _log_joint_impl(self, static: Static, dynamic: list[Any], values: dict[str, Any]) -> Array:
        front = self._front_at(static, dynamic)
        values, volume = by_logarithm(front, values)
        return self._density(static, dynamic, front)(values) + volume

    def _density(self, static: Static, dynamic: list[Any], front: Front) -> Callable[[dict[str, Any]], Array]:
        """The joint density as a function of values by name."""

        located = self._located(static, dynamic, front)
        return lambda values: log_joint(*located(values))

    def _located(self, static: Static, dynamic: list[Any], front: Front) -> Located:
        """Of values by name: the model at those of its integrated sites, and the others by plane."""

        def located(values: dict[str, Any]) -> tuple[Front, Values]:
            planes, sites = by_plane(front, values, front.integrated)
            if not sites:
                return front, planes
            v = placed(front.integrated, sites, SLOTS, front.dtype)
            return self._valued._front(static, [*dynamic, v], ()), planes

        return located

    def _at_draws_impl(self, static: Static, dynamic: list[Any], draws: dict[str, Any], key: Any) -> Any:
        return self._each_draw(static, dynamic, draws, key, predicted)

    def _each_draw(
        self, static: Static, dynamic: list[Any], draws: dict[str, Any], key: Any, function: Callable[..., Any]
    ) -> Any:
        """`function(front, values, key)` at every one of the draws."""
        located = self._located(static, dynamic, self._front_at(static, dynamic))

        def one(values: dict[str, Any], key: Any) -> Any:
            return function(*located(values), key)

        count = len(next(iter(draws.values())))
        keys = jax.random.split(key, count)
        return jax.lax.map(lambda x: one(*x), (draws, keys), batch_size=min(count, 64))

    def _outcomes_impl(self, static: Static, site: str, dynamic: list[Any], draws: dict[str, Any], key: Any) -> Array:
        return self._each_draw(static, dynamic, draws, key, lambda at, planes, k: drawn_site(at, planes, site, k))

    def outcomes(
        self, static: Static, dynamic: list[Any], post: Posterior, site: str, key: PRNGKeyArray, shape: Any
    ) -> Array:
        """Outcomes of an observed site at joint draws from a posterior."""
        first, second = jax.random.split(key)
        shape, count = size_of(shape)
        draws = self.draws(static, dynamic, None, post, first, (count,))
        found = self._jitted(self._outcomes_impl, static, dynamic, site)(dynamic, draws, second)
        return found.reshape(*shape, *found.shape[1:])

    def at_draws(
        self, static: Static, dynamic: list[Any], draws: dict[str, Any], key: PRNGKeyArray
    ) -> dict[str, dict[str, Any]]:
        """Log-likelihoods and predictions of every observed site at draws, with their leading axis, and the data."""
        found = self._jitted(self._at_draws_impl, static, dynamic)(dynamic, draws, key)
        data = self._jitted(self._data_impl, static, dynamic)(dynamic)
        likelihood, predictive = ({n: np.asarray(x) for n, x in each.items()} for each in found)
        return {
            "log_likelihood": likelihood, "posterior_predictive": predictive,
            "observed_data": {name: np.asarray(x) for name, x in data.items()},
        }  # fmt: skip

    def _data_impl(self, static: Static, dynamic: list[Any]) -> dict[str, Array]:
        return observed_data(self._front_at(static, dynamic))

    def log_joint(self, values: dict[str, Any], /, **inputs: Any) -> Array:
        """`log p(values, data)`, of the model as declared: pure, and differentiable in values and inputs.

        Args:
            values: of every variable by name, shaped as its marginal's mean (classes as integers), as `post.sample`
                returns them; those of deterministic nodes are computed, and need not be given. A scale that stands by
                its logarithm is given as `tau`, or as `log_tau`: the density is of this one (of the latter, if both).
            inputs: of the model function, the data among them.
        """
        static, dynamic = self._split((), inputs)
        return self._jitted(self._log_joint_impl, static, dynamic)(dynamic, values)

    # -- what it says before any data are seen ---------------------------------------------------------------------

    def _simulate_impl(self, static: Static, count: int, dynamic: list[Any], key: Any) -> dict[str, Array]:
        def at(v: Any) -> Any:
            return self._valued._front(static, [*dynamic, v], ())

        def one(key: Any) -> dict[str, Array]:
            first, rest = jax.random.split(key)
            front = self._front_at(static, dynamic)
            values, v = drawn_numbers(front, at, first, SLOTS)
            return values | simulated(at(v) if values else front, rest)

        return jax.lax.map(one, jax.random.split(key, count), batch_size=min(count, 256))

    def simulate(self, key: PRNGKeyArray, shape: int | tuple[int, ...] = (), /, **inputs: Any) -> dict[str, Array]:
        """Draws from the model before any data are seen: of every variable, and of every observed site, by name.

        Sites are drawn in order of dependence, integrated ones first; names and shapes are those of `post.sample` and
        of the data. Where data stand as an argument of another site (y[k - 1] in the mean of y[k]), they are as given.
        Of a censored site the outcome itself is drawn; masks say nothing. `ngmp.factor` has no direction to draw in.

        Args:
            key: a jax random key.
            shape: leading axes of the draws.
            inputs: of the model function; of observed data only the shape matters.
        """
        shape, count = size_of(shape)
        static, dynamic = self._split((), inputs)
        return shaped(self._jitted(self._simulate_impl, static, dynamic, count)(dynamic, key), shape)
