"""Executors: exact inference on connected parts of the conjugate core."""

from .base import AbstractExecutor as AbstractExecutor
from .discrete.base import DiscreteExecutor as DiscreteExecutor
from .discrete.base import DiscreteSolution as DiscreteSolution
from .discrete.base import TablePiece as TablePiece
from .discrete.independent import DiscreteIndependent as DiscreteIndependent
from .discrete.part import DiscreteCore as DiscreteCore
from .discrete.part import DiscretePart as DiscretePart
from .discrete.part import Ties as Ties
from .gaussian.base import Centred as Centred
from .gaussian.base import GaussianExecutor as GaussianExecutor
from .gaussian.base import Solution as Solution
from .gaussian.base import offset as offset
from .gaussian.base import potential as potential
from .gaussian.core import GaussianCore as GaussianCore
from .gaussian.part import GaussianPart as GaussianPart
from .gaussian.pieces import Piece as Piece
from .gaussian.pieces import restrict as restrict
from .gaussian.rows import Rows as Rows
from .gaussian.rows import leave_one_out as leave_one_out
from .gaussian.sums import Sum as Sum
from .gaussian.sums import Sums as Sums
from .registry import register as register
from .registry import unregister as unregister
