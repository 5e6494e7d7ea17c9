"""Gaussian edges of one factor, solved with the cavity held fixed, against scipy; and vague priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Normal
from ngmp_kernels.factors.bernoulli import BernoulliLogit
from ngmp_kernels.factors.binomial import BinomialLogit
from ngmp_kernels.factors.generic import GenericFactor
from ngmp_kernels.families import Gaussian
from ngmp_kernels.quadrature.edge import hermite_moments, settle_edge
from ngmp_kernels.quadrature.projection import Quadrature


def weibull(z, y, died):
    u = 1.5 * (jnp.log(y) - z)
    return died * u - jnp.exp(u)


def generic(y, died):
    return GenericFactor(weibull, (jnp.array([y]), jnp.array([died])), (Gaussian,))  # pyright: ignore[reportCallIssue]


CASES = {
    "no hits": (lambda: BinomialLogit(jnp.zeros(1), jnp.full(1, 1e4)), 1.0, 1e4),
    "some hits": (lambda: BinomialLogit(jnp.full(1, 30.0), jnp.full(1, 1e3)), -8.0, 1e-2),
    "vague": (lambda: BernoulliLogit(jnp.ones(1)), 0.0, 300.0),
    "died": (lambda: generic(0.3, 1.0), 2.0, 30.0),
    "censored": (lambda: generic(0.3, 0.0), -1.0, 10.0),
}


def test_moments_of_a_polynomial_are_exact():
    """l = 10^6 z^2 + z^3 - z^4 / 2: at N(m, v) all expectations of its derivatives are polynomials."""
    m, v = np.array([0.5, -2.0]), np.array([0.3, 4.0])
    found = hermite_moments(lambda z: 1e6 * z**2 + z**3 - 0.5 * z**4, jnp.asarray(m), jnp.asarray(v))
    e2, e3 = m**2 + v, m**3 + 3 * m * v
    expected = (1e6 * e2 + e3 - 0.5 * (m**4 + 6 * m**2 * v + 3 * v**2), 2e6 * m + 3 * e2 - 2 * e3,
                2e6 + 6 * m - 6 * e2, 6 - 12 * m, np.full(2, -12.0))  # fmt: skip
    for k, (value, right) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(value, right, rtol=1e-12 if k < 3 else 1e-5, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_a_settled_edge_is_the_solution(name):
    make, mean, variance = CASES[name]
    factor = make()
    cavity = Gaussian.from_mean_variance(jnp.full(1, mean), jnp.full(1, variance))
    q = cavity + Gaussian.from_mean_variance(*(x + jnp.zeros(1) for x in location(factor)))
    settle = jax.jit(lambda q: cavity + factor.settle(q, cavity, q - cavity, project(factor, q)))
    for _ in range(8):
        q = settle(q)
    again = cavity + project(factor, q)  # a fixed point of the projection
    np.testing.assert_allclose(again.mean, q.mean, rtol=1e-7, atol=1e-7 * float(q.std[0]))
    np.testing.assert_allclose(again.variance, q.variance, rtol=1e-7)

    @jax.jit
    def loss(x):  # minus the evidence bound
        at = Gaussian.from_mean_variance(x[:1], jnp.exp(x[1:]))
        expected = factor.expected_log_message(0, at, (at,), Quadrature())[0]
        return -expected + ((x[0] - mean) ** 2 + jnp.exp(x[1])) / (2 * variance) - 0.5 * x[1]

    m, v = float(q.mean[0]), float(q.variance[0])
    options = {"xatol": 1e-9, "fatol": 1e-11}
    best = minimize(lambda x: float(loss(x)), [m, np.log(v)], method="Nelder-Mead", options=options)
    np.testing.assert_allclose(best.x[0], m, atol=1e-3 * np.sqrt(v))
    assert loss(jnp.array([m, np.log(v)])) <= best.fun + 1e-9 * (1 + abs(best.fun))


def test_an_edge_whose_every_step_loses_is_not_called_solved():
    """As rounding makes it do: the value of l falls wherever one goes, though its derivatives say to go."""
    factor = BinomialLogit(jnp.zeros(1), jnp.full(1, 1e4))
    cavity = Gaussian.from_mean_variance(jnp.ones(1), jnp.full(1, 1e4))
    q = cavity + Gaussian.from_mean_variance(*(x + jnp.zeros(1) for x in location(factor)))

    def moments(mean, variance):
        return factor.edge_moments(mean, variance)._replace(value=-1e6 * (mean != q.mean))

    assert not settle_edge(moments, q, cavity)[1].any()
    assert settle_edge(factor.edge_moments, q, cavity)[1].all()


def location(factor):
    (start,) = factor.initial()
    return start.mean, start.variance


def project(factor, q):
    return factor.project(0, q, (q,), Quadrature())


def test_binomials_under_vague_priors_converge():
    """Zero hits of a million: one projection a sweep never gets there."""

    def model(y, v):
        ngmp.sample("y", Binomial(1e6, logits=ngmp.sample("f", Normal(1.0, variance=v))), obs=y)

    program = ngmp.compile(model)
    post = jax.vmap(lambda v: program(y=jnp.asarray(0.0), v=v))(10.0 ** np.arange(0, 6))
    assert post.converged.all() and int(post.sweeps.max()) <= 25


def test_derivatives_are_those_of_the_fixed_point():
    def model(y, m):
        ngmp.sample("y", Binomial(50.0, logits=ngmp.sample("f", Normal(m, variance=100.0))), obs=y)

    program = ngmp.compile(model, tol=1e-10)
    y = jnp.array([0.0, 20.0, 50.0])
    mean = lambda m: jnp.sum(program(y=y, m=m)["f"].mean)  # noqa: E731
    energy = lambda m: program(y=y, m=m).free_energy  # noqa: E731
    for f in (mean, energy):
        numeric = (f(1.0 + 1e-4) - f(1.0 - 1e-4)) / 2e-4
        np.testing.assert_allclose(jax.grad(f)(1.0), numeric, rtol=1e-5)


def test_an_edge_that_cannot_move_is_not_called_solved():
    """No count, inflated zeros, a vague prior: here single precision found a fixed point where there is none."""

    def moments(mean, variance):
        return hermite_moments(lambda z: jnp.logaddexp(jnp.log(0.3), jnp.log(0.7) - jnp.exp(z)), mean, variance)

    for dtype in (np.float32, np.float64):
        cavity = Gaussian.from_mean_variance(jnp.full(1, -1.9423925, dtype), jnp.full(1, 73.88684, dtype))
        leaf = Gaussian(jnp.full(1, -0.08939522, dtype), jnp.full(1, -0.0022030356, dtype))
        change, known = settle_edge(moments, cavity + leaf, cavity)
        moved = cavity + leaf + change
        far = jnp.abs(moved.mean - (cavity + leaf).mean) / moved.std > 0.05  # the solution is 0.11 away
        assert bool((far | ~known).all())
