"""Exact inference on Gaussian and discrete chains and trees, and on dense and banded Gaussians.

Pure functions of one problem: batch them with `jax.vmap`.
"""

from ._small import information as information
from .banded import BandedMarginals as BandedMarginals
from .banded import banded_gaussian as banded_gaussian
from .discrete_chain import DiscreteMarginals as DiscreteMarginals
from .discrete_chain import discrete_chain as discrete_chain
from .discrete_draws import chain_classes as chain_classes
from .discrete_draws import network_classes as network_classes
from .discrete_draws import pick as pick
from .discrete_draws import tree_classes as tree_classes
from .discrete_tree import TreeMarginals as TreeMarginals
from .discrete_tree import discrete_tree as discrete_tree
from .discrete_tree import plan_rounds as plan_rounds
from .driven_chain import Driven as Driven
from .driven_chain import driven_chain as driven_chain
from .driven_chain import driven_draws as driven_draws
from .factor import add_jitter as add_jitter
from .factor import factor as factor
from .factor import regular as regular
from .function_space import FunctionMoments as FunctionMoments
from .function_space import function_space as function_space
from .gaussian_draws import banded_draws as banded_draws
from .gaussian_draws import chain_draws as chain_draws
from .gaussian_draws import tree_draws as tree_draws
from .noise import normals as normals
from .scalar_chain import ChainMarginals as ChainMarginals
from .scalar_chain import ChainMessages as ChainMessages
from .scalar_chain import Ties as Ties
from .scalar_chain import chain_messages as chain_messages
from .scalar_chain import chain_ties as chain_ties
from .scalar_chain import solve_chain as solve_chain
from .scalar_tree import tree_gaussian as tree_gaussian
from .scalar_tree import tree_order as tree_order
from .vector_chain import VectorChainMarginals as VectorChainMarginals
from .vector_chain import vector_chain as vector_chain
