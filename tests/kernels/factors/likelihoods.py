"""Likelihoods of one Gaussian predictor, and conjugate kin: what `cases` and `references` have of other factors."""

import jax.numpy as jnp
import numpy as np
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels.factors.linked import BinomialLinked
from ngmp_kernels.factors.location import LaplaceNoise, LogisticNoise, LogNormalNoise
from ngmp_kernels.factors.log_half import HalfCauchyScale, LogHalfCauchy, LogHalfNormal
from ngmp_kernels.factors.multinomial import MultinomialProbs
from ngmp_kernels.factors.multiple import MultipleConjugate, MultipleProjected
from ngmp_kernels.factors.mv_student_t import MvStudentTNoise
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.poisson import PoissonRate
from ngmp_kernels.factors.positive import GammaRate, ParetoLog, PowerGamma
from ngmp_kernels.factors.proportions import BetaBinomialLogit
from ngmp_kernels.factors.student_t import StudentTScale
from ngmp_kernels.factors.von_mises import VonMisesNoise
from ngmp_kernels.families import Dirichlet, MvGaussian
from tests.kernels.factors.cases import ORACLE, Case
from tests.kernels.factors.cases import _some_gamma as some_gamma
from tests.kernels.factors.cases import _some_gaussian as some_gaussian
from tests.kernels.factors.cases import _uniform as uniform

TIMES, COUNTS = (0.3, 1.0, 2.5, 0.7), (0.0, 3.0, 7.0, 5.0)


def _unary(make, variance=0.5):
    """The case of a factor of one Gaussian interface."""

    def case(key, dtype):
        q = some_gaussian(key, dtype, variance)
        return Case(make(key, dtype), (q,), (q,))

    return case


def _gamma_rate(key, dtype):
    q = some_gamma(key, dtype)
    return Case(GammaRate(jnp.array(TIMES, dtype), uniform(key, dtype, 1.0, 3.0)), (q,), (q,))


def _multinomial(key, dtype):
    q = Dirichlet.from_concentration(uniform(key, dtype, 1.0, 3.0, (4, 3)))
    counts = jnp.array([[0, 2, 1], [3, 0, 0], [1, 1, 1], [5, 2, 9]], dtype)
    return Case(MultinomialProbs(counts), (q,), (q,))


def _vector_t(key, dtype):
    root = uniform(key, dtype, -0.5, 0.5, (4, 2, 2)) + jnp.eye(2, dtype=dtype)
    q = MvGaussian.from_mean_covariance(uniform(key, dtype, -1.0, 1.0, (4, 2)), 0.3 * root @ jnp.swapaxes(root, 1, 2))
    scale = jnp.array([[[1.5, 0.0], [0.4, 0.8]]], dtype)
    return Case(MvStudentTNoise(jnp.array([3.0, 4.0, 7.0, 30.0], dtype), scale), (q,), (q,))


def _t_of_vectors(f, r):
    each = [st.multivariate_t(np.zeros(2), np.eye(2), df=df) for df in f.df]
    whole = np.stack([t.logpdf(np.asarray(r)[..., i, :]) for i, t in enumerate(each)], -1)
    return whole - np.log(np.linalg.det(np.asarray(f.root[0])))


def _multiple_rate(key, dtype):
    q = some_gamma(key, dtype)
    return Case(MultipleConjugate(PoissonRate(jnp.array(COUNTS, dtype)), uniform(key, dtype, 0.5, 3.0)), (q,), (q,))


def _multiple_noise(key, dtype):
    q = some_gaussian(key, dtype, 0.5), some_gamma(key, dtype)
    return Case(MultipleProjected(NoisePrecision(), uniform(key, dtype, 0.5, 3.0)), q, q)


ORACLE |= {
    MvStudentTNoise: _vector_t,
    LogHalfNormal: _unary(lambda key, dtype: LogHalfNormal()),
    LogHalfCauchy: _unary(lambda key, dtype: LogHalfCauchy()),
    HalfCauchyScale: _unary(lambda key, dtype: HalfCauchyScale(jnp.array(TIMES, dtype))),
    MultipleConjugate: _multiple_rate,
    MultipleProjected: _multiple_noise,
    StudentTScale: _unary(lambda key, dtype: StudentTScale(
        jnp.array([3.0, 4.0, 7.0, 30.0], dtype), jnp.array(TIMES, dtype), jnp.array([0.1], dtype))),
    PowerGamma: _unary(lambda key, dtype: PowerGamma(
        jnp.array(TIMES, dtype), uniform(key, dtype, 0.5, 3.0), uniform(key, dtype, 0.8, 2.0))),
    ParetoLog: _unary(lambda key, dtype: ParetoLog(jnp.array(TIMES, dtype), jnp.array([0.2], dtype))),
    LaplaceNoise: _unary(lambda key, dtype: LaplaceNoise(uniform(key, dtype, 0.5, 2.0))),
    LogisticNoise: _unary(lambda key, dtype: LogisticNoise(uniform(key, dtype, 0.5, 2.0))),
    LogNormalNoise: _unary(lambda key, dtype: LogNormalNoise(
        jnp.log(jnp.array(TIMES, dtype)), uniform(key, dtype, 0.5, 2.0))),
    BinomialLinked: _unary(lambda key, dtype: BinomialLinked(
        jnp.array(COUNTS, dtype), jnp.array([7.0], dtype), "probit"), 0.3),
    BetaBinomialLogit: _unary(lambda key, dtype: BetaBinomialLogit(
        jnp.array(COUNTS, dtype), jnp.array([7.0], dtype), uniform(key, dtype, 2.0, 9.0))),
    VonMisesNoise: _unary(lambda key, dtype: VonMisesNoise(uniform(key, dtype, 0.5, 3.0)), 0.3),
    GammaRate: _gamma_rate,
    MultinomialProbs: _multinomial,
}  # fmt: skip


def _power_gamma(f, u):
    return st.gengamma(f.concentration, f.power, scale=np.exp(-u / f.power))


def _beta(f, z):
    return f.concentration * sp.expit(z), f.concentration * sp.expit(-z)


def _multinomial_log(f, p):
    n = f.counts.sum(-1)
    return sp.gammaln(n + 1) + np.sum(f.counts * np.log(p) - sp.gammaln(f.counts + 1), -1)


DENSITY = {
    MvStudentTNoise: _t_of_vectors,
    LogHalfNormal: lambda f, r: st.halfnorm.logpdf(np.exp(r)) + r,
    LogHalfCauchy: lambda f, r: st.halfcauchy.logpdf(np.exp(r)) + r,
    HalfCauchyScale: lambda f, u: st.halfcauchy(0, np.exp(u)).logpdf(f.out),
    MultipleConjugate: lambda f, t: st.poisson(f.scale * t).logpmf(f.base.counts),
    MultipleProjected: lambda f, r, t: st.norm(0, (f.scale * t) ** -0.5).logpdf(r),
    StudentTScale: lambda f, s: st.t(f.df, f.mean, np.exp(s)).logpdf(f.out),
    PowerGamma: lambda f, u: _power_gamma(f, u).logpdf(f.out),
    ParetoLog: lambda f, u: u - np.exp(u) * np.log(f.out / f.scale) - np.log(f.out),
    LaplaceNoise: lambda f, r: st.laplace(0, f.scale).logpdf(r),
    LogisticNoise: lambda f, u: st.logistic(0, 1).logpdf(u) - np.log(f.scale),
    LogNormalNoise: lambda f, r: st.norm(0, f.precision**-0.5).logpdf(r) - f.log_out,
    BinomialLinked: lambda f, z: st.binom(f.trials, st.norm.cdf(z)).logpmf(f.out),
    BetaBinomialLogit: lambda f, z: st.betabinom(f.trials, *_beta(f, z)).logpmf(f.out),
    VonMisesNoise: lambda f, r: st.vonmises(f.concentration).logpdf(r),
    GammaRate: lambda f, t: st.gamma(f.concentration, scale=1 / t).logpdf(f.out),
    MultinomialProbs: _multinomial_log,
}


def _stats(frozen):
    return lambda f, z: (frozen(f, z).mean(), frozen(f, z).var() + 0 * z)


MOMENTS = {
    MvStudentTNoise: lambda f, r: (-r @ np.asarray(f.root[0]).T, (np.asarray(f.root[0]) ** 2).sum(-1)
                                   * (f.df / (f.df - 2))[:, None] + 0 * r),
    LogHalfNormal: lambda f, r: (0.5 * (np.log(2) + sp.digamma(0.5)) - r, np.pi**2 / 8 + 0 * r),
    LogHalfCauchy: lambda f, r: (-r, np.pi**2 / 4 + 0 * r),
    HalfCauchyScale: lambda f, u: (np.full_like(u, np.inf), np.full_like(u, np.inf)),
    MultipleConjugate: lambda f, t: (f.scale * t, f.scale * t),
    MultipleProjected: lambda f, r, t: (-r + 0 * t, 1 / (f.scale * t) + 0 * r),
    StudentTScale: lambda f, s: (f.mean + 0 * s, np.exp(2 * s) * f.df / (f.df - 2)),
    PowerGamma: _stats(_power_gamma),
    ParetoLog: lambda f, u: (st.pareto(np.exp(u), scale=f.scale).mean(), st.pareto(np.exp(u), scale=f.scale).var()),
    LaplaceNoise: _stats(lambda f, r: st.laplace(-r, f.scale)),
    LogisticNoise: _stats(lambda f, u: st.logistic(-u * f.scale, f.scale)),
    LogNormalNoise: _stats(lambda f, r: st.lognorm(f.precision**-0.5, scale=np.exp(-r))),
    BinomialLinked: _stats(lambda f, z: st.binom(f.trials, st.norm.cdf(z))),
    BetaBinomialLogit: _stats(lambda f, z: st.betabinom(f.trials, *_beta(f, z))),
    VonMisesNoise: lambda f, r: (np.angle(np.exp(-1j * r)), 1 - sp.ive(1, f.concentration) / sp.ive(0, f.concentration)
                                 + 0 * r),
    GammaRate: _stats(lambda f, t: st.gamma(f.concentration, scale=1 / t)),
    MultinomialProbs: lambda f, p: (f.counts.sum(-1, keepdims=True) * p, f.counts.sum(-1, keepdims=True) * p * (1 - p)),
}  # fmt: skip

_OUT, _POSITIVE = [0.0, -1.0, np.nan, np.inf], [0.0, -1.0, np.nan, np.inf]
BAD = {
    MvStudentTNoise: {"df": [0.0, -1.0, np.nan]},
    LogHalfNormal: {},
    LogHalfCauchy: {},
    HalfCauchyScale: {"out": _OUT},
    MultipleConjugate: {"scale": _POSITIVE},
    MultipleProjected: {"scale": _POSITIVE},
    StudentTScale: {"df": [0.0, -1.0, np.nan], "out": [np.nan, np.inf]},
    PowerGamma: {"out": _OUT, "concentration": _POSITIVE, "power": _POSITIVE},
    ParetoLog: {"out": [0.1, np.nan, np.inf], "scale": [0.0, -1.0]},
    LaplaceNoise: {"scale": _POSITIVE},
    LogisticNoise: {"scale": _POSITIVE},
    LogNormalNoise: {"log_out": [np.nan, np.inf], "precision": _POSITIVE},
    BinomialLinked: {"out": [-1.0, 8.0, 0.5], "trials": [-1.0, 7.5, np.inf]},
    BetaBinomialLogit: {"out": [-1.0, 8.0, 0.5], "concentration": _POSITIVE},
    VonMisesNoise: {"concentration": _POSITIVE},
    GammaRate: {"out": _OUT, "concentration": _POSITIVE},
    MultinomialProbs: {"counts": [-1.0, 0.5, np.nan]},
}
