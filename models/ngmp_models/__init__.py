"""Ready-made declarations: the paper's models and a gallery by kind, each a short function with its equation.

Every model is an ordinary Python function for `ngmp_compiler.compile`:

    import ngmp_compiler as ngmp, ngmp_models
    post = ngmp.compile(ngmp_models.poisson_chain)(y=ngmp_models.coal_disasters().counts)

Conventions. Data come first, then `mask` (True = seen, None = all seen), then parameters with defaults. A chain starts
at `z0`, one step before the first observation, so that the sites named `z` align with the data. Models with
hyperparameters say which to integrate. `benchmarks/gallery.py` compares all of them with NUTS or exact answers.
"""

from .coal import coal_disasters as coal_disasters
from .control import pendulum as pendulum
from .control import range_bearing as range_bearing
from .control import regulator as regulator
from .control import tracking as tracking
from .data import sunspot_masks as sunspot_masks
from .data import sunspot_seen as sunspot_seen
from .data import sunspots as sunspots
from .data import uci as uci
from .discrete import gaussian_hmm as gaussian_hmm
from .discrete import hmm as hmm
from .discrete import learned_hmm as learned_hmm
from .discrete import occupancy as occupancy
from .discrete import skills as skills
from .discrete import sprinkler as sprinkler
from .features import FourierMap as FourierMap
from .features import fourier_features as fourier_features
from .features import fourier_map as fourier_map
from .features import matern32 as matern32
from .features import rbf as rbf
from .hierarchies import count_groups as count_groups
from .hierarchies import eight_schools as eight_schools
from .hierarchies import growth_curves as growth_curves
from .hierarchies import precision_hierarchy as precision_hierarchy
from .hierarchies import pumps as pumps
from .hierarchies import random_intercepts as random_intercepts
from .hierarchies import seeds as seeds
from .mixtures import gaussian_mixture as gaussian_mixture
from .mixtures import latent_classes as latent_classes
from .mixtures import outliers as outliers
from .mixtures import poisson_mixture as poisson_mixture
from .mixtures import vector_mixture as vector_mixture
from .networks import flows as flows
from .networks import potentials as potentials
from .networks import senders_receivers as senders_receivers
from .neurons import NEURON_RULES as NEURON_RULES
from .neurons import neuron as neuron
from .neurons import neurons as neurons
from .psychometrics import bradley_terry as bradley_terry
from .psychometrics import graded_response as graded_response
from .psychometrics import rasch as rasch
from .psychometrics import signal_detection as signal_detection
from .psychometrics import two_parameter as two_parameter
from .regression import beta_regression as beta_regression
from .regression import binomial_regression as binomial_regression
from .regression import gamma_regression as gamma_regression
from .regression import heteroscedastic as heteroscedastic
from .regression import linear_regression as linear_regression
from .regression import logistic_regression as logistic_regression
from .regression import mean_precision as mean_precision
from .regression import measurement_error as measurement_error
from .regression import median_regression as median_regression
from .regression import negative_binomial_regression as negative_binomial_regression
from .regression import ordinal_regression as ordinal_regression
from .regression import poisson_regression as poisson_regression
from .regression import probit_regression as probit_regression
from .regression import ridge_regression as ridge_regression
from .regression import robust_regression as robust_regression
from .regression import softmax_regression as softmax_regression
from .regression import zero_inflated_regression as zero_inflated_regression
from .series import autoregression as autoregression
from .series import change_point as change_point
from .series import dynamic_regression as dynamic_regression
from .series import local_level as local_level
from .series import local_trend as local_trend
from .series import poisson_chain as poisson_chain
from .series import poisson_chain_loop as poisson_chain_loop
from .series import seasonal_series as seasonal_series
from .series import second_order as second_order
from .series import unknown_level as unknown_level
from .space import besag_york_mollie as besag_york_mollie
from .space import disease_map as disease_map
from .space import gaussian_process as gaussian_process
from .space import kriging as kriging
from .space import lattice as lattice
from .space import smooth_curve as smooth_curve
from .survival import exponential_survival as exponential_survival
from .survival import frailty as frailty
from .survival import lognormal_survival as lognormal_survival
from .survival import piecewise_hazard as piecewise_hazard
from .survival import weibull_survival as weibull_survival
from .volatility import heavy_volatility as heavy_volatility
from .volatility import reverting_volatility as reverting_volatility
from .volatility import stochastic_volatility as stochastic_volatility
