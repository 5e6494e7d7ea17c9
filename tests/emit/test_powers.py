"""Vanishing uncertainty, small powers and expectation propagation, against closed forms and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal
from ngmp_compiler.emit.rules import Incoming
from ngmp_kernels import (
    tilted_match,
)
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.families import Categorical as CategoricalFamily
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian
from tests.emit.rule_models import (
    NOISE,
    RULE,
    Y,
    case,
    close,
    close_families,
    grid,
    mean_precision,
    normal_gamma,
    one_count,
    run,
    solve,
)


def one_coin(y, v):
    z = ngmp.sample("z", Normal(0.3, variance=v))
    ngmp.sample("y", Bernoulli(logits=z), obs=y)


# -- limits: vanishing uncertainty, small powers ----------------------------------------------------------------------


def test_ngmp_is_vmp_where_uncertainty_vanishes():
    """As the prior of x narrows, the cavities of r become points, and integrating f or log f is the same."""
    variances = jnp.array([1e-1, 1e-3, 1e-5, 1e-12])

    def both(v):
        programs = [ngmp.compile(mean_precision, method=m, tol=1e-13) for m in (ngmp.NGMP(), ngmp.VMP())]
        return [jax.vmap(lambda v, p=p: p(y=Y, v=v)["tau"])(v) for p in programs]

    one, other = run(both, variances)
    gap = np.abs(np.asarray(one.eta2 / other.eta2) - 1)
    assert gap[0] > 10 * gap[1] > 100 * gap[2]
    assert gap[3] < 1e-10 and abs(one.eta1[3] - other.eta1[3]) < 1e-10


def test_small_power_is_vmp():
    """NGMP and EP of a vanishing fraction are VMP; the distance is of the order of the fraction."""
    vmp = np.array(normal_gamma(Y)[:4])

    def found(method, tol):
        post = solve(mean_precision, method, y=Y, tol=tol)
        return np.array([post["x"].mean, post["x"].variance, post["tau"].concentration, post["tau"].rate])

    close(found(ngmp.NGMP(power=1e-11), 1e-12), vmp)
    # Dividing by the fraction multiplies rounding errors: EP cannot go as far.
    gaps = [np.abs(found(ngmp.EP(power=p), 1e-9) / vmp - 1).max() for p in (1e-2, 1e-3)]
    assert 9 < gaps[0] / gaps[1] < 11


@pytest.mark.parametrize("cls", NOISE, ids=lambda c: c.__name__)
def test_power_one_is_the_plain_rule(cls):
    """The fractional formulas at p = 1 (up to a rounding unit) against the plain ones, by interface too."""
    factor, _, marginals = case(cls)
    leaves = (0.1 * marginals[0], 0.2 * marginals[1])
    last = factor.interfaces[1]
    almost = 1 - 1e-15

    def targets(q):
        pairs = [(kind(), kind(power=almost), kind(power={last: almost})) for kind in (ngmp.NGMP, ngmp.EP)]
        found = [[[r.target(factor, j, Incoming(q, leaves))[0] for r in rules] for j in (0, 1)] for rules in pairs]
        return found, [[r.evidence(factor, Incoming(q, leaves)) for r in rules] for rules in pairs]

    found, evidence = run(targets, marginals)
    tol = 1e-10 if cls is NoisePrecision else 1e-6  # toward r, the fraction uses plainer nodes
    for plain, *others in found[0] + found[1]:
        for eta in others:
            close_families(eta, plain, tol)
    for plain, *others in evidence:
        for value in others:
            close(value, plain, 1e-9)


def test_power_by_interface():
    """`power={"tau": p}`: p toward tau, 1 toward r, each with its own cavities."""
    factor, _, marginals = case(NoisePrecision)
    leaves = (0.1 * marginals[0], 0.2 * marginals[1])
    for kind in (ngmp.NGMP, ngmp.EP):

        def targets(q, kind=kind):
            rules = kind(power={"tau": 0.5}), kind(), kind(power=0.5)
            return [[r.target(factor, j, Incoming(q, leaves))[0] for r in rules] for j in (0, 1)]

        (r, plain, _), (tau, _, half) = run(targets, marginals)
        close_families(r, plain, 1e-14)
        close_families(tau, half, 1e-14)


# -- expectation propagation ------------------------------------------------------------------------------------------

PRIORS = np.array([0.5, 2.0, 20.0])


@pytest.mark.parametrize("model, outcomes", [(one_count, [0.0, 3.0, 40.0]), (one_coin, [0.0, 1.0, 1.0])])
def test_ep_with_one_site_is_exact(model, outcomes):
    """One site: the marginal has the moments of the posterior, and F is minus the log-evidence."""
    program = ngmp.compile(model, method=ngmp.EP(), tol=1e-12)
    post = run(jax.vmap(lambda y, v: program(y=y, v=v)), np.asarray(outcomes), PRIORS)
    assert post.converged.all()
    for k, (y, v) in enumerate(zip(outcomes, PRIORS, strict=True)):
        z = np.linspace(-60, 60, 200001)
        like = st.poisson(np.exp(np.minimum(z, 30))).logpmf(y) if model is one_count else sp.log_expit((2 * y - 1) * z)
        mass = np.exp(like + st.norm(0.3, v**0.5).logpdf(z)) * (z[1] - z[0])
        total = mass.sum()
        mean = mass @ z / total
        close(post["z"].mean[k], mean)
        close(post["z"].variance[k], mass @ (z - mean) ** 2 / total)
        close(post.free_energy[k], -np.log(total))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_ep_certificate(power):
    """At a fixed point every tilted distribution has the moments of the marginals, by brute force in two dimensions."""
    post = solve(mean_precision, ngmp.EP(power=power), y=Y, tol=1e-13)
    x, tau, leaves = post["x"], post["tau"], post.state.leaves
    one = jnp.ones(len(Y))
    r = Gaussian.from_mean_variance(jnp.asarray(Y) - x.mean, x.variance * one)
    q = GammaFamily(tau.eta1 * one, tau.eta2 * one)
    cavities = (r - power * leaves["y.r"], q - power * leaves["y.tau"])
    (z, w), (t, u) = (grid(c, 701) for c in cavities)
    log_f = 0.5 * np.log(t[None]) - 0.5 * np.log(2 * np.pi) - 0.5 * t[None] * z[:, None] ** 2
    mass = np.exp(w[:, None] + u[None] + power * log_f)
    mass /= mass.sum((0, 1))
    over_r, over_tau = mass.sum(1), mass.sum(0)
    close((over_r * z).sum(0), r.mean, 1e-9)
    close((over_r * z**2).sum(0), r.mean**2 + r.variance, 1e-9)
    close((over_tau * np.log(t)).sum(0), q.to_mean()[0], 1e-9)
    close((over_tau * t).sum(0), q.mean, 1e-9)


def test_tilted_match_of_every_family():
    """A message in the family: cavity times message comes back."""
    gamma = GammaFamily.from_concentration_rate(jnp.array([3.0, 5.0]), jnp.array([2.0, 6.0]))
    normal = Gaussian.from_mean_variance(jnp.array([0.3, 2.0]), jnp.array([0.5, 0.1]))
    classes = CategoricalFamily(jnp.array([[0.1, 0.5, -1.0]]))
    for q in (gamma, normal, classes):
        cavity, message = q - 0.3 * q, 0.3 * q
        found = run(lambda q, c, m: tilted_match(q, c, lambda z: jax.vmap(lambda t: m.dot(m.statistics(t)))(z), RULE),
                    q, cavity, message)  # fmt: skip
        close_families(found.to_mean(), q.to_mean())
