"""Exact inference on Gaussian and discrete chains and on small dense Gaussians.

Pure functions of one problem: batch them with `jax.vmap`.
"""

from .dense import DenseMarginals as DenseMarginals
from .dense import dense_gaussian as dense_gaussian
from .discrete_chain import DiscreteMarginals as DiscreteMarginals
from .discrete_chain import discrete_chain as discrete_chain
from .scalar_chain import ChainMarginals as ChainMarginals
from .scalar_chain import scalar_chain as scalar_chain
from .vector_chain import VectorChainMarginals as VectorChainMarginals
from .vector_chain import vector_chain as vector_chain
