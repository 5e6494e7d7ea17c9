"""What a run returns: marginals by name, the free energy, and whether to trust them."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ngmp_kernels.families import AbstractFamily, MvGaussian
from ngmp_kernels.numerics.cholesky import cholesky, unwhiten, whiten
from ngmp_kernels.numerics.inverse_cdf import check_probabilities

from ..errors import listed
from ..linalg import regular
from ..passes.roll import Collection
from ..solve.solver import REASONS, RUNGS, State
from .labels import dataset, frame
from .summary import columns
from .views import Views

SKEWED = 0.5
"""A skewness from which a Gaussian is off by a tenth of a standard deviation and more, as a rule."""
MISFIT = 5.0
"""Standard deviations: residuals that are so much larger than their noise are no accident."""


class Members:
    """Where the variables of many names that are stored together are found: the key, the row, the axes after it."""

    def __init__(self, collections: dict[str, Collection]):
        self.where = {
            name: (key, row, positions.ndim - 1)
            for key, (_, positions, names) in collections.items()
            if len(names) > 1
            for row, name in enumerate(names)
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and self.where == other.where

    def __hash__(self) -> int:
        return hash((len(self.where), next(iter(self.where), None)))


class Posterior(Views, eqx.Module):
    """Marginals of every named variable; `post["z"]` is an exponential-family module of the variable's shape."""

    marginals: dict[str, AbstractFamily]
    free_energy: Float[Array, ""]
    converged: Bool[Array, ""]
    sweeps: Int[Array, ""]
    residual: Float[Array, ""]
    status: Int[Array, ""]
    state: State
    neighbours: dict[str, Array]  # Cov(x_k, x_{k+1}) of every name that is a run of a chain
    jitter: Float[Array, ""]  # what was added to a precision to factorise it, relative to its diagonal; 0: nothing

    members: Members = eqx.field(static=True)
    approximate: tuple[str, ...] = eqx.field(static=True, default=())  # what is not exact, in words
    topology: str = eqx.field(static=True, default="")  # a hash of the graph: names, families, factors, sizes
    # of scalars that all factors of a group share: see `results.skewness`
    skewness: dict[str, Float[Array, ""]] = eqx.field(default_factory=dict)
    misfit: dict[str, Float[Array, ""]] = eqx.field(default_factory=dict)  # of residuals: see `results.misfit`
    nodes: Any = None  # of the integrated sites: an `integrate.run.NodeTable`

    def joint(self, name: str | tuple[str, ...], lag: int = 1) -> MvGaussian:
        """The joint marginals of `x_k` and `x_{k + lag}` along a chain, for k = 0 .. K - lag - 1; of several names,
        `post.joint(("a", "b"))`, the joint Gaussian of all their entries.

        A chain is Markov: `Cov(x_k, x_{k+2}) = Cov(x_k, x_{k+1}) Var(x_{k+1})^{-1} Cov(x_{k+1}, x_{k+2})`, and so on.

        Returns:
            Gaussians of the stacked pair, batch (K - lag,), event (2 D,) with D = 1 for scalars.
        """
        if not isinstance(name, str):
            return self._jointly(tuple(name))
        if name not in self.neighbours:
            known = ", ".join(sorted(self.neighbours)) or "none"
            raise KeyError(f"'{name}' is not a run of a Gaussian chain; those of this model: {known}")
        q: Any = self.marginals[name]
        cross = self.neighbours[name]
        if cross.ndim == 1:
            mean, covariance, cross = q.mean[:, None], q.variance[:, None, None], cross[:, None, None]
        else:
            mean, covariance = q.mean, q.covariance
        length = mean.shape[0]
        if not 1 <= lag < length:
            raise ValueError(f"lag={lag}: give an integer from 1 to {length - 1}")
        ahead = cross[: length - lag]
        for step in range(1, lag):
            between = slice(step, length - lag + step)
            chol = cholesky(covariance[between])
            ahead = ahead @ unwhiten(chol, whiten(chol, cross[between]))
        first, last = slice(0, length - lag), slice(lag, length)
        top = jnp.concatenate([covariance[first], ahead], axis=-1)
        bottom = jnp.concatenate([jnp.swapaxes(ahead, -1, -2), covariance[last]], axis=-1)
        both = jnp.concatenate([mean[first], mean[last]], axis=-1)
        return MvGaussian.from_mean_covariance(both, regular(jnp.concatenate([top, bottom], axis=-2)))

    def __getitem__(self, name: str) -> AbstractFamily:
        if name in self.marginals:
            return self.marginals[name]
        if name not in self.members.where:
            known = listed([*self.marginals, *self.members.where]).replace("'", "").strip("[]")
            raise KeyError(f"no variable '{name}'; the model declares {known or 'none'}")
        key, row, after = self.members.where[name]
        q = self.marginals[key]
        lead = len(q.batch_shape) - 1 - after  # axes that vmap has put in front
        return jax.tree.map(lambda x: x[(slice(None),) * lead + (row,)], q)

    def __contains__(self, name: str) -> bool:
        return name in self.marginals or name in self.members.where

    @property
    def exact(self) -> Bool[Array, ""]:
        """Whether the marginals are those of the model itself: nothing approximate, converged, nothing added."""
        return self.converged & (self.jitter == 0) & (not self.approximate)

    @property
    def skewed(self) -> tuple[str, ...]:
        """The variables whose marginals are too skewed for any Gaussian, in words."""
        if isinstance(self.status, Tracer):
            raise TypeError("skewed is text: read it outside jit, or use skewness inside")
        worst = {name: float(np.nanmax(np.abs(np.asarray(x)), initial=0.0)) for name, x in self.skewness.items()}
        works = "its standard deviation, and what hangs on it, may be off by a tenth and more; integrate= is exact"
        return tuple(f"'{k}' has a skewness of about {x:.1f} that no Gaussian has: {works}"
                     for k, x in worst.items() if x > SKEWED)  # fmt: skip

    @property
    def misfits(self) -> tuple[str, ...]:
        """The sites whose residuals are far beyond their noise, in models that may have several answers, in words."""
        if isinstance(self.status, Tracer):
            raise TypeError("misfits is text: read it outside jit, or use misfit inside")
        worst = {name: float(np.max(np.asarray(z), initial=0.0)) for name, z in self.misfit.items()}
        works = "another fixed point may be better (ngmp.restarts, init=), or the noise is declared too small"
        return tuple(f"residuals of '{k}' are beyond their noise by {z:.0f} standard deviations: {works}"
                     for k, z in worst.items() if z > MISFIT)  # fmt: skip

    @property
    def reason(self) -> str:
        """Why the run stopped, in words; for a batch of runs, one line for each distinct reason."""
        if isinstance(self.status, Tracer):
            raise TypeError("reason is text: read it outside jit, or use status inside")
        codes = sorted({int(c) for c in self.status.reshape(-1)})
        lines = [REASONS[c] for c in codes]
        if rung := int(jnp.max(self.state.rung)):
            lines.append(RUNGS[rung])
        if borrowed := int(jnp.max(self.state.borrowed)):
            lines.append(f"{borrowed} factors, of which a cavity is improper, are heard by mean field in part")
        if (jitter := float(jnp.max(self.jitter))) > 0:
            # The marginals are those of a model that differs by this much, and no more.
            lines.append(
                f"a precision matrix was singular to rounding: its diagonal was raised by {jitter:.1e} of itself to "
                "factorise it; look for duplicate features or a prior that is too weak"
            )
        lines += [f"skewed: {text}" for text in self.skewed]
        lines += [f"misfit: {text}" for text in self.misfits]
        # Projections are as they were declared; a core that was to be exact and is not deserves a word here as well.
        lines += [f"approximate: {part}" for part in self.approximate if part.startswith("flooding")]
        return "\n".join(lines)


def topology(plan: Any) -> str:
    """A hash of what makes two graphs the same: variables with families and shapes, factors, interfaces, numbers."""
    lines = [f"{name} {plane} {at.shape}" for name, (plane, at, _) in plan.collections.items()]
    for g in plan.groups:
        lines.append(f"{g.name} {g.given.distribution.label} {type(g.factor).__name__} {g.n} {g.factor.interfaces}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def not_converged(name: str, post: Posterior) -> str:
    """That a run has not converged, why, and what to try, in words."""
    residual, sweeps = float(np.max(np.asarray(post.residual))), int(np.max(np.asarray(post.sweeps)))
    tries = "tighter priors of the integrated sites, or fewer of them" if post.nodes is not None else (
        "ngmp.anderson() as solver=, init= near the answer, ngmp.restarts, standardised inputs or tighter priors; "
        "post.converged and post.reason tell it in code"
    )
    return f"'{name}' has not converged (residual {residual:.1e} after {sweeps} sweeps): {post.reason}. Try {tries}"


def runs(names: dict[str, Any], chains: Iterable[tuple]) -> dict[str, Array]:
    """Covariances of neighbours for every name whose variables follow each other along one chain."""
    out = {}
    for plane, order, cross in chains:
        length = order.shape[1]
        for name, (own, positions) in names.items():
            flat = positions.reshape(-1)
            if own != plane or positions.ndim != 1 or flat.size < 2:
                continue
            for row in np.flatnonzero((order == flat[0]).any(axis=1)):
                at = np.flatnonzero(order[row] == flat[0])
                if at.size and at[0] + flat.size <= length and (order[row, at[0] : at[0] + flat.size] == flat).all():
                    out[name] = cross[row, at[0] : at[0] + flat.size - 1]
    return out


class Sampled:
    """What is drawn from where it came from, which an eager call remembers beside the fields; see `results.draws`."""

    __slots__ = ("origin",)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def sample(self, key: PRNGKeyArray, shape: int | tuple[int, ...] = ()) -> Array:
        """Predictive draws, `shape` leading, jointly over all elements: of all variables first, then of the outcomes.

        For predictions of eager calls from a posterior; after `jit` or `vmap`, or from marginals, use `quantile`.
        """
        known = self._known
        if known is None:
            given = "prediction.sample: this prediction no longer knows the posterior that it was made from"
            raise ValueError(f"{given}; predict from a posterior, eagerly, or use quantile")
        return known.draw(key, shape)

    @property
    def _known(self) -> Any:
        return getattr(self, "origin", None)

    def to_frame(self) -> Any:
        """Mean, standard deviation and quantiles of every element, as a `pandas.DataFrame` with the index of inputs."""
        return frame(columns(self), {} if self._known is None else self._known.labels)

    def to_xarray(self) -> Any:
        """The same as an `xarray.Dataset`."""
        name, labels = ("prediction", {}) if self._known is None else (self._known.site, self._known.labels)
        return dataset(name, columns(self), labels)


class Prediction(Sampled, eqx.Module):
    """Predictive distribution of an observed site, with the marginals of its interfaces integrated out.

    `log_density` is that of the values passed to the model, also where they were masked. The variance has two parts,
    by the law of total variance: `epistemic = Var[E[y | z]]`, what is not known of the latent variables, and
    `aleatoric = E[Var[y | z]]`, the noise that would remain.
    """

    mean: Float[Array, "*shape"]
    epistemic: Float[Array, "*shape"]
    aleatoric: Float[Array, "*shape"]
    log_density: Float[Array, "*batch"]
    outcome: Any  # an `Outcome`, or a mixture of them

    @property
    def variance(self) -> Float[Array, "*shape"]:
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Float[Array, "*shape"]:
        return jnp.sqrt(self.variance)

    def cdf(self, y: Any) -> Float[Array, "*shape"]:
        """`F(y) = E[F(y | z)]` of every element; `y` broadcasts against `mean`. Vectors: of every entry by itself."""
        y = jnp.broadcast_to(jnp.asarray(y, self.mean.dtype), self.mean.shape)
        return self._each(lambda outcome, y: outcome.cdf(y), 0)(self.outcome, y)

    def quantile(self, p: Any) -> Float[Array, "..."]:
        """The value with `F(y) = p`; for counts, the smallest with `F(y) >= p`. Vectors: of every entry by itself.

        Args:
            p: a probability strictly between 0 and 1, or an array of them.

        Returns:
            An array of shape `(*p.shape, *mean.shape)`.
        """
        check_probabilities(p)
        p = jnp.asarray(p, self.mean.dtype)
        return self._each(lambda outcome, _: outcome.quantile(p), p.ndim)(self.outcome, self.mean)

    def _each(self, function: Callable, axis: int) -> Callable:
        """A function of the outcome, once for every prediction if `vmap` made several of this one."""
        for _ in range(self.mean.ndim - self.outcome.ndim):
            function = jax.vmap(function, out_axes=axis)
        return function
