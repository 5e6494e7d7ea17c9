"""The tangent projection on every family it serves and with every rule: messages of the family come back."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from ngmp_kernels.families import Gamma, Gaussian
from ngmp_kernels.quadrature.projection import (
    Delta,
    LogTrapezoid,
    Quadrature,
    Unscented,
    tangent_projection,
)
from tests.kernels.quadrature.edges import EDGES, FAST_COMPILE, RULES, SHAPES, both, compiled_nodes


def log_message_of(q, eta):
    """The function z -> eta . T(z) of an in-family message."""
    message = jax.tree.map(
        lambda leaf, value: jnp.broadcast_to(jnp.asarray(value, leaf.dtype), leaf.shape), q, type(q)(*eta)
    )
    return message, lambda z: message.dot(q.statistics(z))


# -- messages already in the family --------------------------------------------------------------------------------


def scales(q):
    """Natural units of the two coordinates of a message: eta2 counts per z at scale of the mean, and so on."""
    if q.kind == "gamma":
        return (1.0, 1 / q.mean)
    return (1.0,) * len(q.natural)


@functools.cache
def in_family(name):
    make, eta = EDGES[name]

    def run(q):
        _, log_message = log_message_of(q, tuple(jnp.asarray(e, q.dtype) for e in eta))
        return {key: tangent_projection(q, log_message, rule) for key, rule in RULES.items()}

    return jax.jit(run, compiler_options=FAST_COMPILE)(make())


@pytest.mark.core32
@pytest.mark.parametrize(("name", "rule"), [*itertools.product(EDGES, RULES)])
def test_in_family_messages_come_back(name, rule, x64):
    if (name, rule) == ("gamma", "unscented"):
        pytest.skip("biased by construction: see test_unscented_on_gamma_edges")
    make, eta = EDGES[name]
    q = make()
    expected, _ = log_message_of(q, tuple(jnp.asarray(e, q.dtype) for e in eta))
    result = in_family(name)[rule]
    # The message is known to the rounding of its values; its curvature is that times the inverse spread of t.
    sharp = {"gamma": np.array(SHAPES), "beta": np.array([1, 1, 1, 1e3]), "gaussian": np.array([1, 1, 1e3])}.get(
        name, 1.0
    )
    tol = 1e-10 if x64 else 1e-5 * np.maximum(1, sharp)
    assert type(result) is type(q) and result.batch_shape == q.batch_shape
    for got, want, unit in zip(result.natural, expected.natural, scales(q), strict=True):
        assert got.dtype == want.dtype
        error = np.abs(got - want) / unit
        assert np.all(error < (tol if error.ndim == 1 else np.max(tol))), error


@pytest.mark.usefixtures("only64")
def test_unscented_on_gamma_edges():
    """The paper's rule, written again from its formulas; it does not reproduce conjugate messages."""
    a = np.array([0.5, 2.0, 258.0])
    b = np.array([1.0, 3.0, 258.0])
    psi = [special.polygamma(k, a) for k in range(4)]
    sd, skew, fourth = np.sqrt(psi[1]), psi[2] / psi[1] ** 1.5, psi[3] + 3 * psi[1] ** 2
    u = 0.5 * (-skew + np.sqrt(4 * fourth - 3 * psi[2] ** 2 / psi[1]) / psi[1])
    w = u + skew
    s = psi[0] - np.log(b) + np.array([0 * u, -u * sd, w * sd])
    w3 = 1 / (w * (u + w))
    weights = np.array([1 - w / u * w3 - w3, w / u * w3, w3])
    for k, moment in enumerate([0 * a + 1, 0 * a, psi[1], psi[2], fourth]):  # what the points are for
        discrete = np.sum(weights * np.array([0 * u, -u * sd, w * sd]) ** k, axis=0)
        np.testing.assert_allclose(discrete, moment, rtol=1e-9, atol=1e-12)

    tau = np.exp(s)
    message = 0.5 * np.log(tau) - 0.5 * tau
    c1, c2 = (
        (weights * x * message).sum(0) - (weights * x).sum(0) * (weights * message).sum(0) for x in (np.log(tau), tau)
    )
    det = (a * psi[1] - 1) / b**2
    q = Gamma.from_concentration_rate(a, b)
    result, _ = both(q, lambda t: 0.5 * jnp.log(t) - 0.5 * t, Unscented())
    np.testing.assert_allclose(result.eta1, (a / b**2 * c1 - c2 / b) / det, rtol=1e-8)
    np.testing.assert_allclose(result.eta2, (psi[1] * c2 - c1 / b) / det, rtol=1e-8)
    np.testing.assert_allclose(result.eta1[2], 0.50097, atol=5e-6)
    z, log_weights = compiled_nodes(q, Unscented())
    np.testing.assert_allclose(z, tau, rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(log_weights), weights, rtol=1e-10)


def test_unscented_on_gaussian_edges():
    q = Gaussian.from_mean_variance(jnp.array([1.0]), 4.0)
    z, log_weights = compiled_nodes(q, Unscented())
    np.testing.assert_allclose(z[:, 0], [1 - np.sqrt(12), 1, 1 + np.sqrt(12)], rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(log_weights[:, 0]), [1 / 6, 2 / 3, 1 / 6], rtol=1e-6)


# -- the delta method ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only64")
@pytest.mark.parametrize("name", ["gaussian", "gamma", "beta"])
def test_delta_osculates_at_the_mean(name):
    q = jax.tree.map(lambda x: x[2], EDGES[name][0]())
    if name == "gaussian":
        q = Gaussian.from_mean_variance(0.4, 0.25)

    def g(z):
        return jnp.sin(3 * z) + z**2

    result, value = both(q, g, Delta())

    def member(z):
        return result.dot(q.statistics(z))

    for order in (jax.grad, lambda f: jax.grad(jax.grad(f))):
        np.testing.assert_allclose(order(member)(q.mean), order(g)(q.mean), rtol=1e-9)
    if name == "gaussian":
        np.testing.assert_allclose(value, g(q.mean) + 0.5 * q.variance * jax.grad(jax.grad(g))(q.mean), rtol=1e-12)


# -- batches, transforms, properties -------------------------------------------------------------------------------


@pytest.mark.usefixtures("only64")
def test_batches_and_vmap_and_grad_agree():
    a = jnp.array([[0.5, 2.0, 9.0], [30.0, 4.0, 1.0]])
    c = jnp.array([[1.0, 2.0, 3.0], [0.1, 0.2, 0.3]])

    def project(a, c):
        result = tangent_projection(
            Gamma.from_concentration_rate(a, 1.5), lambda t: -c * jnp.log(1 + c * t), LogTrapezoid(65)
        )
        return result.eta1

    step = 1e-5

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def everything(a, c):
        vmapped = jax.vmap(jax.vmap(project))(a, c)
        return (
            project(a, c),
            vmapped,
            project(a + step, c) - project(a - step, c),
            jax.grad(lambda a: project(a, c).sum())(a),
        )

    batched, vmapped, difference, gradient = everything(a, c)
    assert batched.shape == a.shape
    np.testing.assert_allclose(vmapped, batched, rtol=1e-10)
    np.testing.assert_allclose(gradient, difference / (2 * step), rtol=1e-5, atol=1e-8)


log_shape = st.floats(np.log(0.3), np.log(1e5))
coefficient = st.floats(-2.0, 2.0)


def _recover(make):
    def run(first, second, eta1, eta2):
        q = make(first, second)
        message = type(q)(eta1, eta2)
        return tangent_projection(q, lambda z: message.dot(q.statistics(z)), Quadrature()).natural

    return jax.jit(run, compiler_options=FAST_COMPILE)


RECOVER = {
    "gamma": _recover(lambda x, y: Gamma.from_concentration_rate(x, x / y)),
    "gaussian": _recover(lambda x, y: Gaussian.from_mean_variance(x, y)),
}


@pytest.mark.usefixtures("only64")
@settings(max_examples=40, deadline=None)
@given(log_shape, st.floats(-2.0, 2.0), coefficient, coefficient)
def test_in_family_property(log_a, log_scale, eta1, eta2):
    """Any shape from 0.3 to 1e5, any scale, any message (proper or not)."""
    a, scale = np.exp(log_a), np.exp(log_scale)
    got = np.array(RECOVER["gamma"](a, scale, eta1, eta2 / scale)) * [1.0, scale]
    # rounding of l is eps * (|eta1| |log scale| + |eta2|); curvature is seen on t-values that spread as 1/sqrt(a)
    assert np.max(np.abs(got - [eta1, eta2])) < 1e-12 * (10 + a**0.9)
    got = RECOVER["gaussian"](log_a, scale, eta1, eta2)
    np.testing.assert_allclose(got, (eta1, eta2), atol=1e-10 * (1 + 1 / scale))
