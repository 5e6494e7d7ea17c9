"""Structured Bayesian inference as compiled JAX programs; `import ngmp_compiler as ngmp`."""

import importlib.metadata

from ngmp_kernels import Bernoulli as Bernoulli
from ngmp_kernels import Beta as Beta
from ngmp_kernels import Binomial as Binomial
from ngmp_kernels import Categorical as Categorical
from ngmp_kernels import Cauchy as Cauchy
from ngmp_kernels import ClosedForm as ClosedForm
from ngmp_kernels import Delta as Delta
from ngmp_kernels import Density as Density
from ngmp_kernels import Dirichlet as Dirichlet
from ngmp_kernels import Exponential as Exponential
from ngmp_kernels import Gamma as Gamma
from ngmp_kernels import GaussHermite as GaussHermite
from ngmp_kernels import HalfCauchy as HalfCauchy
from ngmp_kernels import HalfNormal as HalfNormal
from ngmp_kernels import InverseGamma as InverseGamma
from ngmp_kernels import Laplace as Laplace
from ngmp_kernels import LogNormal as LogNormal
from ngmp_kernels import LogTrapezoid as LogTrapezoid
from ngmp_kernels import MvNormal as MvNormal
from ngmp_kernels import NegativeBinomial as NegativeBinomial
from ngmp_kernels import Normal as Normal
from ngmp_kernels import PCScale as PCScale
from ngmp_kernels import Poisson as Poisson
from ngmp_kernels import Quadrature as Quadrature
from ngmp_kernels import StudentT as StudentT
from ngmp_kernels import Uniform as Uniform
from ngmp_kernels import Unscented as Unscented
from ngmp_kernels import Wishart as Wishart
from ngmp_kernels import families as families
from ngmp_kernels import residual_sine as residual_sine

from . import executors as executors
from .compiling import compile as compile
from .declare.functions import broadcast_to as broadcast_to
from .declare.functions import dot as dot
from .declare.functions import exp as exp
from .declare.functions import log as log
from .declare.functions import stack as stack
from .declare.functions import take as take
from .declare.sample import apply as apply
from .declare.sample import factor as factor
from .declare.sample import sample as sample
from .declare.sample import scope as scope
from .declare.scan import scan as scan
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
