"""Mean field against textbook coordinate updates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, Normal, exp, take
from ngmp_compiler.emit.rules import Incoming
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.families import Gaussian
from tests.emit.rule_models import Y, case, close, close_families, mean_precision, normal_gamma, run, solve


def random_walk(y):
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=tau))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def hidden_markov(start, table, emission, y):
    z0 = ngmp.sample("z0", Categorical(probs=start))

    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=take(table, z)))
        ngmp.sample("y", Categorical(probs=take(emission, z)), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


@pytest.mark.parametrize("method", [ngmp.VMP(), ngmp.NCVMP(), ngmp.PVMP(tol=1e-13)], ids=lambda m: type(m).__name__)
def test_mean_field_is_the_textbook(method):
    """Normal-Gamma: all three mean-field rules give the closed-form updates, and F is minus the lower bound."""
    post = solve(mean_precision, method, y=Y, tol=1e-13)
    x, tau = post["x"], post["tau"]
    close((x.mean, x.variance, tau.concentration, tau.rate, -post.free_energy), normal_gamma(Y))


def walk_updates(y, joint):
    """Coordinate ascent on the random walk: tau, then the states, one by one or as a chain."""
    n = len(y)
    d = np.diff(np.eye(n + 1), axis=0)
    base = np.diag([0.1] + [2.0] * n)
    data = np.concatenate([[0.0], 2.0 * y])
    mean, cov, a = np.zeros(n + 1), np.eye(n + 1), 2.0 + 0.5 * n
    for _ in range(3000):
        b = 1.0 + 0.5 * (np.sum((d @ mean) ** 2) + np.trace(d @ cov @ d.T))
        precision = base + a / b * d.T @ d
        if joint:
            cov = np.linalg.inv(precision)
            mean = cov @ data
        else:
            cov = np.diag(1 / np.diagonal(precision))
            for t in range(n + 1):
                mean[t] += (data[t] - precision[t] @ mean) / precision[t, t]
    return mean, np.diagonal(cov), a, b


@pytest.mark.parametrize("joint", [False, True])
def test_random_walk_of_unknown_precision(joint):
    """Full mean field, and structured: the chain stays a chain with E[tau]."""
    post = solve(random_walk, ngmp.VMP(), factorise=[(("z0", "z"),)] if joint else None, y=Y, tol=1e-13)
    mean, variance, a, b = walk_updates(Y, joint)
    close(np.concatenate([post["z0"].mean[None], post["z"].mean]), mean)
    close(np.concatenate([post["z0"].variance[None], post["z"].variance]), variance)
    close((post["tau"].concentration, post["tau"].rate), (a, b))


def test_hidden_markov_mean_field():
    start, emission = np.array([0.5, 0.3, 0.2]), np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]])
    table = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])
    y = np.array([0, 1, 1, 0])
    post = solve(hidden_markov, ngmp.VMP(), start=start, table=table, emission=emission, y=y, tol=1e-13)
    log_a = np.log(table)
    unary = np.vstack([np.log(start), np.log(emission).T[y]])
    q = np.full((5, 3), 1 / 3)
    for _ in range(500):
        for t in range(5):
            logits = unary[t].copy()
            logits += q[t - 1] @ log_a if t > 0 else 0
            logits += log_a @ q[t + 1] if t < 4 else 0
            q[t] = sp.softmax(logits)
    close(np.vstack([post["z0"].probs, post["z"].probs]), q)
    elbo = np.sum(q * unary) + np.einsum("ti,ij,tj->", q[:-1], log_a, q[1:]) - np.sum(q * np.log(q))
    close(-post.free_energy, elbo)
    inputs = {"start": start, "table": table, "emission": emission, "y": y}
    chain = solve(hidden_markov, ngmp.VMP(), factorise=[(("z0", "z"),)], **inputs)
    assert -chain.free_energy > elbo  # one cluster is exact


def heteroscedastic(phi, y):
    v = ngmp.sample("v", Normal(0.0, variance=2.0))
    w = ngmp.sample("w", Normal(0.2, variance=0.5))
    ngmp.sample("y", Normal(phi * v, precision=exp(phi * w)), obs=y)


def test_projective_and_non_conjugate_share_fixed_points():
    """NCVMP projects once a sweep, PVMP to convergence on the edge: one fixed point, that of the gradient of F."""
    phi = np.linspace(0.5, 1.5, 5)
    once = solve(heteroscedastic, ngmp.NCVMP(), phi=phi, y=Y, tol=1e-13)
    inner = solve(heteroscedastic, ngmp.PVMP(tol=1e-13), phi=phi, y=Y, tol=1e-12)
    close_families(once.marginals, inner.marginals)
    close(once.free_energy, inner.free_energy)

    def energy(mu):  # written out: E[-log p] - entropy, with all expectations of exp(s) in closed form
        (mv, sv), (mw, sw) = ((m[0], m[1] - m[0] ** 2) for m in mu)
        square = (Y - phi * mv) ** 2 + phi**2 * sv
        data = 0.5 * (phi * mw - jnp.log(2 * jnp.pi) - square * jnp.exp(phi * mw + 0.5 * phi**2 * sw))
        prior = -0.5 * (jnp.log(2 * jnp.pi * 2.0) + (mv**2 + sv) / 2.0)
        prior += -0.5 * (jnp.log(2 * jnp.pi * 0.5) + ((mw - 0.2) ** 2 + sw) / 0.5)
        return -jnp.sum(data) - prior - 0.5 * jnp.log(2 * jnp.pi * jnp.e * sv) - 0.5 * jnp.log(2 * jnp.pi * jnp.e * sw)

    mu = [once[k].to_mean() for k in ("v", "w")]
    close(once.free_energy, energy(mu))
    for slope in jax.tree.leaves(jax.grad(energy)(mu)):
        assert abs(slope) < 1e-9


def test_projective_target_is_the_iterated_projection():
    """PVMP's message is the limit of NCVMP projections on the edge, at a fixed cavity, also where that is flat."""
    factor, cavities, (r, _) = case(NoiseLogPrecision)
    flat = Gaussian.flat(r.batch_shape, (), r.dtype)
    leaf = Gaussian(flat.eta1 + 0.2, flat.eta2 - 0.3)
    rule = ngmp.PVMP(tol=1e-14)

    def iterated(r, cavity):
        def body(_, eta):
            return 0.5 * eta + 0.5 * ngmp.NCVMP().target(factor, 1, Incoming((r, cavity + eta), (flat, eta)))[0]

        given = Incoming((r, cavity + leaf), (flat, leaf))
        return jax.lax.fori_loop(0, 150, body, leaf), rule.target(factor, 1, given)[0]

    close_families(*run(iterated, r, cavities[1]))
    by_steps, solved = run(iterated, r, flat)
    close_families(by_steps, solved)
    # q(s) nearest to exp(s/2 - E[r^2] e^s/2): E[e^s] E[r^2] = 1 and precision 1/2.
    close(solved.variance, np.full(4, 2.0))
    close(solved.mean, -np.log(np.asarray(r.mean**2 + r.variance)) - 1.0)
