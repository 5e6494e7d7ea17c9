"""Kernels of natural-gradient message passing: families, quadratures, factors and the distributions that use them.

Names of quantities, the same in every module:

| name | meaning |
| --- | --- |
| `z`, `r`, `s`, `tau`, `p` | values: any, a residual, a log-precision, a precision or rate, a probability |
| `T` | sufficient statistics of a family |
| `lam`, `eta` | natural parameters of a marginal, of a message or leaf |
| `mu` | mean parameters, `E[T]` |
| `q` | a normalised member of a family: a marginal or a cavity |
| `l` | a log-message |
| `n`, `*b` | number of factors in a batch; batch axes of a family |
| `m`, `v` | mean and variance of a Gaussian |
| `a`, `b` | shape and rate of a Gamma; the two parameters of a Beta |

`Gamma`, `Beta`, ... here are *distributions*, that is declarations; the exponential families are in `families`.
"""

from . import families as families
from .bernoulli import Bernoulli as Bernoulli
from .beta import Beta as Beta
from .binomial import Binomial as Binomial
from .categorical import Categorical as Categorical
from .closed_form import ClosedForm as ClosedForm
from .closed_form import residual_sine as residual_sine
from .deterministic import Deterministic as Deterministic
from .dirichlet import Dirichlet as Dirichlet
from .distribution import REGISTRY as REGISTRY
from .distribution import Distribution as Distribution
from .distribution import Lowered as Lowered
from .distribution import Signature as Signature
from .distribution import register as register
from .distribution import registered_factors as registered_factors
from .factor import AbstractConjugate as AbstractConjugate
from .factor import AbstractFactor as AbstractFactor
from .factor import AbstractProjected as AbstractProjected
from .factor import nested_quadrature as nested_quadrature
from .gamma import Gamma as Gamma
from .gated import Gate as Gate
from .gated import Gated as Gated
from .gated import GatedConstant as GatedConstant
from .gated import Mixture as Mixture
from .generic import ConstantFactor as ConstantFactor
from .generic import GenericDensity as GenericDensity
from .generic import GenericFactor as GenericFactor
from .given import Given as Given
from .inverse_gamma import InverseGamma as InverseGamma
from .learned_table import AbstractLearnedTable as AbstractLearnedTable
from .mv_normal import MvNormal as MvNormal
from .negative_binomial import NegativeBinomial as NegativeBinomial
from .normal import Normal as Normal
from .oracle import ORACLE as ORACLE
from .oracle import oracle_case as oracle_case
from .poisson import Poisson as Poisson
from .projection import Delta as Delta
from .projection import GaussHermite as GaussHermite
from .projection import LogTrapezoid as LogTrapezoid
from .projection import Quadrature as Quadrature
from .projection import Unscented as Unscented
from .projection import expectation as expectation
from .projection import nodes as nodes
from .projection import tangent_projection as tangent_projection
from .split import SplitFactor as SplitFactor
from .split import SplitTable as SplitTable
from .student_t import StudentT as StudentT
from .tilted import tilted_match as tilted_match
from .vector_node import VectorDeterministic as VectorDeterministic
from .wishart import Wishart as Wishart
