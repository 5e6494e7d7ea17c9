"""Bad input to `integrate=`: refused in words, or flagged in the result; and what `integrate="auto"` chooses."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Beta, Density, Gamma, HalfCauchy, HalfNormal, LogNormal, MvNormal, Normal, Uniform

Y = np.array([0.3, -0.2, 1.0, 0.4])


def model(prior, n=4):
    def plate(y):
        sd = ngmp.sample("sd", prior)
        m = ngmp.sample("m", Normal(0.0, std=2.0))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (n,)), std=sd), obs=y)

    return plate


def refused(model, **options):
    with pytest.raises(ngmp.ModelError) as error:
        ngmp.compile(model, **options)(y=Y)
    return str(error.value)


def test_no_family_names_the_way_out():
    text = refused(model(ngmp.Uniform(0.1, 5.0)))
    assert "Uniform has no family" in text and "integrate=('sd',)" in text


def test_unknown_name():
    text = refused(model(HalfCauchy(scale=1.0)), integrate=("sd", "nope"))
    assert "site 'nope': integrate= names no site" in text and "'sd'" in text


def test_observed():
    assert "integrate= names an observed site" in refused(model(HalfCauchy(scale=1.0)), integrate=("sd", "y"))


def test_no_name():
    with pytest.raises(TypeError, match=r"integrate=3: give names of sites"):
        ngmp.compile(model(HalfCauchy(scale=1.0)), integrate=3)


def test_millions_of_combinations():
    def many(y):
        a, b, c = (ngmp.sample(name, ngmp.Categorical(probs=np.full(200, 1 / 200))) for name in "abc")
        ngmp.sample("y", Normal((a + b + c) * jnp.ones(4), std=1.0), obs=y)

    text = refused(many, integrate=("a", "b", "c"))
    assert "site 'b': integrate= names classes with 40000 combinations" in text and "At most 10000" in text


def test_large_plate():
    def plate(y):
        m = ngmp.sample("m", Normal(np.zeros(9), std=2.0))
        ngmp.sample("y", Normal(m[:4], std=1.0), obs=y)

    text = refused(plate, integrate="m")
    assert "plate of shape (9,)" in text and "at most 8 numbers" in text


def test_prior_depends_on_a_variable():
    def hierarchy(y):
        m = ngmp.sample("m", Normal(0.0, std=2.0))
        x = ngmp.sample("x", Normal(m, std=1.0))
        ngmp.sample("y", Normal(x * jnp.ones(4), std=1.0), obs=y)

    text = refused(hierarchy, integrate="x")
    assert "site 'x', argument mean" in text and "ntegrate that variable too" in text


def test_inside_a_scan():
    def chain(y):
        def step(x, y_k):
            r = ngmp.sample("r", HalfNormal(std=1.0))
            x = ngmp.sample("x", Normal(x, std=1.0))
            ngmp.sample("y", Normal(x, std=r), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), y)

    assert "body of an ngmp.scan" in refused(chain, integrate="r")


def test_vectors():
    def vector(y):
        v = ngmp.sample("v", MvNormal(np.zeros(2), covariance=np.eye(2)))
        ngmp.sample("y", Normal(ngmp.dot(np.ones(2), v) * jnp.ones(4), std=1.0), obs=y)

    assert "integrate= names a MvNormal site" in refused(vector, integrate="v")


def test_a_density_that_is_nan():
    program = ngmp.compile(model(Density(lambda x: jnp.log(-x), "positive")), integrate="sd")
    with pytest.raises(ngmp.DataError, match="must be a number"):
        program(y=Y)


def test_an_improper_posterior():
    """A flat prior of a scale under data that are all equal: the posterior has no mass away from zero."""

    def flat(y):
        m = ngmp.sample("m", Normal(0.0, std=2.0))
        b = ngmp.sample("b", Density(lambda x: 0.0 * x, "real"))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (4,)), std=1.0), obs=y)
        del b

    program = ngmp.compile(flat, integrate="b")
    with pytest.warns(ngmp.ConvergenceWarning, match="integral over hyperparameters"):
        post = program(y=Y)
    assert not bool(post.converged) and not bool(post.nodes.ends)
    assert "may be improper" in post.reason


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.update({}, {"y": Y}),
        lambda p: ngmp.restarts(p, None, 3, y=Y),
        lambda p: p(y=Y, init={"m": None}),
        lambda p: p.init(y=Y),
        lambda p: p.predict({"m": None}, "y", y=Y),
    ],
    ids=["update", "restarts", "init", "state", "forecast"],
)
def test_what_does_not_go_with_it(call):
    program = ngmp.compile(model(HalfCauchy(scale=1.0)), integrate="sd")
    with pytest.raises((TypeError, ValueError), match="integrate"):
        call(program)


def test_carry_does_not_go_with_it():
    with pytest.raises(ValueError, match="integrate.*carry"):
        ngmp.compile(model(HalfCauchy(scale=1.0)), integrate="sd", carry=("m",))


def test_hierarchical_priors():
    """An integrated prior may depend on another integrated site."""

    def nested(y):
        a = ngmp.sample("a", HalfNormal(std=1.0))
        sd = ngmp.sample("sd", LogNormal(0.0, std=a))
        m = ngmp.sample("m", Normal(0.0, std=2.0))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (4,)), std=sd), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        post = ngmp.compile(nested, integrate=("a", "sd"))(y=Y)
    # With log sd = a u the standard normal u stays on its grid, however small a is.
    a, u = np.linspace(1e-3, 5.0, 400), np.linspace(-6.0, 6.0, 121)
    sd = np.maximum(np.exp(a[:, None] * u), 1e-3)  # below, the data are impossible
    cov = sd[..., None, None] ** 2 * np.eye(4) + 4.0
    log = -0.5 * np.linalg.slogdet(2 * np.pi * cov)[1] - 0.5 * (np.linalg.solve(cov, Y[:, None])[..., 0] @ Y)
    log = log + 0.5 * np.log(2 / np.pi) - 0.5 * a[:, None] ** 2 - 0.5 * np.log(2 * np.pi) - 0.5 * u**2
    log = log + np.log((a[1] - a[0]) * (u[1] - u[0]))
    weights = np.exp(log - np.logaddexp.reduce(log.reshape(-1)))
    assert float(post.free_energy) == pytest.approx(-np.logaddexp.reduce(log.reshape(-1)), abs=0.03)
    mean = (weights * sd).sum()
    assert float(post["sd"].mean) == pytest.approx(mean, rel=0.03)


def test_what_auto_chooses():
    def mixed(y):
        sd = ngmp.sample("sd", HalfCauchy(scale=1.0))  # no family
        phi = ngmp.sample("phi", Beta(5.0, 1.5))  # no kernel for phi * x
        tau = ngmp.sample("tau", Gamma(2.0, rate=0.5))  # shared by all observations
        m = ngmp.sample("m", Normal(0.0, std=3.0))

        def step(x, y_k):
            x = ngmp.sample("x", Normal(phi * x, std=sd))
            ngmp.sample("y", Normal(x + m, precision=tau), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=3.0)), y)

    lowered = ngmp.compile(mixed, integrate="auto").lower(y=Y)
    assert set(lowered.integrated) == {"sd", "phi", "tau"}
    text = lowered.describe()
    assert "HalfCauchy has no family" in text and "no kernel where this Beta stands" in text

    def simple(y):
        tau = ngmp.sample("tau", Gamma(2.0, rate=0.5))
        m = ngmp.sample("m", Normal(0.0, std=3.0))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (4,)), precision=tau), obs=y)

    lowered = ngmp.compile(simple, integrate="auto").lower(y=Y)
    assert list(lowered.integrated) == ["tau"] and "the 4 factors of 'y' share it" in lowered.describe()

    def conjugate(y):
        m = ngmp.sample("m", Normal(0.0, std=3.0))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (4,)), std=1.0), obs=y)

    post = ngmp.compile(conjugate, integrate="auto")(y=Y)
    assert post.nodes is None and bool(post.converged)


def test_bounds_of_an_interval():
    post = ngmp.compile(model(Uniform(0.2, 0.7)), integrate="sd")(y=Y)
    low, high = (float(post["sd"].quantile(p)) for p in (0.001, 0.999))
    assert 0.2 < low < high < 0.7
