"""Families as NumPyro distributions of the same batch and event shapes. NumPyro is optional."""

from collections.abc import Callable
from typing import Any

from ._family import AbstractFamily
from .bernoulli import Bernoulli
from .beta import Beta
from .categorical import Categorical
from .dirichlet import Dirichlet
from .gamma import Gamma
from .gaussian import Gaussian
from .inverse_gamma import InverseGamma
from .mv_gaussian import MvGaussian
from .wishart import Wishart

_MAKE: dict[type[AbstractFamily], Callable[[Any, Any], Any]] = {
    Gaussian: lambda dist, q: dist.Normal(q.mean, q.std),
    MvGaussian: lambda dist, q: dist.MultivariateNormal(q.mean, precision_matrix=q.precision),
    Gamma: lambda dist, q: dist.Gamma(q.concentration, q.rate),
    InverseGamma: lambda dist, q: dist.InverseGamma(q.concentration, q.scale),
    Beta: lambda dist, q: dist.Beta(q.a, q.b),
    Bernoulli: lambda dist, q: dist.Bernoulli(logits=q.eta1),
    Categorical: lambda dist, q: dist.Categorical(logits=q.eta1),
    Dirichlet: lambda dist, q: dist.Dirichlet(q.concentration),
    Wishart: lambda dist, q: dist.Wishart(q.df, scale_matrix=q.scale),
}


def to_numpyro(q: AbstractFamily) -> Any:
    """The NumPyro distribution of a marginal."""
    try:
        import numpyro.distributions as dist  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("to_numpyro needs NumPyro: pip install 'ngmp-compiler[numpyro]', or numpyro") from error
    return _MAKE[type(q)](dist, q)
