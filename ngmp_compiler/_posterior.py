"""What a run returns: marginals by name, the free energy, and whether to trust them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import AbstractFamily, MvGaussian

from ._solve import REASONS, State


class Posterior(eqx.Module):
    """Marginals of every named variable; `post["z"]` is an exponential-family module of the variable's shape."""

    marginals: dict[str, AbstractFamily]
    free_energy: Float[Array, ""]
    converged: Bool[Array, ""]
    sweeps: Int[Array, ""]
    residual: Float[Array, ""]
    status: Int[Array, ""]
    state: State
    neighbours: dict[str, Array]  # Cov(x_k, x_{k+1}) of every name that is a run of a chain

    def joint(self, name: str, lag: int = 1) -> MvGaussian:
        """The joint marginals of `x_k` and `x_{k + lag}` along a chain, for k = 0 .. K - lag - 1.

        A chain is Markov: `Cov(x_k, x_{k+2}) = Cov(x_k, x_{k+1}) Var(x_{k+1})^{-1} Cov(x_{k+1}, x_{k+2})`, and so on.

        Returns:
            Gaussians of the stacked pair, batch (K - lag,), event (2 D,) with D = 1 for scalars.
        """
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
            ahead = ahead @ jnp.linalg.solve(covariance[between], cross[between])
        first, last = slice(0, length - lag), slice(lag, length)
        top = jnp.concatenate([covariance[first], ahead], axis=-1)
        bottom = jnp.concatenate([jnp.swapaxes(ahead, -1, -2), covariance[last]], axis=-1)
        both = jnp.concatenate([mean[first], mean[last]], axis=-1)
        return MvGaussian.from_mean_covariance(both, jnp.concatenate([top, bottom], axis=-2))

    def __getitem__(self, name: str) -> AbstractFamily:
        if name not in self.marginals:
            raise KeyError(f"no variable '{name}'; the model declares {', '.join(sorted(self.marginals)) or 'none'}")
        return self.marginals[name]

    def __contains__(self, name: str) -> bool:
        return name in self.marginals

    @property
    def reason(self) -> str:
        """Why the run stopped, in words; for a batch of runs, one line for each distinct reason."""
        if isinstance(self.status, Tracer):
            raise TypeError("reason is text: read it outside jit, or use status inside")
        codes = sorted({int(c) for c in self.status.reshape(-1)})
        return "\n".join(REASONS[c] for c in codes)


def runs(names: dict[str, Any], chains: list) -> dict[str, Array]:
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


class Prediction(eqx.Module):
    """Predictive distribution of an observed site, with the marginals of its interfaces integrated out.

    `log_density` is that of the values passed to the model, also where they were masked.
    """

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    log_density: Float[Array, "*batch"]
