"""The rule of factors for which none was asked: what `describe` says of it. Programs are only lowered."""

import numpy as np
import pytest
from scipy.special import log_expit
from scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, Normal, Poisson, dot, exp

Y = np.array([0.4, 1.9, -0.3, 0.8, 1.1])


def effects(y):
    """The spread of the effects of a plate is unknown."""
    mu, lt = ngmp.sample("mu", Normal(0.0, std=10.0)), ngmp.sample("lt", Normal(0.0, std=1.0))
    theta = ngmp.sample("theta", Normal(mu + np.zeros(len(y)), std=exp(lt)))
    ngmp.sample("y", Normal(theta, std=1.0), obs=y)


def slopes(y):
    """A slope times a regressor of each row's own."""
    b, t = ngmp.sample("b", Normal(0.0, std=1.0)), ngmp.sample("t", Normal(Y, std=0.3))
    a = ngmp.sample("a", Normal(0.0, std=1.0))
    ngmp.sample("y", Normal(b * t + a, std=0.5), obs=y)


def heteroscedastic(y):
    """The log-precision is each row's own, and not the residual: as published."""
    v, w = (ngmp.sample(name, MvNormal(np.zeros(2), covariance=1.0)) for name in "vw")
    x = np.stack([np.ones(5), Y], -1)
    s = ngmp.sample("s", Normal(dot(x, w), std=0.5))
    ngmp.sample("y", Normal(dot(x, v), precision=exp(s)), obs=y)


def volatility(y):
    """Neighbours along a chain are tied: as published."""
    lt = ngmp.sample("lt", Normal(0.0, std=1.0))

    def step(x, y):
        x = ngmp.sample("x", Normal(x, std=exp(lt)))
        ngmp.sample("y", Poisson(exp(x)), obs=y)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), y)


@pytest.mark.parametrize(("model", "site", "why"), [(effects, "theta", "mixtures"), (slopes, "y", "products")])
def test_moments_are_matched(model, site, why):
    """EP by default, and said so; NGMP is one keyword away, for all or for a site."""
    text = ngmp.compile(model).lower(y=Y).describe()
    assert f"{site}: EP" in text.split("rules by kind")[1] and why in text
    for options in ({"method": ngmp.NGMP()}, {"rules": {site: ngmp.NGMP()}}):
        assert "rules by kind" not in ngmp.compile(model, **options).lower(y=Y).describe()


@pytest.mark.parametrize("model", [heteroscedastic, volatility])
def test_as_published(model):
    text = ngmp.compile(model).lower(y=np.abs(np.round(Y))).describe()
    assert "rules by kind" not in text and "NGMP" in text


def test_products_of_any_outcome():
    """The density of an outcome at `a (t - b)` is that of its distribution at the number."""

    def model(y):
        a, b = ngmp.sample("a", Normal(np.ones(3), std=0.3)), ngmp.sample("b", Normal(np.zeros(3), std=1.0))
        t = ngmp.sample("t", Normal(np.zeros((4, 1)), std=1.0))
        ngmp.sample("y", Bernoulli(logits=a * (t - b) + 0.5), obs=y)

    y, rng = np.tile([0.0, 1.0, 1.0], (4, 1)), np.random.default_rng(0)
    a, b, t = rng.normal(1.0, 0.3, 3), rng.normal(size=3), rng.normal(size=(4, 1))
    expected = norm.logpdf(a, 1.0, 0.3).sum() + norm.logpdf(b).sum() + norm.logpdf(t).sum()
    expected += log_expit((2 * y - 1) * (a * (t - b) + 0.5)).sum()
    found = ngmp.compile(model).log_joint({"a": a, "b": b, "t": t}, y=y)
    assert float(found) == pytest.approx(expected, rel=1e-5)
