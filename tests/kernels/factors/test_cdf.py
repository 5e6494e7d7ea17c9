"""Distribution functions and predictive integrals of factors, against scipy and dense sums in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import REGISTRY, Quadrature, families
from ngmp_kernels.factors.bernoulli import BernoulliLogit, BernoulliProbs
from ngmp_kernels.factors.beta import BetaPrior
from ngmp_kernels.factors.binomial import BinomialLogit, BinomialProbs
from ngmp_kernels.factors.categorical import CategoricalProbs
from ngmp_kernels.factors.gamma import GammaPrior
from ngmp_kernels.factors.mv_normal import MvNormalNoise
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLog
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal import NormalLogPrecision, NormalNoise, NormalPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.poisson import PoissonLog, PoissonRate
from ngmp_kernels.factors.student_t import StudentTNoise

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="references are compared in double precision")


def gaussian(mean, variance):
    return families.Gaussian.from_mean_variance(jnp.atleast_1d(mean), jnp.atleast_1d(variance))


def gamma(a, b):
    return families.Gamma.from_concentration_rate(jnp.atleast_1d(a), jnp.atleast_1d(b))


def beta(a, b):
    return families.Beta.from_ab(jnp.atleast_1d(a), jnp.atleast_1d(b))


def normal_grid(mean, variance, reach=(-14, 14), n=100001):
    u = np.linspace(*reach, n)
    w = np.exp(-0.5 * u * u) * (u[1] - u[0]) / np.sqrt(2 * np.pi)
    return mean + np.sqrt(variance) * u, w


# -- the functions underneath -----------------------------------------------------------------------------------------


def test_incomplete_gamma_and_beta_of_jax():
    """What the distribution functions stand on: 1e-9 for counts up to a million, 1e-9 for Beta parameters to 1e5."""
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-2, 6, 3000)
    x = np.abs(a + 3 * np.sqrt(a) * rng.normal(size=a.size))
    np.testing.assert_allclose(jax.scipy.special.gammaincc(a, x), sp.gammaincc(a, x), atol=2e-9)
    np.testing.assert_allclose(jax.scipy.special.gammainc(a, x), sp.gammainc(a, x), atol=2e-9)
    a, b = (10 ** rng.uniform(-2, 5, 3000) for _ in range(2))
    p = np.clip(rng.beta(a, b), 1e-300, 1.0)
    np.testing.assert_allclose(jax.scipy.special.betainc(a, b, p), sp.betainc(a, b, p), atol=2e-9)


# -- conditional distribution functions -------------------------------------------------------------------------------

ONE, Z = jnp.ones(1), np.array([-2.0, -0.3, 0.0, 1.7])
RATES, PROBS = np.array([0.01, 0.7, 3.0, 40.0]), np.array([0.02, 0.3, 0.5, 0.97])
REAL, COUNTS = np.array([-30.0, -1.1, 0.0, 0.4, 7.0]), np.array([-1, 0, 1, 2, 3, 7, 8, 60])

CONDITIONAL = {
    "NormalNoise": (NormalNoise(jnp.array([4.0])), (Z,), REAL, lambda y, r: st.norm(-r, 0.5).cdf(y)),
    "NormalPrecision": (NormalPrecision(ONE, 2 * ONE), (RATES,), REAL, lambda y, t: st.norm(2, t**-0.5).cdf(y)),
    "NormalLogPrecision": (NormalLogPrecision(ONE, ONE), (Z,), REAL, lambda y, s: st.norm(1, np.exp(-s / 2)).cdf(y)),
    "NoisePrecision": (NoisePrecision(), (Z, RATES), REAL, lambda y, r, t: st.norm(-r, t**-0.5).cdf(y)),
    "NoiseLogPrecision": (NoiseLogPrecision(), (Z, Z), REAL, lambda y, r, s: st.norm(-r, np.exp(-s / 2)).cdf(y)),
    "StudentTNoise": (StudentTNoise(3.5 * ONE, 2 * ONE), (Z,), REAL, lambda y, r: st.t(3.5, -r, 2.0).cdf(y)),
    "PoissonLog": (PoissonLog(ONE), (Z,), COUNTS, lambda y, z: st.poisson(np.exp(z)).cdf(y)),
    "PoissonRate": (PoissonRate(ONE), (RATES,), COUNTS, lambda y, t: st.poisson(t).cdf(y)),
    "NegativeBinomialLog": (
        NegativeBinomialLog(ONE, 1.5 * ONE), (Z,), COUNTS, lambda y, z: st.nbinom(1.5, 1.5 / (1.5 + np.exp(z))).cdf(y)
    ),
    "BinomialLogit": (BinomialLogit(ONE, 8 * ONE), (Z,), COUNTS, lambda y, z: st.binom(8, sp.expit(z)).cdf(y)),
    "BinomialProbs": (BinomialProbs(ONE, 8 * ONE), (PROBS,), COUNTS, lambda y, p: st.binom(8, p).cdf(y)),
    "BernoulliLogit": (BernoulliLogit(ONE), (Z,), COUNTS, lambda y, z: st.bernoulli(sp.expit(z)).cdf(y)),
    "BernoulliProbs": (BernoulliProbs(ONE), (PROBS,), COUNTS, lambda y, p: st.bernoulli(p).cdf(y)),
    "GammaPrior": (GammaPrior(0.3 * ONE, 2 * ONE), (), np.array([-1.0, 1e-9, 0.2, 5.0]), st.gamma(0.3, scale=0.5).cdf),
    "BetaPrior": (BetaPrior(0.3 * ONE, 2 * ONE), (), np.array([-1.0, 1e-9, 0.2, 0.999, 2.0]), st.beta(0.3, 2.0).cdf),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional(name):
    factor, z, outcomes, reference = CONDITIONAL[name]
    for y in outcomes:
        out = np.full(np.shape(z[0]) if z else (1,), float(y))
        found = factor.cdf(jnp.asarray(out), *map(jnp.asarray, z))
        np.testing.assert_allclose(found, np.broadcast_to(reference(y, *z), found.shape), rtol=1e-9, atol=1e-13)
    if factor.support == "count":  # between the integers it is constant
        np.testing.assert_array_equal(factor.cdf(jnp.asarray(2.7), *z), factor.cdf(jnp.asarray(2.0), *z))


def test_what_has_one():
    assert all(
        factor.support is not None and type(factor).__name__ == name for name, (factor, *_) in CONDITIONAL.items()
    )
    assert MvNormalNoise.support == "real"
    unordered = [s.factor for name in ("Categorical", "Dirichlet") for s in REGISTRY[name].signatures]
    assert not any(isinstance(factor.support, str) for factor in unordered)
    with pytest.raises(NotImplementedError, match="CategoricalProbs has no distribution function"):
        CategoricalProbs(jnp.ones((1, 3))).cdf(jnp.ones(1))


# -- integrated over marginals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [1e-4, 0.3, 4.0, 16.0])
@pytest.mark.parametrize("mean", [-1.0, 3.0, 7.0])
def test_counts_of_a_log_rate(mean, variance):
    """Narrow and wide marginals, small and large counts: the Poisson and negative binomial distribution functions."""
    z, w = normal_grid(mean, variance, (-9, 9))
    counts = np.unique(np.floor(np.exp(mean + np.sqrt(variance) * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))))
    counts = counts[counts < 1e5]
    q = gaussian(np.full(counts.size, mean), np.full(counts.size, variance))
    one = jnp.ones(1)
    for factor, reference in (
        (PoissonLog(one), lambda k: sp.gammaincc(k + 1, np.exp(z))),
        (NegativeBinomialLog(one, 2.5 * one), lambda k: sp.betainc(2.5, k + 1, sp.expit(np.log(2.5) - z))),
    ):
        expected = [(w * reference(k)).sum() for k in counts]
        np.testing.assert_allclose(factor.predictive_cdf(jnp.asarray(counts), (q,)), expected, atol=1e-9)


@pytest.mark.parametrize("variance", [1e-4, 0.3, 4.0, 16.0, 100.0])
@pytest.mark.parametrize("trials", [1, 8, 500])
def test_counts_of_logits(trials, variance):
    z, w = normal_grid(0.7, variance, (-9, 9))
    counts = np.unique(np.linspace(0, trials, 6).astype(int)).astype(float)
    q = gaussian(np.full(counts.size, 0.7), np.full(counts.size, variance))
    factor = BinomialLogit(jnp.ones(1), jnp.array([float(trials)]))
    expected = [(w * st.binom.cdf(k, trials, sp.expit(z))).sum() for k in counts]
    np.testing.assert_allclose(factor.predictive_cdf(jnp.asarray(counts), (q,)), expected, atol=1e-9)
    if trials == 1:
        np.testing.assert_allclose(BernoulliLogit(jnp.ones(1)).predictive_cdf(counts, (q,)), expected, atol=1e-9)


def test_conjugate_counts():
    counts = jnp.array([0.0, 1.0, 4.0, 30.0])
    four = np.ones(4)
    for a, b in ((0.4, 2.0), (30.0, 3.0)):
        found = PoissonRate(jnp.ones(1)).predictive_cdf(counts, (gamma(a * four, b * four),))
        np.testing.assert_allclose(found, st.nbinom(a, b / (b + 1)).cdf(counts), rtol=1e-9)
    for a, b in ((1.5, 4.0), (40.0, 3.0)):
        found = BinomialProbs(jnp.ones(1), 31.0 * jnp.ones(1)).predictive_cdf(counts, (beta(a * four, b * four),))
        np.testing.assert_allclose(found, st.betabinom(31, a, b).cdf(counts), atol=1e-9)
        found = BernoulliProbs(jnp.ones(1)).predictive_cdf(counts, (beta(a * four, b * four),))
        np.testing.assert_allclose(found, st.betabinom(1, a, b).cdf(counts), atol=1e-9)


def _scale_mixture(y, m, v, precision, weight):
    """Distribution function and log-density of `N(m, v + 1/precision)` mixed over the precision."""
    variance = v + 1 / precision
    density = -0.5 * (y - m) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
    return (weight * st.norm.cdf(y, m, np.sqrt(variance))).sum(), sp.logsumexp(density, b=weight)


@pytest.mark.parametrize("v_s", [0.01, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("v_r", [1e-4, 0.01, 1.0, 100.0])
def test_noise_of_random_log_precision(v_r, v_s):
    """`y | s ~ N(m, V + e^{-s})`: out to thirty standard deviations, distribution function and log-density."""
    m, m_s = 0.4, -0.3
    s, w = normal_grid(m_s, v_s, (-30, 14), 200001)
    sd = np.sqrt(v_r + np.exp(-m_s + v_s / 2))
    for y in m + sd * np.array([0.0, 1.0, -3.0, 10.0, 30.0]):
        cdf, log_density = _scale_mixture(y, m, v_r, np.exp(s), w)
        at_zero, at_data = gaussian(-m, v_r), gaussian(y - m, v_r)
        noise = NoiseLogPrecision()
        np.testing.assert_allclose(noise.predictive_cdf(jnp.array([y]), (at_zero, gaussian(m_s, v_s))), cdf, atol=1e-10)
        found = noise.predictive_log_density((at_data, gaussian(m_s, v_s)))
        np.testing.assert_allclose(found, log_density, rtol=1e-9, atol=1e-8)
    if v_r == 1e-4:  # the same with both ends constant, which is v_r = 0
        y = m + 3 * sd
        cdf, log_density = _scale_mixture(y, m, 0.0, np.exp(s), w)
        factor = NormalLogPrecision(jnp.array([y]), jnp.array([m]))
        np.testing.assert_allclose(factor.predictive_cdf(jnp.array([y]), (gaussian(m_s, v_s),)), cdf, atol=1e-10)
        np.testing.assert_allclose(factor.predictive_log_density((gaussian(m_s, v_s),)), log_density, atol=1e-8)


def test_log_density_against_two_dimensions():
    """Nothing in closed form: a sum over residual and log-precision."""
    m, v_r, m_s, v_s, y = 0.3, 0.5, 0.2, 4.0, 1.1
    r, w_r = normal_grid(y - m, v_r, (-9, 9), 4001)
    s, w_s = normal_grid(m_s, v_s, (-9, 11), 2001)
    density = -0.5 * np.exp(s)[:, None] * r**2 + 0.5 * s[:, None] - 0.5 * np.log(2 * np.pi)
    expected = sp.logsumexp(density, b=w_s[:, None] * w_r)
    found = NoiseLogPrecision().predictive_log_density((gaussian(y - m, v_r), gaussian(m_s, v_s)))
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.filterwarnings("ignore:overflow encountered in divide:RuntimeWarning")  # of scipy
@pytest.mark.parametrize("a", [0.6, 2.0, 30.0, 500.0])
@pytest.mark.parametrize("v_r", [1e-4, 1.0, 100.0])
def test_noise_of_random_precision(v_r, a):
    """A Gamma precision, and Student's t as one."""
    m, b = 0.4, 1.3 * a
    x = np.linspace(np.log(1e-13 if a < 1 else 1e-6), np.log(60.0), 200001)
    w = np.exp(a * x - b * np.exp(x) + a * np.log(b) - sp.gammaln(a)) * (x[1] - x[0])
    for k in (0.0, 1.0, -3.0, 10.0):
        y = m + k * np.sqrt(v_r + 1.3)
        cdf, log_density = _scale_mixture(y, m, v_r, np.exp(x), w)
        at_zero, at_data, tau = gaussian(-m, v_r), gaussian(y - m, v_r), gamma(a, b)
        student = StudentTNoise(2 * a * jnp.ones(1), np.sqrt(1.3) * jnp.ones(1))
        for found in (
            NoisePrecision().predictive_cdf(jnp.array([y]), (at_zero, tau)),
            student.predictive_cdf(jnp.array([y]), (at_zero,)),
        ):
            np.testing.assert_allclose(found, cdf, atol=1e-8)
        for found in (
            NoisePrecision().predictive_log_density((at_data, tau)),
            student.predictive_log_density((at_data,)),
        ):
            np.testing.assert_allclose(found, log_density, atol=1e-8)


def test_normal_with_both_ends_constant_and_gamma_precision():
    a, b, y, m = 2.0, 3.0, 1.7, 0.5
    factor = NormalPrecision(jnp.array([y]), jnp.array([m]))
    reference = st.t(2 * a, m, np.sqrt(b / a))
    np.testing.assert_allclose(factor.predictive_cdf(jnp.array([y]), (gamma(a, b),)), reference.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(factor.predictive_log_density((gamma(a, b),)), reference.logpdf(y), rtol=1e-9)
    mean, epistemic, aleatoric = factor.predictive_moments((gamma(a, b),))
    np.testing.assert_allclose([mean[0], epistemic[0], aleatoric[0]], [m, 0.0, b / (a - 1)])
    assert np.isinf(factor.predictive_moments((gamma(0.9, b),))[2])


def test_a_normal_keeps_its_digits_far_from_zero():
    """By natural parameters the density would lose `m^2/v` times the rounding unit."""
    found = NormalNoise(jnp.array([100.0])).predictive_log_density((gaussian(1e-3, 1e-6),))
    np.testing.assert_allclose(found, st.norm(0, np.sqrt(0.01 + 1e-6)).logpdf(1e-3), rtol=1e-12)
    found = NormalNoise(jnp.array([100.0])).predictive_log_density((gaussian(3e3, 1e4),))
    np.testing.assert_allclose(found, st.norm(0, np.sqrt(0.01 + 1e4)).logpdf(3e3), rtol=1e-12)


@pytest.mark.parametrize("variance", [0.01, 0.5, 4.0, 16.0])
@pytest.mark.parametrize("count", [0.0, 1.0, 20.0, 1000.0])
def test_log_density_of_counts(count, variance):
    """A large count is far narrower than the marginal, and may be far from it."""
    for mean in (-1.0, 4.0):
        u = np.linspace(-40, 90, 400001)  # by logarithms: a count of 1000 may be 70 standard deviations away
        z, log_w = mean + np.sqrt(variance) * u, -0.5 * u * u - 0.5 * np.log(2 * np.pi) + np.log(u[1] - u[0])
        q, one = gaussian(mean, variance), jnp.ones(1)
        log_pmf = count * z - np.exp(np.minimum(z, 500)) - sp.gammaln(count + 1)
        found = PoissonLog(count * one).predictive_log_density((q,))
        np.testing.assert_allclose(found, sp.logsumexp(log_pmf + log_w), rtol=1e-9, atol=1e-9)
        k = min(count, 20.0)
        log_pmf = np.log(sp.comb(20, k)) - k * np.logaddexp(0, -z) - (20 - k) * np.logaddexp(0, z)
        found = BinomialLogit(k * one, 20 * one).predictive_log_density((q,))
        np.testing.assert_allclose(found, sp.logsumexp(log_pmf + log_w), rtol=1e-9, atol=1e-9)


def test_moments_and_their_parts():
    """The law of total variance, by dense sums."""
    m, v = 0.7, 9.0
    z, w = normal_grid(m, v, (-12, 12))
    p = sp.expit(z)
    mean, epistemic, aleatoric = BinomialLogit(jnp.ones(1), 5 * jnp.ones(1)).predictive_moments((gaussian(m, v),))
    average = (w * 5 * p).sum()
    expected = [average, (w * (5 * p - average) ** 2).sum(), (w * 5 * p * (1 - p)).sum()]
    np.testing.assert_allclose([mean[0], epistemic[0], aleatoric[0]], expected, rtol=1e-8)
    q = families.Dirichlet.from_concentration(jnp.array([[1.0, 2.0, 3.5]]))
    draws = np.random.default_rng(0).dirichlet([1.0, 2.0, 3.5], 400000)
    found = CategoricalProbs(jnp.array([[1.0, 0.0, 0.0]])).predictive_moments((q,))
    np.testing.assert_allclose(found[1][0], draws.var(0), rtol=2e-2)
    np.testing.assert_allclose(found[2][0], (draws * (1 - draws)).mean(0), rtol=2e-2)
    mean, epistemic, aleatoric = NoiseLogPrecision().predictive_moments((gaussian(0.5, 2.0), gaussian(0.3, 1.5)))
    s, w = normal_grid(0.3, 1.5)
    np.testing.assert_allclose([mean[0], epistemic[0], aleatoric[0]], [-0.5, 2.0, (w * np.exp(-s)).sum()], rtol=1e-8)


def test_vectors_entry_by_entry():
    covariance = jnp.array([[[2.0, 0.5], [0.5, 1.0]]])
    r = families.MvGaussian.from_mean_covariance(jnp.array([[0.3, -1.0]]), covariance)
    noise = MvNormalNoise(jnp.array([[[4.0, 1.0], [1.0, 2.0]]]), jnp.log(jnp.array([7.0])))
    total = np.asarray(covariance[0]) + np.linalg.inv([[4.0, 1.0], [1.0, 2.0]])
    y = np.array([[0.1, 2.0]])
    expected = st.norm([-0.3, 1.0], np.sqrt(np.diagonal(total))).cdf(y)
    np.testing.assert_allclose(noise.predictive_cdf(jnp.asarray(y), (r,)), expected, rtol=1e-10)
    found = noise.predictive_log_density((r,))
    np.testing.assert_allclose(found, st.multivariate_normal([0.3, -1.0], total).logpdf([0.0, 0.0]), rtol=1e-10)


def test_the_rule_of_messages_is_worse():
    """Why prediction has integrals of its own: 32 Hermite nodes of the log-precision are off by a percent."""
    marginals = (gaussian(10.0, 0.01), gaussian(0.0, 4.0))
    s, w = normal_grid(0.0, 4.0, (-30, 14))
    expected = _scale_mixture(10.0, 0.0, 0.01, np.exp(s), w)[1]
    assert abs(NoiseLogPrecision().log_evidence(marginals, Quadrature())[0] - expected) > 1e-4
    np.testing.assert_allclose(NoiseLogPrecision().predictive_log_density(marginals), expected, atol=1e-8)
