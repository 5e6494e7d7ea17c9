"""What people do next with a posterior: draws, covariances, derived quantities, tables, pictures."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels.families import MvGaussian

from .draws import origin_of
from .interop import to_arviz
from .labels import Labels, dataset, frame
from .summary import Table, columns, family_of, headline, summary

_DRAWS = 4000


class Derived(NamedTuple):
    """A quantity computed from joint draws: the draws, and what is mostly asked of them."""

    draws: Any  # of the structure of the quantity, a leading axis of draws

    def _each(self, function: Callable[[Array], Array]) -> Any:
        return jax.tree.map(function, self.draws)

    @property
    def mean(self) -> Any:
        return self._each(lambda x: jnp.mean(x, 0))

    @property
    def std(self) -> Any:
        return self._each(lambda x: jnp.std(x, 0))

    def quantile(self, p: Any) -> Any:
        """Quantiles of every element."""
        return self._each(lambda x: jnp.quantile(x, jnp.asarray(p), axis=0))

    def interval(self, mass: float = 0.9) -> Any:
        """The ends of the central interval of that mass, along a leading axis of two."""
        return self.quantile([(1 - mass) / 2, (1 + mass) / 2])


class Views:
    """Methods of a posterior that read it; those about the joint need the program and inputs that made it."""

    __slots__ = ("origin",)  # beside the fields: they alone make the structure of the pytree, see `results.draws`

    marginals: dict[str, Any]
    members: Any
    nodes: Any

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled and copied: the fields."""
        return self.__dict__

    def sample(self, key: PRNGKeyArray, shape: int | tuple[int, ...] = ()) -> dict[str, Array]:
        """Joint draws by name, `shape` leading: whole trajectories, correlated weights, nodes of integrated sites."""
        known = origin_of(self, "sample")
        return known.program.draws(known.static, known.dynamic, known.carry, self, key, shape)

    def cov(self, one: str, other: str) -> Array:
        """The covariance of two variables under the surrogate, of shape `(*one.shape, *other.shape)`.

        Exact within a Gaussian component; zero between components, which the surrogate keeps independent.
        """
        known = origin_of(self, "cov")
        found = known.program.covariance(known.static, known.dynamic, known.carry, self, one, other)
        shapes = [np.shape(self[name].mean) for name in (one, other)]  # type: ignore[index]
        return found.reshape(*shapes[0], *shapes[1])

    def _jointly(self, names: tuple[str, ...]) -> MvGaussian:
        """The joint Gaussian of several variables, flattened and end to end."""
        means = [jnp.ravel(self[name].mean) for name in names]  # type: ignore[index]
        blocks = [[self.cov(a, b).reshape(x.size, y.size) for b, y in zip(names, means, strict=True)]
                  for a, x in zip(names, means, strict=True)]  # fmt: skip
        return MvGaussian.from_mean_covariance(jnp.concatenate(means), jnp.block(blocks))

    def transform(self, function: Callable[[dict[str, Array]], Any], key: PRNGKeyArray, draws: int = _DRAWS) -> Derived:
        """Any derived quantity with its uncertainty: `post.transform(lambda d: d["a"] / d["b"], key).interval()`.

        Args:
            function: of one joint draw, a dictionary by name, to an array or a tree of them.
            key: a jax random key.
            draws: how many.
        """
        return Derived(jax.vmap(function)(self.sample(key, (draws,))))

    # -- tables -----------------------------------------------------------------------------------------------------

    def keys(self) -> tuple[str, ...]:
        """The names of its marginals; of many names that are stored together, their pattern."""
        return tuple(self.marginals)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.marginals)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self.marginals[name]) for name in self.keys())

    def summary(self, *names: str, most: int = 6) -> Table:
        """A table of mean, standard deviation, quantiles, family and shape; `summary(...).to_frame()` for pandas.

        Args:
            names: the variables, all by default.
            most: rows that an array has at most; the middle of longer ones is left out.
        """
        return summary(self, names or self.keys(), most)

    def to_frame(self, name: str) -> Any:
        """Mean, standard deviation and quantiles of every element of a variable, as a `pandas.DataFrame`.

        Axes as long as those of an input that was a series, a frame or an xarray have its index.
        """
        return frame(columns(self[name]), self._labels)  # type: ignore[index]

    def to_xarray(self, name: str) -> Any:
        """The same as an `xarray.Dataset`, with the coordinates of the inputs where axes are as long as theirs."""
        return dataset(name, columns(self[name]), self._labels)  # type: ignore[index]

    @property
    def _labels(self) -> Labels:
        known = getattr(self, "origin", None)
        return {} if known is None else known.labels

    def __repr__(self) -> str:
        title = headline(self)
        lines = [f"  {name}: {family_of(q)}{_shape(q)}" for name, q in list(self.items())[:20]]
        return "\n".join([title, *lines, *(["  ..."] if len(self) > 20 else [])])

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    # -- elsewhere --------------------------------------------------------------------------------------------------

    def plot(self, *names: str, **options: Any) -> Any:
        """Pictures of marginals (extra `plot`): bands of what has an axis, densities of numbers; see `ngmp.plot`."""
        from .. import plot

        return plot.marginals(self, *names, **options)

    def to_arviz(self, key: PRNGKeyArray | None = None, draws: int = 1000, chains: int = 4) -> Any:
        """Joint draws as an ArviZ `InferenceData` (optional extra `arviz`), by default with `key(0)`.

        With the groups posterior, posterior_predictive, log_likelihood, observed_data and constant_data, and the dims
        and coordinates of inputs that were tables. Whether and how the run converged is in the attributes of the group
        `posterior`. Where a posterior no longer knows its inputs, the draws are of each variable by itself.
        """
        return to_arviz(self, jax.random.key(0) if key is None else key, draws, chains)

    def to_numpyro_samples(self, key: PRNGKeyArray, n: int) -> dict[str, Any]:
        """Joint draws of a model that came from `ngmp.from_numpyro`, as `mcmc.get_samples()` has them: all its latent
        and deterministic sites by name, with a leading axis of length n. `numpyro.infer.Predictive` takes them."""
        from ..numpyro.samples import to_numpyro_samples

        return to_numpyro_samples(self, key, n)


def _shape(q: Any) -> str:
    shape = np.shape(q.mean)
    return f" {list(shape)}" if shape else ""
