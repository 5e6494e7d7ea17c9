"""Structured Bayesian inference as compiled JAX programs; `import ngmp_compiler as ngmp`."""

import importlib.metadata

from ngmp_kernels import Bernoulli as Bernoulli
from ngmp_kernels import Beta as Beta
from ngmp_kernels import Binomial as Binomial
from ngmp_kernels import Categorical as Categorical
from ngmp_kernels import ClosedForm as ClosedForm
from ngmp_kernels import Delta as Delta
from ngmp_kernels import Dirichlet as Dirichlet
from ngmp_kernels import Gamma as Gamma
from ngmp_kernels import GaussHermite as GaussHermite
from ngmp_kernels import InverseGamma as InverseGamma
from ngmp_kernels import LogTrapezoid as LogTrapezoid
from ngmp_kernels import MvNormal as MvNormal
from ngmp_kernels import NegativeBinomial as NegativeBinomial
from ngmp_kernels import Normal as Normal
from ngmp_kernels import Poisson as Poisson
from ngmp_kernels import Quadrature as Quadrature
from ngmp_kernels import StudentT as StudentT
from ngmp_kernels import Unscented as Unscented
from ngmp_kernels import Wishart as Wishart
from ngmp_kernels import families as families
from ngmp_kernels import residual_sine as residual_sine

from ._anderson import adaptive as adaptive
from ._anderson import anderson as anderson
from ._declare import apply as apply
from ._declare import factor as factor
from ._declare import sample as sample
from ._declare import scope as scope
from ._errors import CompilationWarning as CompilationWarning
from ._errors import ConvergenceWarning as ConvergenceWarning
from ._errors import DataError as DataError
from ._errors import FileError as FileError
from ._errors import ModelError as ModelError
from ._export import ExportedProgram as ExportedProgram
from ._export import load_exported as load_exported
from ._expressions import broadcast_to as broadcast_to
from ._expressions import dot as dot
from ._expressions import exp as exp
from ._expressions import log as log
from ._expressions import stack as stack
from ._expressions import take as take
from ._persist import load as load
from ._persist import save as save
from ._posterior import Posterior as Posterior
from ._posterior import Prediction as Prediction
from ._program import Program as Program
from ._program import compile as compile
from ._restarts import Restarts as Restarts
from ._restarts import restarts as restarts
from ._rules import BP as BP
from ._rules import EP as EP
from ._rules import NCVMP as NCVMP
from ._rules import NGMP as NGMP
from ._rules import PVMP as PVMP
from ._rules import VMP as VMP
from ._rules import StructuredVMP as StructuredVMP
from ._scan import scan as scan
from ._shard import shard as shard
from ._solve import State as State
from ._stream import pad as pad
from ._stream import stream as stream
from ._transport import vector_transport as vector_transport

try:
    __version__ = importlib.metadata.version("ngmp-compiler")
except importlib.metadata.PackageNotFoundError:  # a bare clone
    __version__ = "0"
