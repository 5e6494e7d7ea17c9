"""Checks of posteriors by importance sampling: exact ones pass, those that are off are told."""

import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, HalfNormal, MvNormal, Normal, Poisson, dot, exp
from ngmp_compiler.results.pareto import smooth

X = np.random.default_rng(5).normal(size=(6, 2))
Y = X @ [1.0, -0.5] + 0.3 * np.random.default_rng(6).normal(size=6)


def regression(y):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=2.0))
    ngmp.sample("y", Normal(dot(X, w), std=0.5), obs=y)


def test_an_exact_posterior_is_reliable(key):
    program = ngmp.compile(regression)
    post = program(y=Y)
    found = program.check(post, key, y=Y)
    assert found.ok and found.verdict.startswith("reliable") and found.ess > 3990
    np.testing.assert_allclose(found.log_evidence, -post.free_energy, atol=1e-8)
    with pytest.raises(ngmp.DataError, match="not computed from these inputs"):
        program.check(post, key, y=Y + 1)
    with pytest.raises(ngmp.DataError, match="another model"):
        ngmp.compile(scale).check(post, key, y=Y)


def scale(y):
    m = ngmp.sample("m", Normal(0.0, variance=4.0))
    t = ngmp.sample("t", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(m, precision=t), obs=y)


def one_count(y):
    z = ngmp.sample("z", Normal(0.0, variance=25.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_what_is_off_is_told_and_corrected(key):
    """No count at all, of a wide prior: far from Gaussian. The evidence and the mean by a sum over a fine grid."""
    program = ngmp.compile(one_count)
    post = program(y=0)
    found = program.check(post, key, y=0)
    assert not found.ok
    z = np.linspace(-60, 10, 20001)
    mass = stats.norm.pdf(z, 0, 5) * np.exp(-np.exp(z))
    assert abs(found.log_evidence - np.log(np.trapezoid(mass, z))) < 0.2
    good = program(y=50)
    again = program.check(good, key, y=50)
    mass = stats.norm.pdf(z, 0, 5) * stats.poisson.pmf(50, np.exp(z))
    assert again.ok and "ok=True" in repr(again)
    np.testing.assert_allclose(again.log_evidence, np.log(np.trapezoid(mass, z)), atol=5 * again.log_evidence_se + 1e-4)
    np.testing.assert_allclose(again.means["z"], np.trapezoid(z * mass, z) / np.trapezoid(mass, z), atol=0.01)


def integrated(y):
    sd = ngmp.sample("sd", HalfNormal(std=2.0))
    m = ngmp.sample("m", Normal(0.0, variance=4.0))
    ngmp.sample("y", Normal(m, std=sd), obs=y)


def test_integrated_sites_are_checked_at_their_nodes(key):
    program = ngmp.compile(integrated, integrate=("sd",))
    post = program(y=Y)
    found = program.check(post, key, draws=1000, y=Y)
    assert found.ok and found.ess > 990
    np.testing.assert_allclose(found.log_evidence, -post.free_energy, atol=1e-6)


def test_the_shape_of_a_tail_is_found():
    for k in (0.2, 0.9):
        excess = stats.genpareto.rvs(k, size=20000, random_state=np.random.default_rng(1))
        assert abs(smooth(np.log1p(excess)).khat - k) < 0.15
    assert smooth(np.zeros(1000)).ess == pytest.approx(1000)
