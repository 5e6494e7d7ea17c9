"""Exploring densities that are known: the mode, the reach, and what the nodes make of the integral."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

from ngmp_compiler.integrate.explore import explore
from ngmp_compiler.integrate.nodes import coarse, place


def integrated(log_density, dim):
    """The integral of a density by the nodes, and its moments."""

    def evaluate(points, kept, searching):
        return jax.vmap(log_density)(points), jnp.zeros(len(points))

    found, _, _ = jax.jit(lambda: explore(evaluate, dim, jnp.zeros(()), jnp.result_type(float)))()
    nodes = place(found.extent)
    mass = jax.vmap(log_density)(nodes.v) + nodes.log_volume
    weights = jnp.exp(mass - jax.scipy.special.logsumexp(mass))
    mean = weights @ nodes.v
    cov = (weights[:, None] * (nodes.v - mean)).T @ (nodes.v - mean)
    return found, jax.scipy.special.logsumexp(mass), mean, cov, mass


def gaussian(dim, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, dim)) * np.exp(rng.normal(size=dim))
    mean, cov = 5 * rng.normal(size=dim), root @ root.T + 0.01 * np.eye(dim)
    precision = np.linalg.inv(cov)
    return mean, cov, lambda v: -0.5 * (v - mean) @ precision @ (v - mean)


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
def test_a_gaussian_far_from_the_start(dim):
    mean, cov, log_density = gaussian(dim, dim)
    found, total, m, c, mass = integrated(log_density, dim)
    assert bool(found.found) and bool(found.extent.ends)
    exact = 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    sd = np.sqrt(np.diag(cov))
    assert float(total) == pytest.approx(exact, abs=1e-3 if dim < 4 else 0.02)
    np.testing.assert_allclose((m - mean) / sd, 0, atol=1e-3 if dim < 4 else 0.02)
    np.testing.assert_allclose(np.sqrt(np.diag(c)) / sd, 1, atol=5e-3 if dim < 4 else 0.03)
    some, volume = coarse(len(mass), dim)
    assert abs(float(jax.scipy.special.logsumexp(mass[some]) + volume - total)) < 0.2


def test_a_skewed_density():
    """The logarithm of a Gamma variable of concentration 0.3: an exponential tail to the left."""
    found, total, mean, cov, _ = integrated(lambda v: 0.3 * v[0] - jnp.exp(v[0]), 1)
    exact = st.loggamma(0.3)
    assert bool(found.extent.ends)
    assert float(total) == pytest.approx(float(jax.scipy.special.gammaln(0.3)), abs=0.01)
    assert abs(float(mean[0]) - exact.mean()) < 0.02 * exact.std()
    assert float(jnp.sqrt(cov[0, 0])) == pytest.approx(exact.std(), rel=0.03)


@pytest.mark.parametrize("dim", [2, 3])
def test_a_curved_density(dim):
    """v_1 | v_0 ~ N(v_0^2 / 2, 1/2): a banana; others standard."""

    def log_density(v):
        others = -0.5 * jnp.sum(v[2:] ** 2)
        return -0.5 * v[0] ** 2 - (v[1] - 0.5 * v[0] ** 2) ** 2 + others

    _, total, mean, cov, _ = integrated(log_density, dim)
    exact = 0.5 * np.log(2 * np.pi) * (dim - 1) + 0.5 * np.log(np.pi)
    assert float(total) == pytest.approx(exact, abs=0.03)
    np.testing.assert_allclose(mean[:2], [0.0, 0.5], atol=0.04)
    np.testing.assert_allclose(np.diag(cov)[:2], [1.0, 1.0], rtol=0.08)


def test_three_skewed_numbers():
    """Logarithms of Gamma variables: a box that is wider than they are has too few nodes where they have mass."""
    shapes = np.array([0.5, 1.75, 3.0])
    _, total, mean, cov, _ = integrated(lambda v: jnp.sum(shapes * v - jnp.exp(v)), 3)
    exact = st.loggamma(shapes)
    assert float(total) == pytest.approx(float(jnp.sum(jax.scipy.special.gammaln(shapes))), abs=0.03)
    np.testing.assert_allclose((mean - exact.mean()) / exact.std(), 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)) / exact.std(), 1.0, atol=0.04)


def test_points_follow_what_bends():
    """Two bananas side by side: the kernels of the proposal hold twice as many effective points as one wide bell."""

    def log_density(v):
        return jnp.sum(-0.5 * v[::2] ** 2 - ((v[1::2] - 0.5 * v[::2] ** 2) / 0.7) ** 2 / 2)

    _, total, _, _, mass = integrated(log_density, 4)
    assert float(total) == pytest.approx(2 * np.log(2 * np.pi * 0.7), abs=0.03)
    assert 1 / float(jnp.sum(jnp.exp(2 * (mass - total)))) > 1200


def test_no_end():
    """A density that does not fall off is said not to."""
    flat, *_ = integrated(lambda v: jnp.zeros(()), 2)
    assert not bool(flat.extent.ends)


def test_points_without_a_value():
    """Nodes that have failed are left out, and the mode is found beside them."""
    found, *_ = integrated(lambda v: jnp.where(v[0] > 2.0, jnp.nan, -0.5 * (v[0] - 1.0) ** 2), 1)
    assert float(found.extent.centre[0]) == pytest.approx(1.0, abs=0.4)
