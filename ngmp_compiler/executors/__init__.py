"""Executors: exact inference on connected parts of the conjugate core."""

from ._base import Centred as Centred
from ._base import GaussianExecutor as GaussianExecutor
from ._base import Piece as Piece
from ._base import Roles as Roles
from ._base import Solution as Solution
from ._base import restrict as restrict
from ._rows import Rows as Rows
from ._rows import leave_one_out as leave_one_out
from .chain import ScalarChain as ScalarChain
from .chain import VectorChain as VectorChain
from .discrete import DiscreteChain as DiscreteChain
from .discrete import DiscreteIndependent as DiscreteIndependent
from .discrete import TablePiece as TablePiece
from .discrete_tree import DiscreteTree as DiscreteTree
from .elimination import Elimination as Elimination
from .elimination import Network as Network
from .elimination import Tie as Tie
from .flooding import Flooding as Flooding
from .independent import IndependentScalars as IndependentScalars
from .independent import IndependentVectors as IndependentVectors
from .joint import JointGaussian as JointGaussian
from .joint import Layout as Layout
from .star import Star as Star
from .sums import Sum as Sum
from .sums import Sums as Sums
from .tree import ScalarTree as ScalarTree
