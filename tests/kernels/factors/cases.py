"""Random instances of every factor class, on which the tests check it against brute force; see `test_oracle`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels import AbstractFactor
from ngmp_kernels.factors.bernoulli import BernoulliLogit, BernoulliPrior, BernoulliProbs
from ngmp_kernels.factors.beta import BetaPrior
from ngmp_kernels.factors.binomial import BinomialLogit, BinomialProbs
from ngmp_kernels.factors.categorical import CategoricalPrior, CategoricalProbs, _one_hot
from ngmp_kernels.factors.categorical_table import CategoricalEmission, CategoricalTransition
from ngmp_kernels.factors.dirichlet import DirichletPrior
from ngmp_kernels.factors.gamma import GammaPrior
from ngmp_kernels.factors.gated import Gated, GatedConstant
from ngmp_kernels.factors.generic import ConstantFactor, GenericFactor
from ngmp_kernels.factors.given import Given
from ngmp_kernels.factors.inverse_gamma import InverseGammaPrior, NoiseVariance, NormalVariance
from ngmp_kernels.factors.latent_probs import LatentProbs
from ngmp_kernels.factors.learned_table import LearnedEmission, LearnedTransition
from ngmp_kernels.factors.mv_normal import MvNormalNoise, _precision_and_log_det
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLog, NegativeBinomialLogs
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal import NormalLogPrecision, NormalNoise, NormalPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.poisson import PoissonLog, PoissonRate
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.factors.product_log_precision import ProductLogPrecision
from ngmp_kernels.factors.student_t import StudentTLogScale, StudentTNoise
from ngmp_kernels.factors.switched_noise import SwitchedNoise
from ngmp_kernels.factors.wishart import MvNormalPrecision, NoiseWishart, WishartPrior
from ngmp_kernels.families import (
    AbstractFamily,
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    InverseGamma,
    MvGaussian,
    Wishart,
)


class Case(NamedTuple):
    """A batch of 3 to 5 factors, and a proper cavity and marginal for each interface."""

    factor: AbstractFactor
    cavities: tuple[Any, ...]
    marginals: tuple[AbstractFamily, ...]


Make = Callable[[PRNGKeyArray, Any], Case]

ORACLE: dict[type[AbstractFactor], Make] = {}


def _case(factor: type[AbstractFactor]) -> Callable[[Make], Make]:
    """Decorator: `make(key, dtype) -> Case` of a factor class."""
    return lambda make: ORACLE.setdefault(factor, make)


def _uniform(key: PRNGKeyArray, dtype: Any, low: float, high: float, shape: tuple[int, ...] = (4,)) -> Array:
    """Random parameters of a case."""
    return jax.random.uniform(key, shape, dtype, low, high)


def _some_gaussian(key: PRNGKeyArray, dtype: Any, variance: float = 0.5, shape: tuple[int, ...] = (4,)) -> Gaussian:
    """Gaussians with means in (-1, 1) and variances within a factor of two below `variance`."""
    mean, scale = jax.random.split(key)
    return Gaussian.from_mean_variance(
        _uniform(mean, dtype, -1.0, 1.0, shape), _uniform(scale, dtype, 0.5 * variance, variance, shape)
    )


def _some_gamma(key: PRNGKeyArray, dtype: Any, low: float = 3.0, shape: tuple[int, ...] = (4,)) -> Gamma:
    """Gammas with shapes in (low, 2 low) and means around one."""
    a, b = jax.random.split(key)
    concentration = _uniform(a, dtype, low, 2.0 * low, shape)
    return Gamma.from_concentration_rate(concentration, _uniform(b, dtype, low, 2.0 * low, shape))


@_case(BernoulliLogit)
def _bernoulli_logit(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype, 1.0)
    return Case(BernoulliLogit(jnp.array([0.0, 1.0, 1.0, 0.0], dtype)), (q,), (q,))


@_case(BernoulliProbs)
def _bernoulli_probs(key: Any, dtype: Any) -> Case:
    a = _uniform(key, dtype, 1.0, 4.0)
    q = Beta.from_ab(a, a[::-1])
    return Case(BernoulliProbs(jnp.array([0.0, 1.0, 1.0, 0.0], dtype)), (q,), (q,))


@_case(BernoulliPrior)
def _bernoulli_prior(key: Any, dtype: Any) -> Case:
    q = Bernoulli.from_probs(_uniform(key, dtype, 0.1, 0.9))
    return Case(BernoulliPrior(_uniform(key, dtype, -2.0, 2.0)), (q,), (q,))


@_case(BetaPrior)
def _beta(key: Any, dtype: Any) -> Case:
    a = _uniform(key, dtype, 0.5, 4.0)
    q = Beta.from_ab(a + 1.0, a[::-1] + 1.0)
    return Case(BetaPrior(a, _uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


@_case(BinomialLogit)
def _binomial_logit(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype, 1.0)
    return Case(BinomialLogit(jnp.array([0.0, 3.0, 7.0, 7.0], dtype), jnp.array([7.0], dtype)), (q,), (q,))


@_case(BinomialProbs)
def _binomial_probs(key: Any, dtype: Any) -> Case:
    a = _uniform(key, dtype, 1.0, 4.0)
    q = Beta.from_ab(a, a[::-1])
    return Case(BinomialProbs(jnp.array([0.0, 3.0, 7.0, 7.0], dtype), jnp.array([7.0], dtype)), (q,), (q,))


@_case(CategoricalPrior)
def _categorical_prior(key: Any, dtype: Any) -> Case:
    q = Categorical(_some_table(key, dtype, (4, 3)))
    return Case(CategoricalPrior(_some_table(key, dtype, (1, 3))), (q,), (q,))


@_case(CategoricalProbs)
def _categorical_probs(key: Any, dtype: Any) -> Case:
    q = Dirichlet.from_concentration(_uniform(key, dtype, 1.0, 3.0, (4, 3)))
    return Case(CategoricalProbs(_one_hot(jnp.array([0, 2, 1, 1]), 3, dtype)), (q,), (q,))


def _some_table(key: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    return jax.nn.log_softmax(_uniform(key, dtype, -2.0, 2.0, shape))


@_case(CategoricalTransition)
def _categorical_table_transition(key: Any, dtype: Any) -> Case:
    q = Categorical(_some_table(key, dtype, (4, 3, 2)))
    return Case(CategoricalTransition(log_table=_some_table(key, dtype, (4, 3, 2))), (q,), (q,))


@_case(CategoricalEmission)
def _categorical_table_emission(key: Any, dtype: Any) -> Case:
    q = Categorical(_some_table(key, dtype, (4, 3)))
    outcome = jnp.array([0, 1, 1, 0])
    factor = CategoricalEmission(log_table=_some_table(key, dtype, (1, 3, 2)), outcome=outcome)  # type: ignore[call-arg]
    return Case(factor, (q,), (q,))


@_case(DirichletPrior)
def _dirichlet(key: Any, dtype: Any) -> Case:
    alpha = _uniform(key, dtype, 0.5, 4.0, (4, 3))
    q = Dirichlet.from_concentration(alpha + 1.0)
    return Case(DirichletPrior(alpha), (q,), (q,))


@_case(GammaPrior)
def _gamma(key: Any, dtype: Any) -> Case:
    q = _some_gamma(key, dtype)
    return Case(GammaPrior(_uniform(key, dtype, 0.5, 4.0), _uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


@_case(Gated)
def _gated_gated(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4, k5 = jax.random.split(key, 5)
    z = Categorical(_uniform(k3, dtype, -1.0, 1.0, (4, 2)))
    cavities = (_some_gaussian(k1, dtype), _some_gamma(k2, dtype), z)
    marginals = (_some_gaussian(k4, dtype), _some_gamma(k5, dtype, 4.0), z)
    factor = Gated(base=NoisePrecision(), k=jnp.eye(2)[np.asarray([0, 1, 1, 0])], parts=2)  # type: ignore[call-arg]
    return Case(factor, cavities, marginals)


@_case(GatedConstant)
def _gated_constant(key: Any, dtype: Any) -> Case:
    q = Categorical(_uniform(key, dtype, -1.0, 1.0, (4, 3)))
    values, k = (_uniform(key, dtype, -2.0, 2.0),), jnp.eye(3)[np.asarray([0, 2, 1, 1])]
    return Case(GatedConstant(NormalNoise(jnp.ones(1, dtype)), values, k, 3, (3,)), (q,), (q,))


def _noise_log_density(r: Array, tau: Array, shift: Array) -> Array:
    return 0.5 * jnp.log(tau) - 0.5 * tau * (r - shift) ** 2


@_case(GenericFactor)
def _generic_generic(key: Any, dtype: Any) -> Case:
    k1, k2, k3 = jax.random.split(key, 3)
    shift = _uniform(k3, dtype, -0.5, 0.5)
    factor = GenericFactor(_noise_log_density, (shift,), (Gaussian, Gamma))  # pyright: ignore[reportCallIssue]
    q = (_some_gaussian(k1, dtype), _some_gamma(k2, dtype))
    return Case(factor, q, q)


@_case(ConstantFactor)
def _generic_constant(key: Any, dtype: Any) -> Case:
    x = _uniform(key, dtype, -1.0, 1.0)
    return Case(ConstantFactor(x, x, x**2, {"anything": x < 2.0}), (), ())


@_case(Given)
def _given(key: Any, dtype: Any) -> Case:
    q = _some_gamma(key, dtype)
    return Case(Given(q=q), (q,), (q,))


def _some_inverse_gamma(key: Any, dtype: Any, low: float = 3.0) -> InverseGamma:
    return InverseGamma.from_reciprocal(_some_gamma(key, dtype, low))


@_case(InverseGammaPrior)
def _inverse_gamma_prior(key: Any, dtype: Any) -> Case:
    q = _some_inverse_gamma(key, dtype)
    return Case(InverseGammaPrior(_uniform(key, dtype, 2.5, 4.0), _uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


@_case(NormalVariance)
def _inverse_gamma_variance(key: Any, dtype: Any) -> Case:
    q = _some_inverse_gamma(key, dtype)
    return Case(NormalVariance(_uniform(key, dtype, -2.0, 2.0), _uniform(key, dtype, 0.3, 0.4, (1,))), (q,), (q,))


@_case(NoiseVariance)
def _inverse_gamma_noise(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (_some_gaussian(k1, dtype), _some_inverse_gamma(k2, dtype))
    return Case(NoiseVariance(), cavities, (_some_gaussian(k3, dtype), _some_inverse_gamma(k4, dtype, 4.0)))


@_case(LatentProbs)
def _latent_probs(key: Any, dtype: Any) -> Case:
    k1, k2, k3 = jax.random.split(key, 3)
    out = Categorical(_uniform(k1, dtype, -2.0, 2.0, (4, 3)))
    p = Dirichlet.from_concentration(_uniform(k2, dtype, 1.0, 5.0, (4, 3)))
    return Case(LatentProbs(), (out, p), (out, Dirichlet.from_concentration(_uniform(k3, dtype, 2.0, 9.0, (4, 3)))))


def _some_rows(key: Any, dtype: Any, count: int, outcomes: int) -> tuple[Dirichlet, ...]:
    alpha = _uniform(key, dtype, 1.0, 4.0, (count, 4, outcomes))
    return tuple(Dirichlet.from_concentration(a) for a in alpha)


@_case(LearnedTransition)
def _learned_table_transition(key: Any, dtype: Any) -> Case:
    q = (Categorical(_uniform(key, dtype, -1.0, 1.0, (4, 6))), *_some_rows(key, dtype, 3, 2))
    return Case(LearnedTransition(classes=(3,), outcomes=2), q, q)


@_case(LearnedEmission)
def _learned_table_emission(key: Any, dtype: Any) -> Case:
    q = (Categorical(_uniform(key, dtype, -1.0, 1.0, (4, 6))), *_some_rows(key, dtype, 6, 2))
    one_hot = jnp.eye(2, dtype=dtype)[jnp.array([0, 1, 1, 0])]
    return Case(LearnedEmission(one_hot=one_hot, classes=(3, 2)), q, q)


@_case(MvNormalNoise)
def _mv_normal(key: Any, dtype: Any) -> Case:
    k1, k2 = jax.random.split(key)
    root = jax.random.normal(k1, (4, 3, 3), dtype)
    covariance = root @ jnp.swapaxes(root, -1, -2) + jnp.eye(3, dtype=dtype)
    q = MvGaussian.from_mean_covariance(jax.random.normal(k2, (4, 3), dtype), covariance)
    return Case(MvNormalNoise(*_precision_and_log_det("covariance", covariance, 3)), (q,), (q,))


@_case(NegativeBinomialLog)
def _negative_binomial(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype)
    counts = jnp.array([0.0, 1.0, 4.0, 20.0], dtype)
    return Case(NegativeBinomialLog(counts, _uniform(key, dtype, 1.0, 5.0, (1,))), (q,), (q,))


@_case(NoiseLogPrecision)
def _noise_log_precision_log_precision(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (_some_gaussian(k1, dtype), _some_gaussian(k2, dtype))
    return Case(NoiseLogPrecision(), cavities, (_some_gaussian(k3, dtype, 0.25), _some_gaussian(k4, dtype, 0.3)))


@_case(NormalNoise)
def _normal_noise(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype)
    return Case(NormalNoise(_uniform(key, dtype, 0.5, 3.0)), (q,), (q,))


@_case(NormalPrecision)
def _normal_precision(key: Any, dtype: Any) -> Case:
    q = _some_gamma(key, dtype)
    return Case(NormalPrecision(_uniform(key, dtype, -2.0, 2.0), _uniform(key, dtype, 0.3, 0.4, (1,))), (q,), (q,))


@_case(NormalLogPrecision)
def _normal_log_precision(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype)
    return Case(NormalLogPrecision(_uniform(key, dtype, -2.0, 2.0), _uniform(key, dtype, 0.3, 0.4, (1,))), (q,), (q,))


@_case(NoisePrecision)
def _normal_noise_precision(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (_some_gaussian(k1, dtype), _some_gamma(k2, dtype))
    return Case(NoisePrecision(), cavities, (_some_gaussian(k3, dtype), _some_gamma(k4, dtype, 4.0)))


@_case(PoissonLog)
def _poisson_log(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype)
    return Case(PoissonLog(jnp.array([0.0, 1.0, 4.0, 20.0], dtype)), (q,), (q,))


@_case(PoissonRate)
def _poisson_rate(key: Any, dtype: Any) -> Case:
    q = _some_gamma(key, dtype)
    return Case(PoissonRate(jnp.array([0.0, 1.0, 4.0, 20.0], dtype)), (q,), (q,))


@_case(ProductNoise)
def _product(key: Any, dtype: Any) -> Case:
    # The smallest use, with data and a constant precision; the others are in tests/kernels/factors/test_product.py.
    k1, k2, k3 = jax.random.split(key, 3)
    q = (_some_gaussian(k1, dtype, 0.3), _some_gaussian(k2, dtype, 0.3))
    out, precision = _uniform(k3, dtype, -1.0, 1.0), _uniform(k3, dtype, 0.5, 2.0)
    return Case(ProductNoise(out=out, precision=precision), q, q)


@_case(StudentTNoise)
def _student_t(key: Any, dtype: Any) -> Case:
    q = _some_gaussian(key, dtype)
    df, precision = jnp.array([3.0, 4.0, 7.0, 30.0], dtype), _uniform(key, dtype, 1.0, 2.0, (1,))
    return Case(StudentTNoise(df, precision), (q,), (q,))


@_case(SwitchedNoise)
def _switched_noise(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    factor = SwitchedNoise(_uniform(k1, dtype, -1.0, 1.0, (4, 3)), _uniform(k2, dtype, 0.5, 2.0, (1, 3)))
    z = Categorical(_uniform(k3, dtype, -1.0, 1.0, (4, 3)))
    return Case(factor, (_some_gaussian(k4, dtype), z), (_some_gaussian(k1, dtype), z))


def _some_matrices(key: Any, dtype: Any, d: int = 2) -> Array:
    root = jax.random.normal(key, (4, d, d), dtype)
    return root @ jnp.swapaxes(root, -1, -2) + jnp.eye(d, dtype=dtype)


def _some_wishart(key: Any, dtype: Any) -> Wishart:
    k1, k2 = jax.random.split(key)
    return Wishart.from_df_scale(_uniform(k1, dtype, 4.0, 8.0), 0.2 * _some_matrices(k2, dtype))


@_case(WishartPrior)
def _wishart_prior(key: Any, dtype: Any) -> Case:
    q = _some_wishart(key, dtype)
    return Case(WishartPrior(_uniform(key, dtype, 2.5, 6.0), _some_matrices(key, dtype)), (q,), (q,))


@_case(MvNormalPrecision)
def _wishart_precision(key: Any, dtype: Any) -> Case:
    q = _some_wishart(key, dtype)
    return Case(MvNormalPrecision(_uniform(key, dtype, -2.0, 2.0, (4, 2))), (q,), (q,))


@_case(NoiseWishart)
def _wishart_noise(key: Any, dtype: Any) -> Case:
    k1, k2, k3 = jax.random.split(key, 3)
    r = MvGaussian.from_mean_covariance(jax.random.normal(k1, (4, 2), dtype), _some_matrices(k2, dtype))
    marginals = (r, _some_wishart(k3, dtype))
    return Case(NoiseWishart(2), marginals, marginals)


@_case(NegativeBinomialLogs)
def _negative_binomial_logs(key: Any, dtype: Any) -> Case:
    keys = jax.random.split(key)
    q = _some_gaussian(keys[0], dtype), _some_gaussian(keys[1], dtype, 0.3)
    return Case(NegativeBinomialLogs(jnp.array([0.0, 1.0, 4.0, 20.0], dtype)), q, q)


@_case(StudentTLogScale)
def _student_t_log_scale(key: Any, dtype: Any) -> Case:
    keys = jax.random.split(key)
    q = _some_gaussian(keys[0], dtype), _some_gaussian(keys[1], dtype, 0.3)
    return Case(StudentTLogScale(jnp.array([3.0, 4.0, 7.0, 30.0], dtype)), q, q)


@_case(ProductLogPrecision)
def _product_log_precision(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    q = _some_gaussian(k1, dtype, 0.3), _some_gaussian(k2, dtype, 0.3), _some_gaussian(k3, dtype, 0.3)
    return Case(ProductLogPrecision(out=_uniform(k4, dtype, -1.0, 1.0)), q, q)


from tests.kernels.factors import cases_regression as cases_regression  # noqa: E402
