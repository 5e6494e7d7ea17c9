"""Structured Bayesian inference as compiled JAX programs; `import ngmp_compiler as ngmp`."""

import importlib.metadata

from ngmp_kernels import Bernoulli as Bernoulli
from ngmp_kernels import Beta as Beta
from ngmp_kernels import BetaBinomial as BetaBinomial
from ngmp_kernels import Binomial as Binomial
from ngmp_kernels import Categorical as Categorical
from ngmp_kernels import Cauchy as Cauchy
from ngmp_kernels import ClosedForm as ClosedForm
from ngmp_kernels import Delta as Delta
from ngmp_kernels import Density as Density
from ngmp_kernels import Dirichlet as Dirichlet
from ngmp_kernels import DirichletMultinomial as DirichletMultinomial
from ngmp_kernels import Exponential as Exponential
from ngmp_kernels import Gamma as Gamma
from ngmp_kernels import GaussHermite as GaussHermite
from ngmp_kernels import HalfCauchy as HalfCauchy
from ngmp_kernels import HalfNormal as HalfNormal
from ngmp_kernels import Hurdle as Hurdle
from ngmp_kernels import InverseGamma as InverseGamma
from ngmp_kernels import Laplace as Laplace
from ngmp_kernels import LogGamma as LogGamma
from ngmp_kernels import Logistic as Logistic
from ngmp_kernels import LogNormal as LogNormal
from ngmp_kernels import LogTrapezoid as LogTrapezoid
from ngmp_kernels import Multinomial as Multinomial
from ngmp_kernels import MvNormal as MvNormal
from ngmp_kernels import MvStudentT as MvStudentT
from ngmp_kernels import NegativeBinomial as NegativeBinomial
from ngmp_kernels import Normal as Normal
from ngmp_kernels import OrderedLogistic as OrderedLogistic
from ngmp_kernels import OrderedProbit as OrderedProbit
from ngmp_kernels import Pareto as Pareto
from ngmp_kernels import PCScale as PCScale
from ngmp_kernels import Poisson as Poisson
from ngmp_kernels import Quadrature as Quadrature
from ngmp_kernels import StudentT as StudentT
from ngmp_kernels import Truncated as Truncated
from ngmp_kernels import Uniform as Uniform
from ngmp_kernels import Unscented as Unscented
from ngmp_kernels import VonMises as VonMises
from ngmp_kernels import Weibull as Weibull
from ngmp_kernels import Wishart as Wishart
from ngmp_kernels import ZeroInflated as ZeroInflated
from ngmp_kernels import families as families
from ngmp_kernels import residual_sine as residual_sine

from . import executors as executors
from . import plot as plot
from .compiling import compile as compile
from .declare.elementwise import Phi as Phi
from .declare.elementwise import absolute as absolute
from .declare.elementwise import arcsinh as arcsinh
from .declare.elementwise import arctan as arctan
from .declare.elementwise import cloglog as cloglog
from .declare.elementwise import cos as cos
from .declare.elementwise import cosh as cosh
from .declare.elementwise import expm1 as expm1
from .declare.elementwise import power as power
from .declare.elementwise import sigmoid as sigmoid
from .declare.elementwise import sin as sin
from .declare.elementwise import sinh as sinh
from .declare.elementwise import softplus as softplus
from .declare.elementwise import sqrt as sqrt
from .declare.elementwise import square as square
from .declare.elementwise import tan as tan
from .declare.elementwise import tanh as tanh
from .declare.energies import functional as functional
from .declare.functions import broadcast_to as broadcast_to
from .declare.functions import dot as dot
from .declare.functions import exp as exp
from .declare.functions import log as log
from .declare.functions import stack as stack
from .declare.functions import take as take
from .declare.report import deterministic as deterministic
from .declare.report import plate as plate
from .declare.sample import apply as apply
from .declare.sample import factor as factor
from .declare.sample import sample as sample
from .declare.sample import scope as scope
from .declare.scan import scan as scan
from .declare.structures import car as car
from .declare.structures import icar as icar
from .declare.structures import leroux as leroux
from .declare.structures import rw1 as rw1
from .declare.structures import rw2 as rw2
from .declare.structures import seasonal as seasonal
from .declare.structures import structure as structure
from .declare.variables import Variable as Variable
from .emit.rules import BP as BP
from .emit.rules import EP as EP
from .emit.rules import NCVMP as NCVMP
from .emit.rules import NGMP as NGMP
from .emit.rules import PVMP as PVMP
from .emit.rules import VMP as VMP
from .emit.rules import AbstractRule as AbstractRule
from .emit.rules import Incoming as Incoming
from .emit.rules import StructuredVMP as StructuredVMP
from .errors import CompilationWarning as CompilationWarning
from .errors import ConvergenceWarning as ConvergenceWarning
from .errors import DataError as DataError
from .errors import FileError as FileError
from .errors import ModelError as ModelError
from .files.export import ExportedProgram as ExportedProgram
from .files.export import load_exported as load_exported
from .files.persist import load as load
from .files.persist import save as save
from .numpyro import from_numpyro as from_numpyro
from .program import Program as Program
from .results.posterior import Posterior as Posterior
from .results.posterior import Prediction as Prediction
from .results.restarts import Restarts as Restarts
from .results.restarts import restarts as restarts
from .results.shard import shard as shard
from .results.stream import pad as pad
from .results.stream import stream as stream
from .solve.anderson import adaptive as adaptive
from .solve.anderson import anderson as anderson
from .solve.solver import State as State
from .solve.step import AbstractStep as AbstractStep
from .solve.transport import vector_transport as vector_transport

try:
    __version__ = importlib.metadata.version("ngmp-compiler")
except importlib.metadata.PackageNotFoundError:  # a bare clone
    __version__ = "0"


def __getattr__(name: str) -> object:
    from .hints import hint

    raise AttributeError(hint(name, globals()))
