"""Brute force over factors: dense trapezoid grids in numpy, and draws; nothing calls our quadratures."""

import functools
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import families
from ngmp_kernels.factors.learned_table import LearnedEmission, LearnedTransition
from tests.kernels.factors.cases import ORACLE
from tests.kernels.factors.references import DENSITY

LEARNED = (LearnedTransition, LearnedEmission)


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
