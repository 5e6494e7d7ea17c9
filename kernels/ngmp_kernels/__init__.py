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
from .distribution import REGISTRY as REGISTRY
from .distribution import Distribution as Distribution
from .distribution import Lowered as Lowered
from .distribution import Signature as Signature
from .distribution import register as register
from .factor import AbstractConjugate as AbstractConjugate
from .factor import AbstractFactor as AbstractFactor
from .factor import AbstractProjected as AbstractProjected
from .factors.bernoulli import Bernoulli as Bernoulli
from .factors.beta import Beta as Beta
from .factors.binomial import Binomial as Binomial
from .factors.categorical import Categorical as Categorical
from .factors.closed_form import ClosedForm as ClosedForm
from .factors.closed_form import residual_sine as residual_sine
from .factors.density import Density as Density
from .factors.deterministic import Deterministic as Deterministic
from .factors.dirichlet import Dirichlet as Dirichlet
from .factors.energy import EnergyFactor as EnergyFactor
from .factors.energy import EnergyOf as EnergyOf
from .factors.gamma import Gamma as Gamma
from .factors.gate import Gate as Gate
from .factors.gated import Gated as Gated
from .factors.gated import GatedConstant as GatedConstant
from .factors.generic import ConstantFactor as ConstantFactor
from .factors.generic import GenericDensity as GenericDensity
from .factors.generic import GenericFactor as GenericFactor
from .factors.given import Given as Given
from .factors.inflated import Hurdle as Hurdle
from .factors.inflated import ZeroInflated as ZeroInflated
from .factors.inverse_gamma import InverseGamma as InverseGamma
from .factors.joint import JointFactor as JointFactor
from .factors.learned_table import AbstractLearnedTable as AbstractLearnedTable
from .factors.location import Logistic as Logistic
from .factors.log_gamma import LogGamma as LogGamma
from .factors.mixture import Mixture as Mixture
from .factors.multinomial import DirichletMultinomial as DirichletMultinomial
from .factors.multinomial import Multinomial as Multinomial
from .factors.mv_normal import MvNormal as MvNormal
from .factors.mv_student_t import MvStudentT as MvStudentT
from .factors.negative_binomial import NegativeBinomial as NegativeBinomial
from .factors.normal import Normal as Normal
from .factors.ordinal import OrderedLogistic as OrderedLogistic
from .factors.ordinal import OrderedProbit as OrderedProbit
from .factors.penalised import PCScale as PCScale
from .factors.poisson import Poisson as Poisson
from .factors.positive import Pareto as Pareto
from .factors.positive import Weibull as Weibull
from .factors.priors import Cauchy as Cauchy
from .factors.priors import Exponential as Exponential
from .factors.priors import HalfCauchy as HalfCauchy
from .factors.priors import HalfNormal as HalfNormal
from .factors.priors import Laplace as Laplace
from .factors.priors import LogNormal as LogNormal
from .factors.priors import Uniform as Uniform
from .factors.proportions import BetaBinomial as BetaBinomial
from .factors.report import Report as Report
from .factors.report import ReportFactor as ReportFactor
from .factors.split import SplitFactor as SplitFactor
from .factors.split import SplitTable as SplitTable
from .factors.student_t import StudentT as StudentT
from .factors.through import Through as Through
from .factors.truncated import Censored as Censored
from .factors.truncated import Truncated as Truncated
from .factors.vector_node import VectorDeterministic as VectorDeterministic
from .factors.von_mises import VonMises as VonMises
from .factors.wishart import Wishart as Wishart
from .nested import nested_quadrature as nested_quadrature
from .quadrature.projection import Delta as Delta
from .quadrature.projection import GaussHermite as GaussHermite
from .quadrature.projection import LogTrapezoid as LogTrapezoid
from .quadrature.projection import Quadrature as Quadrature
from .quadrature.projection import Unscented as Unscented
from .quadrature.projection import expectation as expectation
from .quadrature.projection import nodes as nodes
from .quadrature.projection import tangent_projection as tangent_projection
from .quadrature.tilted import tilted_match as tilted_match
