"""Exponential families in natural coordinates: the values that travel along the edges of a factor graph."""

from ._family import FAMILIES as FAMILIES
from ._family import AbstractFamily as AbstractFamily
from ._family import register as register
from ._shown import in_words as in_words
from .bernoulli import Bernoulli as Bernoulli
from .beta import Beta as Beta
from .categorical import Categorical as Categorical
from .dirichlet import Dirichlet as Dirichlet
from .gamma import Gamma as Gamma
from .gaussian import Gaussian as Gaussian
from .inverse_gamma import InverseGamma as InverseGamma
from .mv_gaussian import MvGaussian as MvGaussian
from .wishart import Wishart as Wishart
