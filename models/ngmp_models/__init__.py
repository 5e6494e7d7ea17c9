"""Ready-made declarations: the paper's models and a small gallery, each a short readable function.

Every model is an ordinary Python function for `ngmp_compiler.compile`:

    import ngmp_compiler as ngmp, ngmp_models
    post = ngmp.compile(ngmp_models.poisson_chain)(y=ngmp_models.coal_disasters().counts)

Conventions. Data come first, then `mask` (True = seen, None = all seen), then parameters with defaults. A chain starts
at `z0`, one step before the first observation, so that the sites named `z` align with the data.
"""

from .data import sunspot_masks as sunspot_masks
from .data import sunspot_seen as sunspot_seen
from .data import sunspots as sunspots
from .data import uci as uci
from .features import FourierMap as FourierMap
from .features import fourier_features as fourier_features
from .features import fourier_map as fourier_map
from .features import matern32 as matern32
from .features import rbf as rbf
from .heteroscedastic import heteroscedastic as heteroscedastic
from .hierarchy import precision_hierarchy as precision_hierarchy
from .hmm import hmm as hmm
from .hmm import learned_hmm as learned_hmm
from .local_level import local_level as local_level
from .logistic import logistic_regression as logistic_regression
from .mean_precision import mean_precision as mean_precision
from .mixture import gaussian_mixture as gaussian_mixture
from .mixture import vector_mixture as vector_mixture
from .networks import skills as skills
from .networks import sprinkler as sprinkler
from .neurons import NEURON_RULES as NEURON_RULES
from .neurons import neuron as neuron
from .neurons import neurons as neurons
from .poisson_chain import poisson_chain as poisson_chain
from .poisson_chain import poisson_chain_loop as poisson_chain_loop
from .series import coal_disasters as coal_disasters
from .stochastic_volatility import stochastic_volatility as stochastic_volatility
