"""Of every factor, by hand: its log-density and moments in scipy, and fields that spoil it."""

import numpy as np
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels.factors.bernoulli import BernoulliLogit, BernoulliPrior, BernoulliProbs
from ngmp_kernels.factors.beta import BetaPrior
from ngmp_kernels.factors.beta_regression import BetaLogit, BetaLogits
from ngmp_kernels.factors.bilinear import Bilinear
from ngmp_kernels.factors.binomial import BinomialLogit, BinomialProbs
from ngmp_kernels.factors.categorical import (
    CategoricalEmission,
    CategoricalPrior,
    CategoricalProbs,
    CategoricalTransition,
)
from ngmp_kernels.factors.dirichlet import DirichletPrior
from ngmp_kernels.factors.gamma import GammaPrior
from ngmp_kernels.factors.gamma_regression import GammaLogs
from ngmp_kernels.factors.gated import Gated, GatedConstant
from ngmp_kernels.factors.generic import ConstantFactor, GenericFactor
from ngmp_kernels.factors.given import Given
from ngmp_kernels.factors.inverse_gamma import InverseGammaPrior, NoiseVariance, NormalVariance
from ngmp_kernels.factors.latent_probs import LatentProbs
from ngmp_kernels.factors.learned_table import LearnedEmission, LearnedTransition
from ngmp_kernels.factors.log_gamma import LogGammaPrior
from ngmp_kernels.factors.low_rank import LowRankNoise
from ngmp_kernels.factors.mv_normal import MvNormalNoise
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLog, NegativeBinomialLogs
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal import NormalLogPrecision, NormalNoise, NormalPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.ordinal import OrderedCuts, OrderedKnown
from ngmp_kernels.factors.poisson import PoissonLog, PoissonRate
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.factors.product_log_precision import ProductLogPrecision
from ngmp_kernels.factors.softmax import Softmax
from ngmp_kernels.factors.student_t import StudentTLogs, StudentTLogScale, StudentTNoise
from ngmp_kernels.factors.switched_noise import SwitchedNoise
from ngmp_kernels.factors.weibull import WeibullLogs
from ngmp_kernels.factors.wishart import MvNormalPrecision, NoiseWishart, WishartPrior
from tests.inside import registered_factors
from tests.kernels.factors import likelihoods

FACTORS = dict.fromkeys([*registered_factors(), GenericFactor, Given, Gated, GatedConstant])


# -- the named distributions, from scipy ------------------------------------------------------------------------------


def _nb(f, z):
    mean, phi = np.exp(z), np.asarray(f.dispersion)
    return st.nbinom(phi, phi / (phi + mean))


def _nb_logs(z, d):
    return st.nbinom(np.exp(d), 1 / (1 + np.exp(z - d)))


def _gamma_ratio(f, a, w):
    mean = np.asarray(f.out) * np.exp(-w)
    return st.gamma(a, scale=mean / a)


def _weibull(f, k, u):
    return st.weibull_min(np.exp(k), scale=np.asarray(f.out) * np.exp(-u))


def _beta_mean(z, phi):
    return st.beta(phi * sp.expit(z), phi * sp.expit(-z))


def _ordered(cuts):
    """Probabilities of the classes, of cutpoints less the predictor on a leading axis."""
    edges = sp.expit(np.asarray(cuts))
    return np.diff(np.concatenate([0 * edges[:1], edges, 0 * edges[:1] + 1]), axis=0)


def _ordered_cuts(u, *d):
    return _ordered(np.cumsum([u, *map(np.exp, d)], 0))


def _products(z):
    """Of two pairs."""
    return z[..., 0] * z[..., 2] + z[..., 1] * z[..., 3]


def _softmax(r):
    return sp.softmax(np.concatenate([r, 0 * r[..., :1]], -1), -1)


def _class(p, out):
    """`log p[out]` with classes on the leading axis."""
    return np.log(np.take_along_axis(p, np.asarray(out, int)[None, None] + 0 * p[:1].astype(int), 0)[0])


def _classes(p):
    p = np.moveaxis(p, 0, -1)
    return p, p * (1 - p)


def _low_rank(f, r):
    """Along the axes of the ellipsoid that have a length."""
    out = []
    for k in range(r.shape[-2]):
        values, axes = np.linalg.eigh(np.asarray(f.root[k] @ f.root[k].T))
        some = values > 1e-6 * values[-1]
        along = np.asarray(r[..., k, :]) @ axes[:, some]
        out.append(st.norm(0, np.sqrt(values[some])).logpdf(along).sum(-1))
    return np.stack(out, -1)


def _mv_normal(f, r):
    shape = r.shape[:-1]
    precision = np.broadcast_to(f.precision, (*shape, *f.precision.shape[-2:])).reshape(-1, *f.precision.shape[-2:])
    flat = r.reshape(-1, r.shape[-1])
    logs = [
        st.multivariate_normal(np.zeros(len(x)), np.linalg.inv(p)).logpdf(x)
        for x, p in zip(flat, precision, strict=True)
    ]
    return np.reshape(logs, shape)


def _dirichlet(f, p):
    alpha = np.broadcast_to(np.asarray(f.concentration), p.shape)
    flat = zip(p.reshape(-1, p.shape[-1]), alpha.reshape(-1, p.shape[-1]), strict=True)
    return np.reshape([st.dirichlet(a).logpdf(x / x.sum()) for x, a in flat], p.shape[:-1])


def _inverse_gamma(f, v):
    del v
    return st.invgamma(f.concentration, scale=np.asarray(f.scale))


def _wishart(f, w):
    scales = np.linalg.inv(np.asarray(f.inverse_scale))
    each = [[st.wishart(v, s).logpdf(x) for x, v, s in zip(row, f.df, scales, strict=True)] for row in w]
    return np.asarray(each)


def _noise_wishart(f, r, w):
    del f
    shape = r.shape[:-1]
    flat = zip(r.reshape(-1, r.shape[-1]), w.reshape(-1, *w.shape[-2:]), strict=True)
    return np.reshape([st.multivariate_normal(np.zeros(len(x)), np.linalg.inv(p)).logpdf(x) for x, p in flat], shape)


def _switched(f, r, z):
    logs = st.norm(f.shift, f.precision**-0.5).logpdf(r[..., None])
    return _log_row(logs, z) if logs.shape[:-1] == z.shape else _log_entry(np.exp(logs), z)


def _log_entry(p, k):
    shape = np.broadcast_shapes(k.shape, p.shape[:-1])
    index = np.broadcast_to(k, shape)[..., None]
    return np.log(np.take_along_axis(np.broadcast_to(p, (*shape, p.shape[-1])), index, -1)[..., 0])


def _log_row(rows, k):
    rows = np.broadcast_to(rows, (*k.shape, np.shape(rows)[-1]))
    return np.take_along_axis(rows, k[..., None], -1)[..., 0]


def _cell(rows, row, k):
    """`rows[row][..., k]`, element by element."""
    table = np.moveaxis(np.stack(rows), 0, -2)
    return np.take_along_axis(np.take_along_axis(table, row[..., None, None], -2)[..., 0, :], k[..., None], -1)[..., 0]


def _row_moments(rows, row):
    p = np.take_along_axis(np.moveaxis(np.stack(rows), 0, -2), row[..., None, None], -2)[..., 0, :]
    return p, p * (1 - p)


DENSITY = {
    NormalNoise: lambda f, r: st.norm(0, np.asarray(f.precision) ** -0.5).logpdf(r),
    NormalPrecision: lambda f, t: st.norm(f.mean, t**-0.5).logpdf(f.out),
    NormalLogPrecision: lambda f, s: st.norm(f.mean, np.exp(-0.5 * s)).logpdf(f.out),
    NoisePrecision: lambda f, r, t: st.norm(0, t**-0.5).logpdf(r),
    NoiseLogPrecision: lambda f, r, s: st.norm(0, np.exp(-0.5 * s)).logpdf(r),
    MvNormalNoise: _mv_normal,
    LowRankNoise: _low_rank,
    GammaPrior: lambda f, t: st.gamma(f.concentration, scale=1 / np.asarray(f.rate)).logpdf(t),
    BetaPrior: lambda f, p: st.beta(f.a, f.b).logpdf(p),
    DirichletPrior: _dirichlet,
    PoissonLog: lambda f, z: st.poisson(np.exp(z)).logpmf(f.counts),
    PoissonRate: lambda f, t: st.poisson(t).logpmf(f.counts),
    BernoulliLogit: lambda f, z: st.bernoulli(sp.expit(z)).logpmf(f.out),
    BernoulliProbs: lambda f, p: st.bernoulli(p).logpmf(f.out),
    BernoulliPrior: lambda f, b: st.bernoulli(sp.expit(np.asarray(f.logits))).logpmf(b),
    BinomialLogit: lambda f, z: st.binom(f.trials, sp.expit(z)).logpmf(f.counts),
    BinomialProbs: lambda f, p: st.binom(f.trials, p).logpmf(f.counts),
    NegativeBinomialLog: lambda f, z: _nb(f, z).logpmf(f.counts),
    StudentTNoise: lambda f, r: st.t(f.df, 0, f.scale).logpdf(r),
    CategoricalPrior: lambda f, k: _log_row(f.log_probs, k),
    CategoricalProbs: lambda f, p: np.log(np.sum(np.asarray(f.one_hot) * p, -1)),
    CategoricalEmission: lambda f, z: _log_row(np.stack([f.log_table[0][:, k] for k in f.outcome]), z),
    CategoricalTransition: None,  # test_transition
    LearnedTransition: lambda f, k, *rows: np.log(_cell(rows, k // f.outcomes, k % f.outcomes)),
    LearnedEmission: lambda f, k, *rows: np.log(_cell(rows, k, np.broadcast_to(f.one_hot.argmax(-1), k.shape))),
    GenericFactor: lambda f, r, t: 0.5 * np.log(t) - 0.5 * t * (r - np.asarray(f.constants[0])) ** 2,
    ConstantFactor: lambda f: np.asarray(f.value),
    InverseGammaPrior: lambda f, v: _inverse_gamma(f, v).logpdf(v),
    NormalVariance: lambda f, v: st.norm(f.mean, np.sqrt(v)).logpdf(f.out),
    NoiseVariance: lambda f, r, v: st.norm(0, np.sqrt(v)).logpdf(r),
    WishartPrior: _wishart,
    NoiseWishart: _noise_wishart,
    MvNormalPrecision: lambda f, w: _noise_wishart(f, np.broadcast_to(f.r, w.shape[:-1]), w),
    LatentProbs: lambda f, k, p: _log_entry(p, k),
    SwitchedNoise: _switched,
    Gated: lambda f, r, t, z: np.where(np.asarray(f.k)[np.arange(4), z], st.norm(0, t**-0.5).logpdf(r), 0.0),
    ProductLogPrecision: lambda f, a, b, s: st.norm(a * b, np.exp(-0.5 * s)).logpdf(f.out),
    StudentTLogScale: lambda f, r, s: st.t(f.df, scale=np.exp(s)).logpdf(r),
    NegativeBinomialLogs: lambda f, z, d: _nb_logs(z, d).logpmf(f.counts),
    GammaLogs: lambda f, k, w: _gamma_ratio(f, np.exp(k), w).logpdf(f.out),
    WeibullLogs: lambda f, k, u: _weibull(f, k, u).logpdf(f.out),
    LogGammaPrior: lambda f, z: st.loggamma(f.concentration, loc=-np.log(f.rate)).logpdf(z),
    BetaLogit: lambda f, z: _beta_mean(z, f.concentration).logpdf(f.out),
    BetaLogits: lambda f, z, k: _beta_mean(z, np.exp(k)).logpdf(f.out),
    StudentTLogs: lambda f, r, s, k: st.t(np.exp(k), scale=np.exp(s)).logpdf(r),
    OrderedKnown: lambda f, eta: _class(_ordered([c - eta for c in np.asarray(f.cutpoints)[0]]), f.out),
    OrderedCuts: lambda f, *z: _class(_ordered_cuts(*z), f.out),
    Bilinear: lambda f, z: st.norm(_products(z), np.asarray(f.precision)[:, 0, 0] ** -0.5).logpdf(f.out[:, 0]),
    Softmax: lambda f, r: np.log(np.sum(np.asarray(f.one_hot) * _softmax(r), -1)),
    ProductNoise: lambda f, a, b: st.norm(a * b, np.asarray(f.precision) ** -0.5).logpdf(f.out),
    Given: lambda f, t: st.gamma(f.q.concentration, scale=1 / np.asarray(f.q.rate)).logpdf(t),
    GatedConstant: lambda f, z: np.where(np.asarray(f.k)[np.arange(4), z], st.norm(0, 1).logpdf(f.values[0]), 0.0),
}


def _noise_moments(variance):
    return lambda f, r, *s: (-r, np.broadcast_to(variance(f, *s), r.shape))


def _categorical_moments(rows):
    def moments(f, k):
        p = np.exp(rows(f, k))
        return p, p * (1 - p)

    return moments


def _stats(frozen):
    return lambda f, z: (frozen(f, z).mean() + 0 * z, frozen(f, z).var() + 0 * z)


MOMENTS = {
    NormalNoise: _noise_moments(lambda f: 1 / np.asarray(f.precision)),
    NormalPrecision: lambda f, t: (np.asarray(f.mean) + 0 * t, 1 / t),
    NormalLogPrecision: lambda f, s: (np.asarray(f.mean) + 0 * s, np.exp(-s)),
    NoisePrecision: _noise_moments(lambda f, t: 1 / t),
    NoiseLogPrecision: _noise_moments(lambda f, s: np.exp(-s)),
    MvNormalNoise: lambda f, r: (-r, np.diagonal(np.linalg.inv(f.precision), axis1=-2, axis2=-1) + 0 * r),
    LowRankNoise: lambda f, r: (-r, np.sum(np.asarray(f.root) ** 2, -1) + 0 * r),
    GammaPrior: _stats(lambda f, z: st.gamma(f.concentration, scale=1 / np.asarray(f.rate))),
    BetaPrior: _stats(lambda f, z: st.beta(f.a, f.b)),
    DirichletPrior: lambda f, p: (
        np.stack([st.dirichlet(a).mean() for a in np.asarray(f.concentration)]) + 0 * p,
        np.stack([st.dirichlet(a).var() for a in np.asarray(f.concentration)]) + 0 * p,
    ),
    PoissonLog: _stats(lambda f, z: st.poisson(np.exp(z))),
    PoissonRate: _stats(lambda f, z: st.poisson(z)),
    BernoulliLogit: _stats(lambda f, z: st.bernoulli(sp.expit(z))),
    BernoulliProbs: _stats(lambda f, z: st.bernoulli(z)),
    BernoulliPrior: _stats(lambda f, z: st.bernoulli(sp.expit(np.asarray(f.logits)))),
    BinomialLogit: _stats(lambda f, z: st.binom(f.trials, sp.expit(z))),
    BinomialProbs: _stats(lambda f, z: st.binom(f.trials, z)),
    NegativeBinomialLog: _stats(_nb),
    StudentTNoise: lambda f, r: (-r, st.t(f.df, 0, f.scale).var() + 0 * r),
    CategoricalPrior: _categorical_moments(lambda f, k: np.broadcast_to(f.log_probs, (*k.shape, 3))),
    CategoricalProbs: lambda f, p: (p, p * (1 - p)),
    CategoricalEmission: _categorical_moments(lambda f, z: np.asarray(f.log_table)[0][z]),
    CategoricalTransition: None,  # test_transition
    LearnedTransition: lambda f, k, *rows: _row_moments(rows, k // f.outcomes),
    LearnedEmission: lambda f, k, *rows: _row_moments(rows, k),
    GenericFactor: None,  # has no outcome
    ConstantFactor: lambda f: (np.asarray(f.mean), np.asarray(f.variance)),
    InverseGammaPrior: _stats(_inverse_gamma),
    NormalVariance: lambda f, v: (np.asarray(f.mean) + 0 * v, v),
    NoiseVariance: _noise_moments(lambda f, v: v),
    WishartPrior: lambda f, w: tuple(
        np.stack([g(st.wishart(v, np.linalg.inv(s))) for v, s in zip(f.df, f.inverse_scale, strict=True)]) + 0 * w
        for g in (lambda d: d.mean(), lambda d: d.var())
    ),
    NoiseWishart: lambda f, r, w: (-r, np.diagonal(np.linalg.inv(w), axis1=-2, axis2=-1)),
    MvNormalPrecision: lambda f, w: (0 * w[..., 0] - f.r, np.diagonal(np.linalg.inv(w), axis1=-2, axis2=-1)),
    LatentProbs: lambda f, k, p: (p, p * (1 - p)),
    SwitchedNoise: lambda f, r, z: (_log_row(f.shift, z) - r, _log_row(1 / np.broadcast_to(f.precision, (4, 3)), z)),
    Gated: lambda f, r, t, z: (-r, 1 / t),
    ProductLogPrecision: lambda f, a, b, s: (a * b - np.asarray(f.out), np.exp(-s)),
    StudentTLogScale: lambda f, r, s: (-r, np.exp(2 * s) * np.asarray(f.df) / (np.asarray(f.df) - 2)),
    NegativeBinomialLogs: lambda f, z, d: (_nb_logs(z, d).mean(), _nb_logs(z, d).var()),
    GammaLogs: lambda f, k, w: _gamma_ratio(f, np.exp(k), w).stats(),
    WeibullLogs: lambda f, k, u: _weibull(f, k, u).stats(),
    LogGammaPrior: lambda f, z: [x + 0 * z for x in st.loggamma(f.concentration, loc=-np.log(f.rate)).stats()],
    BetaLogit: lambda f, z: _beta_mean(z, f.concentration).stats(),
    BetaLogits: lambda f, z, k: _beta_mean(z, np.exp(k)).stats(),
    StudentTLogs: lambda f, r, s, k: (-r, np.where(k < np.log(2), np.inf, st.t(np.exp(k), scale=np.exp(s)).var())),
    OrderedKnown: lambda f, eta: _classes(_ordered([c - eta for c in np.asarray(f.cutpoints)[0]])),
    OrderedCuts: lambda f, *z: _classes(_ordered_cuts(*z)),
    Bilinear: lambda f, z: (_products(z) - f.out[:, 0], 1 / np.asarray(f.precision)[:, 0, 0] + 0 * z[..., 0]),
    Softmax: lambda f, r: (_softmax(r), _softmax(r) * (1 - _softmax(r))),
    ProductNoise: lambda f, a, b: (a * b - np.asarray(f.out), 1 / np.asarray(f.precision) + 0 * a * b),
    Given: None,  # of a latent variable
    GatedConstant: lambda f, z: (-np.asarray(f.values[0]) + 0 * z, 1.0 + 0 * z),
}

# Per class: fields to spoil, one at a time. The first factor of the batch is spoilt.
BAD = {
    NormalNoise: {"precision": [-1.0, np.nan, np.inf, 0.0]},
    NormalPrecision: {"out": [np.nan], "mean": [np.inf]},
    NormalLogPrecision: {"out": [np.nan], "mean": [np.inf]},
    NoisePrecision: {},
    NoiseLogPrecision: {},
    Given: {},  # improper carries: tests/results/test_filtering.py
    MvNormalNoise: {"log_det": [np.nan, np.inf]},
    LowRankNoise: {"root": [np.nan, np.inf]},
    GammaPrior: {"concentration": [0.0, -1.0], "rate": [0.0, np.nan, np.inf]},
    BetaPrior: {"a": [0.0, np.nan], "b": [-1.0]},
    DirichletPrior: {"concentration": [0.0, np.nan]},
    PoissonLog: {"counts": [-1.0, 0.5, np.nan, np.inf]},
    PoissonRate: {"counts": [-1.0, 0.5, np.nan, np.inf]},
    BernoulliLogit: {"out": [2.0, 0.5, np.nan]},
    BernoulliProbs: {"out": [2.0, 0.5, np.nan]},
    BernoulliPrior: {"logits": [np.nan]},
    BinomialLogit: {"counts": [-1.0, 8.0, 0.5], "trials": [-1.0, 7.5, np.inf]},
    BinomialProbs: {"counts": [-1.0, 8.0, 0.5], "trials": [-1.0, 7.5, np.inf]},
    NegativeBinomialLog: {"counts": [-1.0, 0.5, np.nan], "dispersion": [0.0, -1.0, np.inf]},
    StudentTNoise: {"df": [0.0, np.nan], "scale": [0.0, -1.0, np.inf]},
    CategoricalPrior: {"log_probs": [np.nan, 1.0]},
    CategoricalProbs: {"one_hot": [0.0]},
    CategoricalEmission: {"log_table": [np.nan, 1.0], "outcome": [-1, 2]},
    CategoricalTransition: {"log_table": [np.nan, 1.0]},
    LearnedTransition: {},
    LearnedEmission: {"one_hot": [0.0]},
    GenericFactor: {},
    ConstantFactor: {},
    InverseGammaPrior: {"concentration": [0.0, -1.0], "scale": [0.0, np.nan, np.inf]},
    NormalVariance: {"out": [np.nan], "mean": [np.inf]},
    NoiseVariance: {},
    WishartPrior: {"df": [1.0, np.nan, np.inf], "inverse_scale": [np.nan, -np.eye(2)]},
    NoiseWishart: {},
    MvNormalPrecision: {"r": [np.nan, np.inf]},
    LatentProbs: {},
    SwitchedNoise: {"shift": [np.nan], "precision": [0.0, -1.0, np.inf]},
    Gated: {},  # those of its base
    ProductLogPrecision: {},
    StudentTLogScale: {"df": [0.0, -1.0, np.nan]},
    NegativeBinomialLogs: {"counts": [-1.0, 0.5, np.nan]},
    GammaLogs: {"out": [0.0, -1.0, np.nan]},
    WeibullLogs: {"out": [0.0, -1.0, np.inf]},
    LogGammaPrior: {"concentration": [0.0, -1.0, np.nan], "rate": [0.0, -1.0, np.inf]},
    BetaLogit: {"out": [0.0, 1.0, np.nan], "concentration": [0.0, np.inf]},
    BetaLogits: {"out": [0.0, 1.0, 2.0]},
    StudentTLogs: {},
    OrderedKnown: {"out": [-1.0, 4.0, 0.5], "cutpoints": [np.nan, 0.0]},
    OrderedCuts: {"out": [-1.0, 4.0, np.nan]},
    Bilinear: {"precision": [0.0, -1.0, np.nan]},
    Softmax: {"one_hot": [0.0]},
    ProductNoise: {"precision": [0.0, -1.0, np.nan]},
    GatedConstant: {},
}

DENSITY |= likelihoods.DENSITY
MOMENTS |= likelihoods.MOMENTS
BAD |= likelihoods.BAD
