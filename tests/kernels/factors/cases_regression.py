"""Oracle cases of the likelihoods of regressions with one or more Gaussian unknowns, and of noise of a singular
covariance; read by `cases`."""

from typing import Any

import jax
import jax.numpy as jnp

from ngmp_kernels.factors.beta_regression import BetaLogit, BetaLogits
from ngmp_kernels.factors.bilinear import Bilinear
from ngmp_kernels.factors.gamma_regression import GammaLogs
from ngmp_kernels.factors.log_gamma import LogGammaPrior
from ngmp_kernels.factors.low_rank import LowRankNoise
from ngmp_kernels.factors.ordinal import OrderedCuts, OrderedKnown
from ngmp_kernels.factors.softmax import Softmax
from ngmp_kernels.factors.student_t import StudentTLogs
from ngmp_kernels.factors.weibull import WeibullLogs
from ngmp_kernels.families import MvGaussian
from tests.kernels.factors.cases import Case, _case, _one_hot, _some_gaussian, _uniform


def _gaussians(key: Any, dtype: Any, count: int, variance: float = 0.3) -> tuple[Any, ...]:
    return tuple(_some_gaussian(k, dtype, variance) for k in jax.random.split(key, count))


@_case(GammaLogs)
def _gamma_logs(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 2)
    return Case(GammaLogs(_uniform(key, dtype, 0.2, 3.0)), q, q)


@_case(WeibullLogs)
def _weibull_logs(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 2, 0.05)
    return Case(WeibullLogs(_uniform(key, dtype, 0.2, 3.0)), q, q)


@_case(LogGammaPrior)
def _log_gamma(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 1, 0.5)
    return Case(LogGammaPrior(jnp.array([0.5, 1.0, 3.0, 20.0], dtype), _uniform(key, dtype, 0.2, 3.0)), q, q)


@_case(BetaLogit)
def _beta_logit(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 1, 0.5)
    return Case(BetaLogit(_uniform(key, dtype, 0.1, 0.9), jnp.array([1.0, 3.0, 8.0, 30.0], dtype)), q, q)


@_case(BetaLogits)
def _beta_logits(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 2)
    return Case(BetaLogits(_uniform(key, dtype, 0.1, 0.9)), q, q)


@_case(StudentTLogs)
def _student_t_logs(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 3)
    return Case(StudentTLogs(), q, q)


@_case(OrderedKnown)
def _ordered_known(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 1, 0.5)
    return Case(OrderedKnown(jnp.array([0.0, 1.0, 2.0, 3.0], dtype), jnp.array([[-1.0, 0.2, 1.5]], dtype)), q, q)


@_case(OrderedCuts)
def _ordered_cuts(key: Any, dtype: Any) -> Case:
    q = _gaussians(key, dtype, 3)
    return Case(OrderedCuts(jnp.array([0.0, 1.0, 2.0, 3.0], dtype), 4), q, q)


@_case(Bilinear)
def _bilinear(key: Any, dtype: Any) -> Case:
    root = _uniform(key, dtype, -0.3, 0.3, (4, 4, 4)) + jnp.eye(4, dtype=dtype)
    q = MvGaussian.from_mean_covariance(_uniform(key, dtype, -1.0, 1.0, (4, 4)), 0.1 * root @ jnp.swapaxes(root, 1, 2))
    precision = jnp.array([0.5, 1.0, 2.0, 4.0], dtype)[:, None, None]
    return Case(Bilinear((1, 2), out=_uniform(key, dtype, -1.0, 1.0, (4, 1)), precision=precision), (q,), (q,))


@_case(Softmax)
def _softmax(key: Any, dtype: Any) -> Case:
    root = _uniform(key, dtype, -0.5, 0.5, (4, 2, 2)) + jnp.eye(2, dtype=dtype)
    q = MvGaussian.from_mean_covariance(_uniform(key, dtype, -1.0, 1.0, (4, 2)), 0.3 * root @ jnp.swapaxes(root, 1, 2))
    return Case(Softmax(_one_hot(jnp.array([0, 2, 1, 1]), 3, dtype)), (q,), (q,))


@_case(LowRankNoise)
def _low_rank(key: Any, dtype: Any) -> Case:
    k1, k2 = jax.random.split(key)
    q = MvGaussian.from_mean_covariance(jax.random.normal(k2, (4, 3), dtype), jnp.eye(3, dtype=dtype))
    return Case(LowRankNoise(jax.random.normal(k1, (4, 3, 2), dtype)), (q,), (q,))
