"""Rules, powers, clusters and schedules that cannot be: refused at compile time, with the rules that would work."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, Poisson, StudentT, exp

Y = np.array([1.0, 2.0, 0.0])


def counts(y):
    z = ngmp.sample("z", Normal(0.0, variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def mean_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def random_walk(y):
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=tau))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def log_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    s = ngmp.sample("s", Normal(0.0, variance=1.0))
    ngmp.sample("y", Normal(x, precision=exp(s)), obs=y)


def robust(y):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    ngmp.sample("y", StudentT(4.0, x, scale=1.0), obs=y)


def mixed(y):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)
    ngmp.sample("c", Poisson(exp(x)), obs=y)


def vectors(y):
    a = ngmp.sample("a", MvNormal(jnp.zeros(2), covariance=1.0))
    b = ngmp.sample("b", MvNormal(a, covariance=1.0))
    ngmp.sample("y", MvNormal(b, covariance=1.0), obs=y[:2])


def refused(model, *words, **options):
    """The text of the error that compiling the model raises, which must contain the words."""
    with pytest.raises(ngmp.ModelError) as error:
        ngmp.compile(model, **options).lower(y=Y)
    text = str(error.value)
    missing = [w for w in words if w not in text]
    assert not missing, f"{missing} not in:\n{text}"
    return text


def accepted(model, **options):
    return ngmp.compile(model, **options).lower(y=Y)


# -- rules ------------------------------------------------------------------------------------------------------------


def test_bp_on_what_is_not_conjugate():
    refused(counts, "site 'y'", "BP", "PoissonLog", "NGMP()", "EP()", "NCVMP()", "PVMP()", method=ngmp.BP())
    refused(mean_precision, "interfaces r, tau", "NGMP()", rules={"y": ngmp.BP()})
    accepted(mean_precision, rules={"x": ngmp.BP()})  # conjugate: nothing to refuse


@pytest.mark.parametrize("model, factor", [(counts, "PoissonLog"), (robust, "StudentTNoise")])
def test_vmp_outside_the_family(model, factor):
    refused(model, "site 'y'", factor, "not in the family", "NCVMP()", "PVMP()", "NGMP()", "EP()", method=ngmp.VMP())
    refused(model, factor, rules={"y": ngmp.VMP()})


def test_vmp_toward_one_of_two():
    """Toward r the expected log-factor is Gaussian; toward s it is not, and only s is refused."""
    text = refused(log_precision, "interface s", "NCVMP()", method=ngmp.VMP())
    assert "interface r" not in text
    accepted(log_precision, method=ngmp.NCVMP())


def test_every_problem_is_listed():
    text = refused(mixed, "2 problems", "site 'y'", "site 'c'", method=ngmp.BP())
    assert text.count("NGMP()") == 2


@pytest.mark.parametrize("rule", ["NGMP", ngmp.NGMP, 1.0, ngmp.Quadrature()], ids=["text", "class", "number", "other"])
def test_what_is_no_rule(rule):
    for options in ({"method": rule}, {"rules": {"y": rule}}):
        refused(counts, "not a message rule", "BP()", "VMP()", "NCVMP()", "PVMP()", "EP()", "NGMP()", **options)


def test_rules_of_unknown_sites():
    refused(counts, "'w'", "names no site", "'y'", rules={"w": ngmp.EP()})


def test_projection_that_is_none():
    refused(counts, "projection=", "Quadrature()", method=ngmp.NGMP(projection=32))
    with pytest.raises(ValueError, match=r"no moments to match.*Quadrature\(\).*NGMP\(projection=Delta\(\)\)"):
        ngmp.EP(projection=ngmp.Delta())


# -- powers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ngmp.NGMP, ngmp.EP])
@pytest.mark.parametrize("power", [0, -0.5, 1.5, np.nan, np.inf, {"tau": 0.0}, {"r": 1.0, "tau": 2}], ids=str)
def test_power_outside(kind, power):
    with pytest.raises(ValueError, match=r"\(0, 1\].*VMP\(\)"):
        kind(power=power)


@pytest.mark.parametrize("kind", [ngmp.NGMP, ngmp.EP])
@pytest.mark.parametrize("power", ["half", None, {"tau": "half"}, [0.5, 0.5]], ids=str)
def test_power_that_is_no_number(kind, power):
    with pytest.raises(TypeError, match="is no number.*by interface name"):
        kind(power=power)


@pytest.mark.parametrize("kind", [ngmp.NGMP, ngmp.EP])
def test_power_of_unknown_interfaces(kind):
    refused(mean_precision, "site 'y'", "'sigma'", "interfaces are r, tau", method=kind(power={"sigma": 0.5}))
    refused(mixed, "'tau'", "interfaces are z", rules={"c": kind(power={"tau": 0.5})})
    # A power for the whole model need not name an interface of every factor.
    accepted(mixed, method=kind(power={"tau": 0.5}))
    refused(mixed, "'sigma'", "interfaces are r, tau, z", method=kind(power={"tau": 0.5, "sigma": 0.5}))


# -- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [ngmp.VMP(), ngmp.NGMP()], ids=["VMP", "NGMP"])
def test_clusters_of_unknown_names(method):
    refused(random_walk, "'w'", "names no variable", "'tau', 'z', 'z0'", factorise=[(("z", "w"),)], method=method)
    refused(random_walk, "'y'", "names no variable", factorise=["y"], method=method)


def test_clusters_that_overlap():
    refused(random_walk, "'z'", "two clusters", "disjoint", factorise=[(("z0", "z"), "z")], method=ngmp.VMP())


def test_clusters_of_unlike_families():
    refused(
        mean_precision, "unlike families", "x: Gaussian", "tau: Gamma", "NGMP()", "EP()",
        factorise=[(("x", "tau"),)], method=ngmp.VMP(),
    )  # fmt: skip


def test_clusters_that_nothing_connects():
    def two(y):
        a = ngmp.sample("a", Normal(0.0, variance=1.0))
        b = ngmp.sample("b", Normal(0.0, variance=1.0))
        ngmp.sample("y", Normal(a, variance=1.0), obs=y)
        ngmp.sample("w", Normal(b, variance=1.0), obs=y)

    refused(two, "a, b", "no factor connects", "Leave unconnected", factorise=[(("a", "b"),)], method=ngmp.VMP())


def test_clusters_across_the_interfaces_of_a_factor():
    """x and s meet only in a factor whose mean-field messages take its interfaces as independent."""
    refused(log_precision, "site 'y'", "s, x", "different interfaces", "NGMP()", "EP()",
            factorise=[(("x", "s"),)], method=ngmp.NCVMP())  # fmt: skip


def test_clusters_astride_one_place():
    """z_{t-1} is z0 or z, so that z alone cannot be kept joint: before, it was silently taken apart."""
    refused(random_walk, "site 'z'", "z0 stands in the same place", "Name z0", factorise=["z"], method=ngmp.VMP())
    accepted(random_walk, factorise=[(("z0", "z"),)], method=ngmp.VMP())
    accepted(random_walk, factorise=["z0"], method=ngmp.VMP())


def test_vectors_apart_and_together():
    accepted(vectors, method=ngmp.VMP())
    accepted(vectors, method=ngmp.VMP(), factorise=[(("a", "b"),)])


# -- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [["w"], [("y.r", "y.sigma")], ["x"], ["y", "tau"]], ids=str)
def test_schedules_of_unknown_names(schedule):
    refused(mean_precision, "schedule=", "'y.r', 'y.tau'", schedule=schedule)


@pytest.mark.parametrize("schedule", [["y"], ["y.tau"], [("y.r", "y.tau")], []], ids=str)
def test_schedules_by_site_and_interface(schedule):
    accepted(mean_precision, schedule=schedule)


def test_one_variable_behind_two_interfaces():
    def tangled(y):
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Normal(x, precision=ngmp.exp(x)), obs=y)

    refused(tangled, "site 'y'", "two interfaces", "ngmp.factor")
