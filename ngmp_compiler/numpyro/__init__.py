"""NumPyro models as they stand: `ngmp.from_numpyro(model)`. NumPyro itself is imported only when that is called."""

from collections.abc import Callable
from typing import Any


def from_numpyro(model: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPyro model as a model function of this language, for `ngmp.compile`.

    The model runs once, abstractly, for inputs of given shapes; how the parameters of its distributions depend on its
    latent variables is read off the jaxpr. Inputs, names of sites and their shapes stay those of the model.

    Args:
        model: written with `numpyro.sample`, `plate`, `deterministic`, `factor`, `handlers` and `contrib` control flow.
    """
    try:
        from .front import NumPyroModel
    except ImportError as error:
        raise ImportError(f"ngmp.from_numpyro needs NumPyro ({error}): pip install 'ngmp-compiler[numpyro]'") from error
    return NumPyroModel(model)
