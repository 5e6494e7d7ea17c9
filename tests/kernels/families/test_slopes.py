"""Gradients in mean parameters and expectations: what energies of marginals are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_kernels import families

A = np.array([[2.0, 0.3], [0.3, 1.0]])
MEMBERS = {
    "gaussian": lambda: families.Gaussian.from_mean_variance(jnp.array([1.0, -2.0]), jnp.array([0.5, 0.1])),
    "vector": lambda: families.MvGaussian.from_mean_covariance(jnp.eye(2) + 1.0, np.stack([A, A / 9])),
    "gamma": lambda: families.Gamma.from_concentration_rate(jnp.array([2.0, 30.0]), jnp.array([1.0, 0.1])),
    "inverse": lambda: families.InverseGamma.from_reciprocal(
        families.Gamma.from_concentration_rate(jnp.array([4.0, 30.0]), jnp.array([1.0, 0.1]))
    ),
    "beta": lambda: families.Beta.from_ab(jnp.array([2.0, 0.5]), jnp.array([1.0, 3.0])),
    "dirichlet": lambda: families.Dirichlet(jnp.array([[1.0, -0.5, 0.0], [0.0, 2.0, 7.0]])),
    "classes": lambda: families.Categorical.from_probs(jnp.array([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])),
    "bernoulli": lambda: families.Bernoulli.from_probs(jnp.array([0.2, 0.5])),
    "wishart": lambda: families.Wishart.from_df_inverse_scale(jnp.array([4.0, 9.0]), np.stack([A, 3 * A])),
}


def energy(q):
    return jnp.sum(jnp.sin(q.mean) * q.variance) + 0.1 * jnp.sum(q.entropy()) ** 2


@pytest.mark.parametrize("name", MEMBERS)
def test_slope_is_the_gradient_in_mean_parameters(name, x64):
    """Along a change of natural parameters, the energy and the mean parameters change as the slope says."""
    q = MEMBERS[name]()
    rng = np.random.default_rng(0)
    changes = [np.abs(np.asarray(x)) * rng.normal(size=x.shape) for x in q.natural]
    changes = [d + np.swapaxes(d, -1, -2) if d.ndim == 3 else d for d in changes]

    def moved(t):
        return type(q)(*(x + t * d for x, d in zip(q.natural, changes, strict=True)))

    slope, h = q.slope(energy), 1e-6
    mean = [(a - b) / (2 * h) for a, b in zip(moved(h).to_mean(), moved(-h).to_mean(), strict=True)]
    value = (energy(moved(h)) - energy(moved(-h))) / (2 * h)
    found = sum(float(jnp.sum(s * d)) for s, d in zip(slope.natural, mean, strict=True))
    np.testing.assert_allclose(found, value, rtol=1e-5)


def test_expectations(x64):
    g, v, c = (MEMBERS[k]() for k in ("gaussian", "vector", "classes"))
    np.testing.assert_allclose(g.expect(lambda z: z**3), g.mean**3 + 3 * g.mean * g.variance, rtol=1e-9)
    second = v.covariance + v.mean[:, :, None] * v.mean[:, None, :]
    np.testing.assert_allclose(v.expect(lambda z: jnp.outer(z, z)), second, rtol=1e-9)
    table = jnp.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(c.expect(lambda k: table[k]), c.probs @ table, rtol=1e-12)
    assert jax.jit(lambda q: q.expect(jnp.cos))(g).shape == (2,)
