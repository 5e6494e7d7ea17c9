"""Executors: exact inference on connected parts of the conjugate core."""

from ._base import GaussianExecutor as GaussianExecutor
from ._base import Piece as Piece
from ._base import Solution as Solution
from ._base import restrict as restrict
from .chain import ScalarChain as ScalarChain
from .chain import VectorChain as VectorChain
from .dense import DenseGaussian as DenseGaussian
from .discrete import DiscreteChain as DiscreteChain
from .discrete import DiscreteIndependent as DiscreteIndependent
from .discrete import Enumeration as Enumeration
from .discrete import PairPiece as PairPiece
from .independent import IndependentScalars as IndependentScalars
from .independent import IndependentVectors as IndependentVectors
from .star import Star as Star
