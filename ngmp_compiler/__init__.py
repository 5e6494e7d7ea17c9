"""Structured Bayesian inference as compiled JAX programs; `import ngmp_compiler as ngmp`."""

import importlib.metadata

from ngmp_kernels import (
    Bernoulli,
    Beta,
    BetaBinomial,
    Binomial,
    Categorical,
    Cauchy,
    ClosedForm,
    Delta,
    Density,
    Dirichlet,
    DirichletMultinomial,
    Exponential,
    Gamma,
    GaussHermite,
    HalfCauchy,
    HalfNormal,
    Hurdle,
    InverseGamma,
    Laplace,
    LogGamma,
    Logistic,
    LogNormal,
    LogTrapezoid,
    Multinomial,
    MvNormal,
    MvStudentT,
    NegativeBinomial,
    Normal,
    OrderedLogistic,
    OrderedProbit,
    Pareto,
    PCScale,
    Poisson,
    Quadrature,
    StudentT,
    Truncated,
    Uniform,
    Unscented,
    VonMises,
    Weibull,
    Wishart,
    ZeroInflated,
    families,
    residual_sine,
)

from . import executors, plot
from .compiling import compile
from .declare.elementwise import (
    Phi,
    absolute,
    arcsinh,
    arctan,
    cloglog,
    cos,
    cosh,
    expm1,
    power,
    sigmoid,
    sin,
    sinh,
    softplus,
    sqrt,
    square,
    tan,
    tanh,
)
from .declare.energies import functional
from .declare.functions import broadcast_to, dot, exp, log, stack, take
from .declare.report import deterministic, plate
from .declare.sample import apply, factor, sample, scope
from .declare.scan import scan
from .declare.structures import car, icar, leroux, rw1, rw2, seasonal, structure
from .declare.variables import Variable
from .emit.rules import BP, EP, NCVMP, NGMP, PVMP, VMP, AbstractRule, Incoming, StructuredVMP
from .errors import CompilationWarning, ConvergenceWarning, DataError, FileError, ModelError
from .files.export import ExportedProgram, load_exported
from .files.persist import load, save
from .numpyro import from_numpyro
from .program import Program
from .results.posterior import Posterior, Prediction
from .results.restarts import Restarts, restarts
from .results.shard import shard
from .results.stream import pad, stream
from .solve.anderson import adaptive, anderson
from .solve.solver import State
from .solve.step import AbstractStep
from .solve.transport import vector_transport

__all__ = [
    "BP",
    "EP",
    "NCVMP",
    "NGMP",
    "PVMP",
    "VMP",
    "AbstractRule",
    "AbstractStep",
    "Bernoulli",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "Categorical",
    "Cauchy",
    "ClosedForm",
    "CompilationWarning",
    "ConvergenceWarning",
    "DataError",
    "Delta",
    "Density",
    "Dirichlet",
    "DirichletMultinomial",
    "Exponential",
    "ExportedProgram",
    "FileError",
    "Gamma",
    "GaussHermite",
    "HalfCauchy",
    "HalfNormal",
    "Hurdle",
    "Incoming",
    "InverseGamma",
    "Laplace",
    "LogGamma",
    "LogNormal",
    "LogTrapezoid",
    "Logistic",
    "ModelError",
    "Multinomial",
    "MvNormal",
    "MvStudentT",
    "NegativeBinomial",
    "Normal",
    "OrderedLogistic",
    "OrderedProbit",
    "PCScale",
    "Pareto",
    "Phi",
    "Poisson",
    "Posterior",
    "Prediction",
    "Program",
    "Quadrature",
    "Restarts",
    "State",
    "StructuredVMP",
    "StudentT",
    "Truncated",
    "Uniform",
    "Unscented",
    "Variable",
    "VonMises",
    "Weibull",
    "Wishart",
    "ZeroInflated",
    "absolute",
    "adaptive",
    "anderson",
    "apply",
    "arcsinh",
    "arctan",
    "broadcast_to",
    "car",
    "cloglog",
    "compile",
    "cos",
    "cosh",
    "deterministic",
    "dot",
    "executors",
    "exp",
    "expm1",
    "factor",
    "families",
    "from_numpyro",
    "functional",
    "icar",
    "leroux",
    "load",
    "load_exported",
    "log",
    "pad",
    "plate",
    "plot",
    "power",
    "residual_sine",
    "restarts",
    "rw1",
    "rw2",
    "sample",
    "save",
    "scan",
    "scope",
    "seasonal",
    "shard",
    "sigmoid",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "stack",
    "stream",
    "structure",
    "take",
    "tan",
    "tanh",
    "vector_transport",
]

try:
    __version__ = importlib.metadata.version("ngmp-compiler")
except importlib.metadata.PackageNotFoundError:  # a bare clone
    __version__ = "0"


def __getattr__(name: str) -> object:
    from .hints import hint

    raise AttributeError(hint(name, globals()))
