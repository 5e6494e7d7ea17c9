"""One table of instances of every family, with the same thing in scipy; and all results of one, in one program."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ngmp_kernels.families import (
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

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # every program here runs a few times only


class Case(NamedTuple):
    """A family: how to make a batch, another batch for divergences, and the same thing in scipy."""

    make: Callable[[Any], Any]
    other: Callable[[Any], Any]
    scipy: Callable[[Any, int], Any]  # (instance, batch index) -> frozen scipy distribution


def _mv(seed, dtype):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 3, 3))
    return MvGaussian.from_mean_covariance(
        jnp.asarray(rng.normal(size=(2, 3)), dtype), jnp.asarray(root @ root.swapaxes(1, 2) + np.eye(3), dtype)
    )


def _wishart(seed, dtype, df):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 2, 2))
    scale = root @ root.swapaxes(1, 2) + 0.5 * np.eye(2)
    return Wishart.from_df_scale(jnp.asarray(df, dtype), jnp.asarray(scale, dtype))


def _array(*x):
    return lambda dtype: jnp.asarray(x, dtype)


GAMMA_A, GAMMA_B = _array(0.3, 1.0, 2.5, 40.0, 1e4), _array(2.0, 0.1, 3.0, 55.0, 9e3)
INVERSE_A, INVERSE_B = _array(2.5, 4.0, 40.0, 1e4), _array(2.0, 0.1, 55.0, 9e3)
BETA_A, BETA_B = _array(0.5, 2.0, 60.0, 300.0), _array(0.7, 3.0, 900.0, 4.0)
PROBS = _array([0.2, 0.5, 0.3], [0.05, 0.05, 0.9])

CASES = {
    "gaussian": Case(
        lambda dt: Gaussian.from_mean_variance(_array(-3.0, 0.0, 40.0)(dt), _array(0.2, 1.0, 9.0)(dt)),
        lambda dt: Gaussian.from_mean_variance(_array(-2.0, 0.5, 38.0)(dt), _array(0.3, 4.0, 2.0)(dt)),
        lambda q, i: stats.norm(q.mean[i], q.std[i]),
    ),
    "mvgaussian": Case(
        lambda dt: _mv(0, dt),
        lambda dt: _mv(1, dt),
        lambda q, i: stats.multivariate_normal(np.asarray(q.mean[i], float), np.asarray(q.covariance[i], float)),
    ),
    "gamma": Case(
        lambda dt: Gamma.from_concentration_rate(GAMMA_A(dt), GAMMA_B(dt)),
        lambda dt: Gamma.from_concentration_rate(GAMMA_A(dt) * 1.2, GAMMA_B(dt) * 0.9),
        lambda q, i: stats.gamma(float(q.concentration[i]), scale=1 / float(q.rate[i])),
    ),
    "beta": Case(
        lambda dt: Beta.from_ab(BETA_A(dt), BETA_B(dt)),
        lambda dt: Beta.from_ab(BETA_A(dt) * 1.1, BETA_B(dt) * 0.9),
        lambda q, i: stats.beta(float(q.a[i]), float(q.b[i])),
    ),
    "bernoulli": Case(
        lambda dt: Bernoulli.from_probs(_array(0.1, 0.5, 0.97)(dt)),
        lambda dt: Bernoulli.from_logits(_array(-1.0, 0.3, 2.0)(dt)),
        lambda q, i: stats.bernoulli(float(q.probs[i])),
    ),
    "categorical": Case(
        lambda dt: Categorical.from_probs(PROBS(dt)),
        lambda dt: Categorical.from_logits(PROBS(dt) * 3),
        lambda q, i: stats.rv_discrete(values=(np.arange(3), np.asarray(q.probs[i], float) / float(q.probs[i].sum()))),
    ),
    "dirichlet": Case(
        lambda dt: Dirichlet.from_concentration(_array([0.5, 1.0, 2.0], [30.0, 4.0, 11.0])(dt)),
        lambda dt: Dirichlet.from_concentration(_array([0.7, 1.3, 1.0], [40.0, 6.0, 9.0])(dt)),
        lambda q, i: stats.dirichlet(np.asarray(q.concentration[i], float)),
    ),
    "inversegamma": Case(
        lambda dt: InverseGamma.from_concentration_scale(INVERSE_A(dt), INVERSE_B(dt)),
        lambda dt: InverseGamma.from_concentration_scale(INVERSE_A(dt) * 1.2, INVERSE_B(dt) * 0.9),
        lambda q, i: stats.invgamma(float(q.concentration[i]), scale=float(q.scale[i])),
    ),
    "wishart": Case(
        lambda dt: _wishart(0, dt, [2.5, 4.0, 60.0]),
        lambda dt: _wishart(1, dt, [3.5, 3.0, 50.0]),
        lambda q, i: stats.wishart(float(q.df[i]), np.asarray(q.scale[i], float)),
    ),
}
DRAWS = 4000


def one(q, i):
    return jax.tree.map(lambda x: x[i], q)


def flatten(blocks, batch_shape):
    """Blocks of shape (*b, ...) side by side: (*b, k)."""
    return jnp.concatenate([x.reshape(batch_shape + (-1,)) for x in blocks], axis=-1)


def potential(family, shapes):
    """The log-partition of a single instance as a function of one flat vector."""
    cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

    def log_partition(v):
        return family(*(x.reshape(s) for x, s in zip(jnp.split(v, cuts), shapes, strict=True))).log_partition()

    return log_partition


def everything(q, p):
    """All results of one family in one program, because compiling them one by one would take minutes."""
    family, shapes = type(q), [eta.shape[1:] for eta in q.natural]
    eta, log_partition = flatten(q.natural, q.batch_shape), potential(type(q), shapes)
    z = q.sample(jax.random.key(7), (DRAWS,))
    few = z[:7]
    return {
        "draws": z,
        "draws' statistics": flatten(q.statistics(z), (DRAWS,) + q.batch_shape),
        "flat mu": flatten(q.to_mean(), q.batch_shape),
        "gradient": jax.vmap(jax.grad(log_partition))(eta),
        "hessian": jax.vmap(jax.hessian(log_partition))(eta),
        "round trip": family.from_mean(*q.to_mean()),
        "plain log density": q.dot(q.statistics(few)) - q.log_partition(),
        "log density": q.log_density(few),
        "log partition": q.log_partition(),
        "entropy": q.entropy(),
        "kl": q.kl(p),
        "mean": q.mean,
        "variance": q.variance,
        "proper": q.is_proper(),
    }


@functools.cache
def results(name, dtype):
    """`everything`, compiled without optimisation: it runs once."""
    case = CASES[name]
    run = jax.jit(everything, compiler_options=FAST_COMPILE)
    return jax.tree.map(np.asarray, run(case.make(dtype), case.other(dtype)))
