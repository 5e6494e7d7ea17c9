"""Factors of any log-density; and the numerics of single factors at their extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import (
    Bernoulli,
    Binomial,
    Delta,
    GenericDensity,
    GenericFactor,
    NegativeBinomial,
    Poisson,
    Quadrature,
    families,
)
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.numerics.special import log_binomial
from tests.kernels.factors.stand_ins import G, X, lower

# -- any log-density --------------------------------------------------------------------------------------------------


def test_generic_density_order():
    """Arguments reach the function in the order of declaration, whichever of them are constants."""

    class Variable:
        shape = (4,)
        kind = "gamma"

    tau, y = Variable(), jnp.arange(4.0)
    density = GenericDensity(lambda y, x, c, t: y + 10 * x + 100 * c + 1000 * t, (y, X, jnp.array([2.0]), tau))
    (signature,) = density.signatures
    factor, interfaces = signature.lower(**{k: v for k, v in density.arguments.items()})
    assert interfaces == (X, tau) and factor.families == (families.Gaussian, families.Gamma)
    np.testing.assert_allclose(factor.log_density(jnp.ones((5, 1, 4)), jnp.full((3, 4), 3.0))[2, 1], y + 3210.0)


def test_generic_density_key():
    """Loops group: lambdas of equal code are one factor, closures are not."""
    keys = [GenericDensity(lambda x: -(x**2), (X,)).key for _ in range(2)]
    assert keys[0] == keys[1]
    closures = [GenericDensity(lambda x: -(k * x**2), (X,)).key for k in range(2)]  # noqa: B023
    assert closures[0] != closures[1]


def test_generic_factor_structure():
    with pytest.raises(ValueError, match="one to three"):
        GenericFactor(lambda: 0.0, (), ())
    with pytest.raises(ValueError, match="Dirichlet"):
        GenericFactor(lambda p: 0.0, (), (families.Dirichlet,))
    with pytest.raises(ValueError, match="scalar"):
        GenericFactor(lambda x: jnp.stack([x, x]), (), (families.Gaussian,)).log_density(jnp.ones((2, 4)))


def test_generic_factor_three_variables(x64):
    """Two cavities integrated out: a sum of Gaussians is Gaussian, and a switch mixes them."""
    x = families.Gaussian.from_mean_variance(jnp.array([0.5, 1.0]), jnp.array([0.2, 0.3]))
    b = families.Bernoulli.from_probs(jnp.array([0.3, 0.6]))

    def log_density(out, x, b):
        return -0.5 * (out - x - 2.0 * b) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    factor = GenericFactor(log_density, (), (families.Gaussian, families.Gaussian, families.Bernoulli))
    z = jnp.linspace(-2.0, 4.0, 6)[:, None] * jnp.ones(2)
    m, s, p = np.asarray(x.mean), np.sqrt(1 + np.asarray(x.variance)), np.asarray(b.probs)
    expected = np.log((1 - p) * st.norm(m, s).pdf(z) + p * st.norm(m + 2, s).pdf(z))
    np.testing.assert_allclose(factor.log_message(0, (None, x, b))(z), expected, rtol=1e-10 if x64 else 1e-4)


# -- numerics ---------------------------------------------------------------------------------------------------------


def test_log_binomial():
    np.testing.assert_allclose(log_binomial(jnp.array([10.0]), jnp.array([3.0])), np.log(120.0), rtol=1e-6)


def test_negative_binomial_tends_to_poisson():
    z, y = jnp.array([-1.0, 0.0, 3.0]), np.array([0, 2, 25])
    poisson = lower(Poisson(G), y).factor
    near = lower(NegativeBinomial(mean=G, dispersion=np.float32(1e7)), y).factor
    np.testing.assert_allclose(near.log_density(z), poisson.log_density(z), rtol=2e-5, atol=2e-5)


def test_scale_mixture_is_accurate_for_wide_cavities(x64):
    """Nodes at the mode of the integrand: a log-precision known to +-1 gives ten digits."""
    if not x64:
        pytest.skip("a statement on float64")
    cavity = families.Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1))
    r = jnp.array([[0.0], [0.5], [3.0], [10.0]])
    s = np.linspace(-14.0, 14.0, 4001)
    logs = st.norm(0, np.exp(-0.5 * s)).logpdf(np.asarray(r)) + st.norm.logpdf(s) + np.log(s[1] - s[0])
    exact = sp.logsumexp(logs, axis=1, keepdims=True)
    np.testing.assert_allclose(NoiseLogPrecision().log_message(0, (None, cavity))(r), exact, rtol=0, atol=1e-9)


def test_derivatives_do_not_see_the_nodes(x64):
    """Gradients of the scale mixture, in its argument and in the cavity, against finite differences."""
    if not x64:
        pytest.skip("finite differences need float64")
    factor = NoiseLogPrecision()

    @jax.jit
    def total(r, m, v):
        return jnp.sum(factor.log_message(0, (None, families.Gaussian.from_mean_variance(m, v)))(r))

    arguments = (jnp.array([[0.3], [2.0]]), jnp.array([0.2]), jnp.array([0.6]))
    gradients = jax.grad(total, argnums=(0, 1, 2))(*arguments)
    for i, g in enumerate(gradients):
        step = 1e-5
        up, down = (total(*(a + s * step * (k == i) for k, a in enumerate(arguments))) for s in (1, -1))
        np.testing.assert_allclose(jnp.sum(g), (up - down) / (2 * step), rtol=1e-7)


@pytest.mark.core32
@pytest.mark.parametrize("dtype", [jnp.float32, None])
def test_extremes_stay_finite(dtype):
    """Marginals far too wide, precisions tiny or huge: finite targets in float32 as well."""
    dtype = dtype or jnp.result_type(float)
    wide = families.Gaussian.from_mean_variance(jnp.array([0.0, 5.0], dtype), jnp.array([400.0, 1e-6], dtype))
    gamma = families.Gamma.from_concentration_rate(jnp.array([0.3, 1e6], dtype), jnp.array([10.0, 1e-3], dtype))
    y = jnp.array([0.0, 1.0], dtype)

    def run():
        for distribution in (Poisson(G), Bernoulli(logits=X), Binomial(jnp.asarray(3, dtype), logits=X)):
            factor = lower(distribution, y).factor
            yield from (factor.project(0, wide, (None,), rule) for rule in (Quadrature(), Delta()))
        for factor, q in ((NoisePrecision(), gamma), (NoiseLogPrecision(), wide)):
            for j, marginal in enumerate((wide, q)):
                yield factor.project(j, marginal, (wide, q), Quadrature())
                yield factor.expected_log_message(j, marginal, (wide, q), Quadrature())
            yield factor.log_evidence((wide, q), Quadrature())

    for value in jax.tree.leaves(jax.jit(lambda: list(run()))()):
        assert bool(jnp.all(jnp.isfinite(value)))
        assert value.dtype == dtype
