"""Message rules: the identities between them, free energies, mixed rules and schedules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special as sp
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, dot, exp
from ngmp_compiler.emit.rules import Incoming
from ngmp_kernels.factors.poisson import PoissonLog
from ngmp_kernels.families import Gaussian
from tests.emit.rule_models import (
    UNARY,
    Y,
    case,
    close,
    close_families,
    expected,
    mean_precision,
    one_count,
    run,
    solve,
)

EFFECTS = np.array([[0.3, 0.9], [-1.0, -0.4], [2.0, 1.1]])


@functools.cache
def trajectory(model, schedule):
    """Posteriors along undamped sweeps of VMP from the automatic start: arrays with a leading axis of sweeps + 1."""
    program = ngmp.compile(model, method=ngmp.VMP(), schedule=list(schedule), solver=optax.sgd(1.0))

    def walk(y):
        def sweep(state, _):
            return program.step(state, y=y), program.posterior(state, y=y)

        return jax.lax.scan(sweep, program.init(y=y), None, 16)[1]

    return run(walk, EFFECTS if model is random_effects else Y)


def conjugate_chain(y):
    z0 = ngmp.sample("z0", Normal(0.5, variance=2.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(0.9 * z, variance=0.3))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def random_effects(y):
    mu = ngmp.sample("mu", Normal(0.0, variance=4.0))
    kappa = ngmp.sample("kappa", Gamma(2.0, rate=1.0))
    tau = ngmp.sample("tau", Gamma(3.0, rate=1.0))
    m = ngmp.sample("m", Normal(mu + jnp.zeros(3), precision=kappa))
    ngmp.sample("y", Normal(m[:, None], precision=tau), obs=y)


# -- conjugate graphs -------------------------------------------------------------------------------------------------


def exact_chain(y):
    """Means, variances, minus log-evidence of `conjugate_chain`, from its joint Gaussian."""
    n = len(y)
    lower = np.tril(0.9 ** np.abs(np.subtract.outer(np.arange(n + 1), np.arange(n + 1))))
    noise = np.diag([2.0] + [0.3] * n)
    prior, mean = lower @ noise @ lower.T, 0.5 * 0.9 ** np.arange(n + 1)
    h = np.eye(n + 1)[1:]
    s = h @ prior @ h.T + 0.5 * np.eye(n)
    gain = prior @ h.T @ np.linalg.inv(s)
    evidence = st.multivariate_normal(h @ mean, s).logpdf(y)
    return mean + gain @ (y - h @ mean), np.diagonal(prior - gain @ h @ prior), -evidence


@pytest.mark.parametrize("method", [ngmp.BP(), ngmp.NGMP(), ngmp.EP(), ngmp.EP(power=0.5)], ids=repr)
def test_conjugate_graph_is_exact(method):
    """NGMP = BP = EP = exact; the free energy is minus the log-evidence."""
    post = solve(conjugate_chain, method, y=Y)
    mean, variance, energy = exact_chain(Y)
    close(np.concatenate([post["z0"].mean[None], post["z"].mean]), mean)
    close(np.concatenate([post["z0"].variance[None], post["z"].variance]), variance)
    close(post.free_energy, energy)


def test_structured_clusters_of_a_conjugate_chain_are_exact():
    """One cluster of everything: VMP is exact. Alone, every variable keeps its conditional precision."""
    mean, variance, energy = exact_chain(Y)
    post = solve(conjugate_chain, ngmp.VMP(), factorise=[(("z0", "z"),)], y=Y)
    close(post["z"].mean, mean[1:])
    close(post["z"].variance, variance[1:])
    close(post.free_energy, energy)
    apart = solve(conjugate_chain, ngmp.VMP(), y=Y, tol=1e-13)
    close(apart["z"].mean, mean[1:])  # of a Gaussian, mean field gets the means right
    close(1 / apart["z"].variance, 1 / 0.3 + 1 / 0.5 + np.array([0.81 / 0.3] * 4 + [0.0]))
    assert apart.free_energy > energy


@pytest.mark.parametrize("cls", UNARY, ids=lambda c: c.__name__)
def test_unary_target_is_the_natural_gradient(cls):
    """NGMP (any power) and NCVMP send `grad_mu E_q[log f]`: the step of CVI."""
    factor, _, (q,) = case(cls)
    q = Gaussian.from_mean_variance(q.mean, 0.3 * q.variance)  # so that 32 nodes suffice for every factor
    flat = Gaussian.flat(q.batch_shape, (), q.dtype)

    def both(q):
        gradient = jax.grad(lambda mu: jnp.sum(expected(factor, mu)))(q.to_mean())
        methods = [ngmp.NGMP(), ngmp.NGMP(power=0.5), ngmp.NCVMP()]
        found = [m.target(factor, 0, Incoming((q,), (flat,)))[0] for m in methods]
        return Gaussian(*gradient), found, [m.evidence(factor, Incoming((q,), (flat,))) for m in methods]

    gradient, found, evidence = run(both, q)
    # The exact natural gradient at accuracy of the nodes: 1e-10 for entire factors and for those with distant poles.
    for eta in found:
        close_families(eta, gradient, 1e-10 if cls.__name__ != "StudentTNoise" else 1e-6)
    for value in evidence:
        close(value, expected(factor, q.to_mean()), 1e-10 if cls.__name__ != "StudentTNoise" else 1e-8)


def test_sweep_is_a_step_of_cvi():
    """A sweep with rate rho moves lambda to (1 - rho) lambda + rho (prior + grad_mu E_q[log f])."""
    y, rho, prior = np.array([2.0, 0.0, 5.0]), 0.4, Gaussian.from_mean_variance(0.3, 0.8)
    program = ngmp.compile(one_count, solver=optax.sgd(rho))

    def walk(y):
        return jax.lax.scan(
            lambda s, _: (program.step(s, y=y, v=0.8), program.posterior(s, y=y, v=0.8)["z"]),
            program.init(y=y, v=0.8), None, 6,
        )[1]  # fmt: skip

    q = run(walk, y)
    factor = PoissonLog(jnp.asarray(y))
    for k in range(1, 5):
        now = jax.tree.map(lambda x, k=k: x[k], q)
        gradient = Gaussian(*jax.grad(lambda mu: jnp.sum(expected(factor, mu)))(now.to_mean()))
        step = (1 - rho) * now + rho * (prior + gradient)
        close_families(jax.tree.map(lambda x, k=k: x[k + 1], q), step)


# -- free energy, mixed rules, schedules ------------------------------------------------------------------------------

COORDINATES = [
    (mean_precision, ("y.r",)),  # what is not named comes last
    (mean_precision, ("y.tau", "y.r")),
    # m has two messages, which are one coordinate only if they move together
    (random_effects, (("m.r1", "y.r"), "m.r2", ("m.tau", "y.tau"))),
]


@pytest.mark.parametrize("model, schedule", COORDINATES, ids=["x-tau", "tau-x", "effects"])
def test_free_energy_decreases(model, schedule):
    """Undamped block sweeps of VMP are coordinate descent on F."""
    energy = np.asarray(trajectory(model, schedule).free_energy)
    steps = np.diff(energy)
    assert (steps <= 1e-12).all()
    assert steps.min() < -1e-2 and steps[-1] > -1e-3


def test_schedule_order():
    """Blocks move in the order given, each at what the one before left; what is not named comes last."""
    x_first, tau_first = (trajectory(*c) for c in COORDINATES[:2])
    m, v = tau_first["x"].mean[0], tau_first["x"].variance[0]  # the start: E[tau] = 2
    close(v, 1 / (1 / 25 + 2.0 * len(Y)))
    # A sweep leaves the step of its last block pending: after one, only the first block has moved.
    close(tau_first["tau"].rate[1], 1.0 + 0.5 * np.sum((Y - m) ** 2 + v))
    close(tau_first["x"].mean[1], m)
    close(x_first["tau"].rate[1], 1.0)
    mean = v * 2.0 * Y.sum()
    close(x_first["x"].mean[1], mean)
    close(x_first["tau"].rate[2], 1.0 + 0.5 * np.sum((Y - mean) ** 2 + v))


def test_schedules_share_fixed_points():
    """Jacobi and block Gauss-Seidel, by interface."""
    jacobi = solve(mean_precision, ngmp.NGMP(), y=Y)
    blocks = solve(mean_precision, ngmp.NGMP(), y=Y, schedule=["y.r", "y.tau"])
    close_families(jacobi.marginals, blocks.marginals)
    close(jacobi.free_energy, blocks.free_energy)


def test_mixed_rules():
    """VMP on one site, NGMP on a unary one: together the full variational bound, here by hand."""

    def mixed(y, c):
        x = ngmp.sample("x", Normal(0.0, variance=4.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)
        ngmp.sample("c", Poisson(exp(x)), obs=c)

    post = solve(mixed, ngmp.NGMP(), rules={"y": ngmp.VMP()}, y=Y, c=np.array([2.0]), tol=1e-13)
    a, eta1, eta2 = 2.0 + 0.5 * len(Y), 0.0, -1.0
    for _ in range(2000):
        m, v = -0.5 * eta1 / eta2, -0.5 / eta2
        b = 1.0 + 0.5 * np.sum((Y - m) ** 2 + v)
        rho = np.exp(m + 0.5 * v)
        target = a / b * Y.sum() + 2.0 + (m - 1) * rho, -0.5 * (0.25 + a / b * len(Y) + rho)
        eta1, eta2 = 0.5 * (eta1 + target[0]), 0.5 * (eta2 + target[1])
    close((post["x"].mean, post["x"].variance, post["tau"].concentration, post["tau"].rate), (m, v, a, b))
    log_tau = sp.digamma(a) - np.log(b)
    elbo = 0.5 * len(Y) * (log_tau - np.log(2 * np.pi)) - 0.5 * a / b * np.sum((Y - m) ** 2 + v)
    elbo += 2.0 * m - rho - np.log(2.0) - 0.5 * np.log(2 * np.pi * 4.0) - 0.5 * (m**2 + v) / 4.0
    elbo += 0.5 * np.log(2 * np.pi * np.e * v) + log_tau - a / b
    elbo += a - np.log(b) + sp.gammaln(a) + (1 - a) * sp.digamma(a)
    close(-post.free_energy, elbo)


def test_random_effects_structured():
    """Means and their mean in one cluster: the core keeps the star, both precisions get joint expectations."""
    post = solve(random_effects, ngmp.VMP(), factorise=[(("mu", "m"),)], y=EFFECTS, tol=1e-13)
    d = np.hstack([-np.ones((3, 1)), np.eye(3)])  # m - mu
    pick = np.repeat(np.eye(4)[1:], 2, 0)
    y, mean, cov = EFFECTS.reshape(-1), np.zeros(4), np.eye(4)
    for _ in range(3000):
        kappa = (2.0 + 1.5) / (1.0 + 0.5 * (np.sum((d @ mean) ** 2) + np.trace(d @ cov @ d.T)))
        tau = (3.0 + 3.0) / (1.0 + 0.5 * (np.sum((y - pick @ mean) ** 2) + np.trace(pick @ cov @ pick.T)))
        cov = np.linalg.inv(np.diag([0.25, 0, 0, 0]) + kappa * d.T @ d + tau * pick.T @ pick)
        mean = cov @ pick.T @ y * tau
    close((post["kappa"].mean, post["tau"].mean), (kappa, tau))
    close(np.concatenate([post["mu"].mean[None], post["m"].mean]), mean)
    close(np.concatenate([post["mu"].variance[None], post["m"].variance]), np.diagonal(cov))


def test_dot_is_one_variable():
    """The weights of a regression are one vector: mean field does not take a linear functional of them apart."""
    features = np.array([[1.0, 0.2], [1.0, -0.5], [1.0, 1.5], [1.0, 0.7], [1.0, -1.1]])

    def regression(phi, y):
        w = ngmp.sample("w", ngmp.MvNormal(jnp.zeros(2), covariance=4.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(dot(phi, w), precision=tau), obs=y)

    post = solve(regression, ngmp.VMP(), phi=features, y=Y, tol=1e-13)
    mean, cov, a = np.zeros(2), np.eye(2), 2.0 + 2.5
    for _ in range(500):
        b = 1.0 + 0.5 * (np.sum((Y - features @ mean) ** 2) + np.trace(features @ cov @ features.T))
        cov = np.linalg.inv(np.eye(2) / 4.0 + a / b * features.T @ features)
        mean = cov @ features.T @ Y * a / b
    close(post["w"].mean, mean)
    close(post["w"].covariance, cov)
    close((post["tau"].concentration, post["tau"].rate), (a, b))


def test_ngmp_between_clusters_is_mean_field():
    readings = np.array([0.3, 1.1, -0.4, 2.0])

    def mean_precision(y):
        x = ngmp.sample("x", Normal(0.0, variance=25.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)

    apart = ngmp.compile(mean_precision, factorise=[("x", "tau")], tol=1e-12)(y=readings)
    vmp = ngmp.compile(mean_precision, method=ngmp.VMP(), tol=1e-12)(y=readings)
    np.testing.assert_allclose(apart["tau"].rate, vmp["tau"].rate, rtol=1e-10)
    np.testing.assert_allclose(apart["x"].variance, vmp["x"].variance, rtol=1e-10)
