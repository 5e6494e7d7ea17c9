"""Every factor against brute force: dense trapezoid grids in numpy and the densities of scipy.stats.

Nothing here calls our quadratures or projections except to judge them. A factor class without an oracle case, a
reference density, reference moments or a bad example fails `test_complete`.
"""

import dataclasses
import functools
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import ORACLE, AbstractConjugate, AbstractProjected, Quadrature, families, registered_factors
from ngmp_kernels.factors.bernoulli import BernoulliLogit, BernoulliPrior, BernoulliProbs
from ngmp_kernels.factors.beta import BetaPrior
from ngmp_kernels.factors.binomial import BinomialLogit, BinomialProbs
from ngmp_kernels.factors.categorical import (
    CategoricalEmission,
    CategoricalPrior,
    CategoricalProbs,
    CategoricalTransition,
)
from ngmp_kernels.factors.dirichlet import DirichletPrior
from ngmp_kernels.factors.gamma import GammaPrior
from ngmp_kernels.factors.gated import Gated, GatedConstant
from ngmp_kernels.factors.generic import ConstantFactor, GenericFactor
from ngmp_kernels.factors.given import Given
from ngmp_kernels.factors.inverse_gamma import InverseGammaPrior, NoiseVariance, NormalVariance
from ngmp_kernels.factors.latent_probs import LatentProbs
from ngmp_kernels.factors.learned_table import LearnedEmission, LearnedTransition
from ngmp_kernels.factors.mv_normal import MvNormalNoise
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLog
from ngmp_kernels.factors.normal import NormalLogPrecision, NormalNoise, NormalPrecision
from ngmp_kernels.factors.normal_noise import NoiseLogPrecision, NoisePrecision
from ngmp_kernels.factors.poisson import PoissonLog, PoissonRate
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.factors.student_t import StudentTNoise
from ngmp_kernels.factors.switched_noise import SwitchedNoise
from ngmp_kernels.factors.wishart import MvNormalPrecision, NoiseWishart, WishartPrior

FACTORS = dict.fromkeys([*registered_factors(), GenericFactor, Given, Gated, GatedConstant])
PROJECTED = [c for c in FACTORS if issubclass(c, AbstractProjected)]
CONJUGATE = [c for c in FACTORS if issubclass(c, AbstractConjugate)]
PAIRS = (NoisePrecision, NoiseLogPrecision, NoiseVariance, GenericFactor, LatentProbs, SwitchedNoise, ProductNoise)
LEARNED = (LearnedTransition, LearnedEmission)
MEAN_FIELD = (NoiseWishart, *LEARNED)  # no projection of exact messages: test_mean_field_projection
EDGES = [(c, j) for c in PROJECTED if c not in MEAN_FIELD for j in range(3 if c is Gated else 2 if c in PAIRS else 1)]
SCALAR_EDGES = [(c, j) for c, j in EDGES if c is not LatentProbs and (c, j) not in ((Gated, 2), (SwitchedNoise, 1))]
RULE = Quadrature()


def _name(x):
    return getattr(x, "__name__", str(x))


@functools.cache
def case(cls):
    """The oracle case of a class, in the dtype of this process."""
    key = jax.random.key(zlib.crc32(cls.__name__.encode()))
    return ORACLE[cls](key, jnp.result_type(float))


def double(tree):
    """Parameters and values as numpy arrays, in float64, so that references are exact in a float32 process too."""
    return jax.tree.map(lambda x: np.asarray(x, float if x.dtype.kind == "f" else None), tree)


def tolerance(x64, double, single):
    return double if x64 else single


# -- the named distributions, from scipy ------------------------------------------------------------------------------


def _nb(f, z):
    mean, phi = np.exp(z), np.asarray(f.dispersion)
    return st.nbinom(phi, phi / (phi + mean))


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
    ProductNoise: {"precision": [0.0, -1.0, np.nan]},
    GatedConstant: {},
}


def test_complete():
    for table in (ORACLE, DENSITY, MOMENTS, BAD):
        missing = [c.__name__ for c in FACTORS if c not in table]
        assert not missing, f"no oracle case, reference density, moments or bad example for {missing}"
    unknown = [c.__name__ for c in ORACLE if c not in FACTORS]
    assert not unknown, f"oracle cases of factors that no signature lowers to: {unknown}"


# -- brute force ------------------------------------------------------------------------------------------------------


def grid(q, points=801):
    """Nodes (G, n) that cover a member of a family, and log(q x spacing) at them, by scipy alone."""
    u = np.linspace(-1.0, 1.0, points)[:, None]
    if isinstance(q, families.Categorical):
        logits = np.asarray(q.eta1, float)
        z = np.broadcast_to(np.arange(logits.shape[1])[:, None], logits.T.shape)
        return z, (logits - sp.logsumexp(logits, axis=1, keepdims=True)).T
    if isinstance(q, families.InverseGamma):
        tau, log_mass = grid(q.reciprocal, points)
        return 1 / tau, log_mass
    if isinstance(q, families.Dirichlet):
        return simplex(np.asarray(q.concentration, float))
    if isinstance(q, families.Gaussian):
        m, s = np.asarray(q.mean, float), np.sqrt(np.asarray(q.variance, float))
        z = m + 14.0 * s * u
        return z, st.norm(m, s).logpdf(z) + np.log(14.0 * s * (u[1] - u[0]))
    a, b = np.asarray(q.concentration, float), np.asarray(q.rate, float)
    low, high = sp.digamma(a) - np.log(b) - 45.0 / a, np.log((a + 60.0 + 12.0 * np.sqrt(a)) / b)
    s = 0.5 * (low + high) + 0.5 * (high - low) * u
    z = np.exp(s)
    return z, st.gamma(a, scale=1 / b).logpdf(z) + s + np.log(0.5 * (high - low) * (u[1] - u[0]))


def simplex(alpha, points=301):
    """Nodes (G, n, 3) by breaking a stick at two logits."""
    s = np.linspace(-22.0, 22.0, points)
    first, second = (x.ravel() for x in np.meshgrid(sp.expit(s), sp.expit(s), indexing="ij"))
    p = np.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1)
    jacobian = first * (1 - first) * second * (1 - second) * (1 - first) * (s[1] - s[0]) ** 2
    log_mass = np.sum((alpha - 1) * np.log(p)[:, None], -1) - (
        np.sum(sp.gammaln(alpha), -1) - sp.gammaln(alpha.sum(-1))
    )
    return np.broadcast_to(p[:, None], (len(p), *alpha.shape)), log_mass + np.log(jacobian)[:, None]


def brute_log_message(factor, j, cavities, z):
    """log of the integral of f times the other cavities, at z (Q, n, *event)."""
    density, factor = DENSITY[type(factor)], double(factor)
    others = [i for i in range(len(factor.interfaces)) if i != j]
    if not others:
        return density(factor, z)
    values, total = {j: z[(slice(None), *(None,) * len(others))]}, 0.0
    for axis, i in enumerate(others, 1):
        other, log_mass = grid(cavities[i], 801 if len(others) == 1 else 401)
        place = tuple(slice(None) if k == axis else None for k in range(len(others) + 1))
        values[i], total = other[place], total + log_mass[place]
    log_f = density(factor, *(values[i] for i in range(len(factor.interfaces))))
    return sp.logsumexp(log_f + total, axis=tuple(range(1, len(others) + 1)))


def brute_projection(q, values, z, log_mass):
    """F^-1 Cov[T, l] with both on the grid, in standardised statistics."""
    if isinstance(q, families.Categorical):
        return (values - values.mean(0)).T  # the regression is exact; of the equivalent logits those that sum to zero
    w = np.exp(log_mass)
    match q:
        case families.Gaussian():
            statistics = np.stack([z, z**2], -1)
        case families.Dirichlet():
            statistics = np.log(z)
        case families.InverseGamma():
            statistics = np.stack([np.log(z), 1 / z], -1)
        case _:
            statistics = np.stack([np.log(z), z], -1)
    centred = statistics - np.sum(w[..., None] * statistics, 0)
    fisher = np.einsum("gn,gni,gnj->nij", w, centred, centred)
    covariance = np.einsum("gn,gni,gn->ni", w, centred, values - np.sum(w * values, 0))
    scale = np.sqrt(np.einsum("nii->ni", fisher))
    correlation = fisher / scale[:, :, None] / scale[:, None, :]
    return np.linalg.solve(correlation, (covariance / scale)[..., None])[..., 0] / scale


def draws(marginals, size):
    """Values from the marginals, (size, n, *event), by numpy; compiling jax's samplers would take longer."""
    rng = np.random.default_rng(7)
    dtype = jnp.result_type(float)

    def draw(q):
        shape = (size, *q.batch_shape)
        match q:
            case families.Gaussian():
                return rng.normal(q.mean, np.sqrt(q.variance), shape)
            case families.MvGaussian():
                return np.asarray(q.mean) + rng.normal(size=(*shape, *q.event_shape))
            case families.Gamma():
                return rng.gamma(q.concentration, 1 / np.asarray(q.rate), shape)
            case families.InverseGamma():
                return np.asarray(q.scale) / rng.gamma(q.concentration, size=shape)
            case families.Wishart():
                root = rng.normal(size=(*shape, *q.event_shape))
                return root @ root.swapaxes(-1, -2) + 0.5 * np.eye(q.event_shape[0])
            case families.Beta():
                return rng.beta(q.a, q.b, shape)
            case families.Dirichlet():
                gammas = rng.gamma(q.concentration, size=(*shape, *q.event_shape))
                return gammas / gammas.sum(-1, keepdims=True)
            case families.Bernoulli():
                return rng.integers(0, 2, shape)
            case families.Categorical():
                return rng.integers(0, q.event_shape[0], shape)

    values = [draw(q) for q in marginals]
    return [jnp.asarray(z, dtype if z.dtype.kind == "f" else int) for z in values]


def call(function, *arguments):
    """Compiled as a whole but hardly optimised: the cheapest way to run something once."""
    dynamic, static = eqx.partition((function, arguments), eqx.is_array)

    def run(dynamic):
        function, arguments = eqx.combine(dynamic, static)
        return function(*arguments)

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})(dynamic)


# -- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.core32
@pytest.mark.parametrize("cls", [c for c in FACTORS if DENSITY.get(c)], ids=_name)
def test_density(cls, x64):
    """log_density is that of the named distribution, constants included."""
    factor, _, marginals = case(cls)
    z = draws(marginals, 7)
    expected = DENSITY[cls](double(factor), *map(double, z))
    tol = tolerance(x64, 1e-10, 2e-5)
    np.testing.assert_allclose(call(factor.log_density, *z), expected, rtol=tol, atol=tol)


@pytest.mark.core32
@pytest.mark.parametrize("cls", [c for c in CONJUGATE if c not in (CategoricalTransition, ConstantFactor)], ids=_name)
def test_conjugate(cls, x64):
    """log f(z) = eta . T(z) + log_scale exactly, in the declared family."""
    factor, _, marginals = case(cls)
    (z,) = draws(marginals, 7)
    eta, log_scale = call(factor.message)
    assert type(eta) is factor.families[0]
    tol = tolerance(x64, 1e-12, 1e-5)
    expected = call(factor.log_density, z)
    actual = call(lambda: eta.dot(eta.statistics(z)) + log_scale)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def test_constant():
    factor, *_ = case(ConstantFactor)
    eta, log_scale = factor.message()
    assert eta is None
    np.testing.assert_array_equal(log_scale, factor.log_density())


def test_transition(x64):
    """The joint factor: table and density agree for every pair of classes."""
    factor, *_ = case(CategoricalTransition)
    eta, log_scale = factor.message()
    n, rows, columns = factor.log_table.shape
    z, out = (jnp.broadcast_to(k.reshape(-1, 1), (rows * columns, n)) for k in jnp.indices((rows, columns)))
    table = np.asarray(factor.log_table).transpose(1, 2, 0).reshape(-1, n)
    np.testing.assert_array_equal(factor.log_density((z, out)), table)
    np.testing.assert_array_equal(eta.eta1 + log_scale[:, None, None], factor.log_table)
    mean, variance = factor.moments((z, out))
    expected = np.exp(np.asarray(factor.log_table))[np.arange(n), np.asarray(z)]
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(variance, expected * (1 - expected), rtol=1e-5)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_log_message(cls, j, x64):
    """The exact log-message with its constant, at the marginal's centre and far in its tails."""
    factor, cavities, marginals = case(cls)
    z, log_mass = grid(marginals[j], 801)
    inside = np.argsort(-log_mass, axis=0)[:: 40 if x64 else 60][:6]
    z = np.take_along_axis(z, inside.reshape(inside.shape + (1,) * (z.ndim - 2)), 0)
    expected = brute_log_message(factor, j, cavities, z)
    tol = tolerance(x64, 1e-7, 1e-4)
    z = jnp.asarray(z, jnp.result_type(float) if z.dtype.kind == "f" else int)
    actual = call(lambda z: factor.log_message(j, cavities)(z), z)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_project(cls, j, x64):
    """project() is the gradient of E_q[l] in mean coordinates; expected_log_message is E_q[l]."""
    factor, cavities, marginals = case(cls)
    q = marginals[j]
    z, log_mass = grid(q)
    values = brute_log_message(factor, j, cavities, z)
    expected = brute_projection(q, values, z, log_mass)
    eta = call(factor.project, j, q, cavities, RULE)
    assert type(eta) is type(q) and eta.batch_shape == q.batch_shape
    tol = tolerance(x64, 1e-6, 2e-3)
    blocks = [np.reshape(x, (x.shape[0], -1)) for x in eta.natural]
    np.testing.assert_allclose(np.concatenate(blocks, -1), expected, rtol=tol, atol=0.1 * tol)
    mean = call(factor.expected_log_message, j, q, cavities, RULE)
    np.testing.assert_allclose(mean, np.sum(np.exp(log_mass) * values, 0), rtol=tol, atol=0.1 * tol)


@pytest.mark.parametrize("cls", [c for c in PROJECTED if (c, 1) in EDGES], ids=_name)
def test_log_evidence(cls, x64):
    factor, cavities, _ = case(cls)
    z, log_mass = grid(cavities[0])
    expected = sp.logsumexp(brute_log_message(factor, 0, cavities, z) + log_mass, axis=0)
    np.testing.assert_allclose(call(factor.log_evidence, cavities, RULE), expected, rtol=tolerance(x64, 1e-7, 1e-4))


@pytest.mark.parametrize("cls", [c for c in FACTORS if MOMENTS.get(c)], ids=_name)
def test_moments(cls, x64):
    factor, _, marginals = case(cls)
    z = draws(marginals, 5)
    expected = MOMENTS[cls](double(factor), *map(double, z))
    for value, reference in zip(call(factor.moments, *z), expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=tolerance(x64, 1e-10, 1e-4))


@pytest.mark.parametrize("cls", list(FACTORS), ids=_name)
def test_checks(cls):
    """Sound factors pass every check; each spoilt field is flagged at the factor that is wrong."""
    factor, *_ = case(cls)
    assert all(bool(jnp.all(ok)) for ok in factor.checks().values())
    for field, values in BAD[cls].items():
        for bad in values:
            array = np.array(getattr(factor, field))
            array[0] = bad
            checks = dataclasses.replace(factor, **{field: jnp.asarray(array)}).checks()
            flagged = [np.atleast_1d(~np.asarray(ok)) for ok in checks.values()]
            assert any(f[0] for f in flagged), (field, bad)
            if array.shape[0] > 1:
                assert not any(f[1:].any() for f in flagged), (field, bad)


@pytest.mark.parametrize(
    "cls", [NoisePrecision, NoiseVariance, NoiseWishart, LatentProbs, Gated, SwitchedNoise, *LEARNED], ids=_name
)
def test_mean_field_projection(cls, x64):
    """Closed forms of VMP: `eta_j . T(z_j)` is the expected log-factor up to a constant, by samples of the others."""
    factor, _, marginals = case(cls)
    size, tol = 7, tolerance(x64, 1e-9, 2e-4)
    for j, q in enumerate(marginals):
        (z,) = draws([q], size)
        eta = call(factor.mean_field_projection, j, marginals, RULE)
        assert type(eta) is type(q) and eta.batch_shape == q.batch_shape
        actual = call(lambda eta=eta, z=z: eta.dot(eta.statistics(z)))
        expected = call(lambda z, j=j: factor.mean_field_message(j, marginals, RULE)(z), z)
        gap = np.asarray(actual) - np.asarray(expected)
        np.testing.assert_allclose(gap, np.broadcast_to(gap[:1], gap.shape), rtol=tol, atol=tol * 10)


def test_wishart_expectations(x64):
    """The expected log-factor and the predictive density of a residual under a Wishart, by Monte Carlo."""
    factor, _, (r, w) = case(NoiseWishart)
    rng = np.random.default_rng(3)
    energy, density = call(lambda: (factor.expected_log_density((r, w), RULE), factor.predictive_log_density((r, w))))
    for i in range(4):
        wishart = st.wishart(float(w.df[i]), np.asarray(w.scale[i], float)).rvs(40_000, rng)
        mean, covariance = np.asarray(r.mean[i], float), np.asarray(r.covariance[i], float)
        draws_r = rng.multivariate_normal(mean, covariance, 40_000)
        logs = 0.5 * np.linalg.slogdet(wishart)[1] - np.log(2 * np.pi)
        logs -= 0.5 * np.einsum("ni,nij,nj->n", draws_r, wishart, draws_r)
        np.testing.assert_allclose(energy[i], logs.mean(), atol=5 * logs.std() / 200)
        # r is integrated in closed form, so only W is sampled
        total = covariance + np.linalg.inv(wishart)
        logs = -0.5 * np.linalg.slogdet(total)[1] - np.log(2 * np.pi)
        logs -= 0.5 * np.einsum("i,nij,j->n", mean, np.linalg.inv(total), mean)
        values = np.exp(logs)
        np.testing.assert_allclose(np.exp(density[i]), values.mean(), atol=5 * values.std() / 200)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), SCALAR_EDGES, ids=_name)
def test_finite_far_away(cls, j):
    """No infinity or NaN in values and derivatives, however far the argument."""
    factor, cavities, marginals = case(cls)
    if isinstance(marginals[j], (families.Gamma, families.InverseGamma)):
        z = jnp.array([1e-25, 1e-8, 1e8, 1e15])
    else:
        z = jnp.array([-1e4, -60.0, 0.0, 60.0, 1e4])
    z = jnp.broadcast_to(z[:, None], (len(z), 4))
    if cls is GenericFactor:
        z = jnp.clip(z, -60.0, 60.0) if j == 0 else jnp.clip(z, 1e-8, 1e8)
    message = factor.log_message(j, cavities)
    value, slope = call(lambda z: jax.jvp(message, (z,), (jnp.ones_like(z),)), z)
    assert jnp.all(jnp.isfinite(value))
    assert jnp.all(jnp.isfinite(slope))


@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_gradients_finite(cls, j):
    """Gradients of the projection with respect to parameters, cavities and marginal are finite."""
    factor, cavities, marginals = case(cls)

    def total(factor, cavities, q):
        eta = factor.project(j, q, cavities, RULE)
        return sum(jnp.sum(x) for x in eta.natural) + jnp.sum(factor.expected_log_message(j, q, cavities, RULE))

    arguments, static = eqx.partition((factor, cavities, marginals[j]), eqx.is_inexact_array)
    gradients = call(jax.grad(lambda a: total(*eqx.combine(a, static))), arguments)
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in jax.tree.leaves(gradients))


@pytest.mark.parametrize("cls", PROJECTED, ids=_name)
def test_initial(cls):
    """A starting marginal is proper, in the family of its interface, and of the size of the batch (or shared)."""
    factor, *_ = case(cls)
    start = factor.initial()
    assert len(start) == len(factor.interfaces)
    for q, family in zip(start, factor.families, strict=True):
        assert q is None or (type(q) is family and bool(jnp.all(q.is_proper())) and q.batch_shape in ((4,), (1,)))


@pytest.mark.parametrize("cls", list(FACTORS), ids=_name)
def test_jit_and_dtype(cls, x64):
    """Factors can be made and used under jit; float32 stays float32 with x64 on."""
    if not x64:
        pytest.skip("needs two precisions in one process")

    @jax.jit
    def run():
        factor, cavities, marginals = ORACLE[cls](jax.random.key(0), jnp.float32)
        if isinstance(factor, AbstractConjugate):
            return factor.message()
        if cls in MEAN_FIELD:
            return [factor.mean_field_projection(j, marginals, RULE) for j in range(len(marginals))]
        every = [(j, marginals[j], cavities, RULE) for j in range(len(marginals))]
        return [(factor.project(*args), factor.expected_log_message(*args)) for args in every]

    assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(run))} == {jnp.dtype("float32")}


def test_a_factor_that_only_states_its_density_has_messages():
    """Two interfaces and nothing but `log_density`: the default log-message is the nested quadrature."""

    class Plain(AbstractProjected):
        interfaces = ("r", "tau")
        families = (families.Gaussian, families.Gamma)

        def log_density(self, r, tau):
            return NoisePrecision().log_density(r, tau)

        def checks(self):
            return {}

        def moments(self, r, tau):
            return -r, 1 / tau

    r = families.Gaussian.from_mean_variance(jnp.array([0.3]), jnp.array([0.5]))
    tau = families.Gamma.from_concentration_rate(jnp.array([4.0]), jnp.array([3.0]))
    z = jnp.linspace(0.5, 2.0, 5)[:, None]
    expected = NoisePrecision().log_message(1, (r, tau))(z)
    np.testing.assert_allclose(Plain().log_message(1, (r, tau))(z), expected, rtol=1e-5)
