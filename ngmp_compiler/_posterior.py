"""What a run returns: marginals by name, the free energy, and whether to trust them."""

import equinox as eqx
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import AbstractFamily

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


class Prediction(eqx.Module):
    """Predictive distribution of an observed site, with the marginals of its interfaces integrated out.

    `log_density` is that of the values passed to the model, also where they were masked.
    """

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    log_density: Float[Array, "*batch"]
