"""Shapes and names that do not fit: errors name the site, what was given and what would work."""

import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Categorical,
    Dirichlet,
    ModelError,
    MvNormal,
    Normal,
    Poisson,
    dot,
    exp,
    sample,
    take,
)
from tests.refusals import N01, Y, fails, gamma, gaussian, refused, vector

# -- shapes ----------------------------------------------------------------------------------------------------------


@refused("site 'y'", "mean (2,)", "obs (3,)", "broadcast", y=Y)
def test_plates_of_unequal_length(y):
    sample("y", Normal(gaussian(mean=np.zeros(2)), **N01), obs=y)


@refused("'x' and 'z'", "(2,) and (3,)", "broadcast")
def test_sum_of_unequal_plates():
    sample("y", Normal(gaussian("x", np.zeros(2)) + gaussian("z", np.zeros(3)), **N01), obs=Y)


@refused("'x'", "(2,) and (3,)", "product")
def test_product_with_a_constant_of_another_shape():
    sample("y", Normal(gaussian("x", np.zeros(2)) * Y, **N01), obs=Y)


@refused("'w'", "'v'", "vectors of equal length")
def test_sum_of_vectors_of_different_lengths():
    vector() + vector("v", d=4)


@refused("'w'", "length 1", "(3,)", "last axes")
def test_a_constant_may_not_stretch_a_vector():
    vector(d=1) + Y


@refused("site 'w'", "covariance=", "got shape (3, 3)", "(2, 2)")
def test_covariance_of_another_size():
    sample("w", MvNormal(np.zeros(2), covariance=np.eye(3)))


@pytest.mark.parametrize(
    ("distribution", "word"),
    [
        (lambda: MvNormal(0.0, covariance=1.0), "mean"),
        (lambda: Dirichlet(1.0), "concentration"),
        (lambda: Categorical(probs=0.5), "probs"),
    ],
)
def test_outcome_of_unknown_length(distribution, word):
    fails(ModelError, lambda: sample("x", distribution()), "site 'x'", "length", f"{word} as a vector")


@pytest.mark.parametrize("y", [Y, np.float64(1.0), np.ones((2, 3))])
def test_observed_vector_of_another_length(y):
    def model(y):
        sample("y", MvNormal(vector(), covariance=1.0), obs=y)

    fails(ModelError, model, "site 'y', obs", f"shape {np.shape(y)}", "length 2", y=y)


@refused("site 'y', obs", "(2,)", "length 3", y=Y[:2])
def test_observed_simplex_of_another_length(y):
    sample("y", Dirichlet(np.ones(3)), obs=y)


@refused("features of shape (3, 4)", "'w'", "length 2", "must be 2", x=np.zeros((3, 4)))
def test_features_of_another_width(x):
    sample("y", Normal(dot(x, vector()), **N01), obs=Y)


@refused("features of shape (3, 4)", "'w'", "length 2", "must be 2")
def test_matrix_of_another_width():
    np.zeros((3, 4)) @ vector()


@refused("(3, 2) @ (3,)", "'x'", "must be as long")
def test_features_meet_a_plate_of_another_length():
    dot(np.zeros((3, 2)), gaussian("x", np.zeros(3)))


@refused("'z'", "2 rows", "3 classes")
def test_take_from_a_table_of_another_size():
    take(np.eye(2), sample("z", Categorical(probs=np.ones(3) / 3)))


@refused("site 'y', argument probs", "table of shape (3,)", "3 rows")
def test_take_from_a_vector():
    z = sample("z", Categorical(probs=np.ones(3) / 3))
    sample("y", Categorical(probs=take(np.ones(3) / 3, z)), obs=1)


# -- names -----------------------------------------------------------------------------------------------------------


@refused("site 'x'", "batch shape ()", "batch shape (2,)", "the same thing", "ngmp.scope")
def test_name_reused_with_another_shape():
    gaussian("x")
    gaussian("x", np.zeros(2))


@refused("site 'x'", "Gaussian", "Gamma")
def test_name_reused_with_another_family():
    gaussian("x")
    gamma("x")


@refused("site 'y'", "(3,)", "()", "the same thing")
def test_observed_name_reused_with_another_shape():
    sample("y", Normal(0.0, **N01), obs=Y)
    sample("y", Normal(0.0, **N01), obs=1.0)


@pytest.mark.parametrize("first", [None, 1.0])
def test_name_both_latent_and_observed(first):
    def model():
        sample("x", Normal(0.0, **N01), obs=first)
        sample("x", Normal(0.0, **N01), obs=None if first else 1.0)

    fails(ModelError, model, "site 'x'", "obs=", "mask=")


@pytest.mark.parametrize("call", [lambda: sample(Normal(0.0, **N01), "x"), lambda: ngmp.factor(3, abs, gaussian())])  # type: ignore[arg-type]
def test_names_are_strings(call):
    fails(ModelError, call, "the name is of type", "a string")


def test_unknown_variable_of_a_posterior():
    post = ngmp.compile(lambda: gaussian("x"))()
    with pytest.raises(KeyError, match="no variable 'nope'.*declares x"):
        post["nope"]
    assert "nope" not in post and "x" in post


@pytest.mark.parametrize("site", ["nope", "x"])
def test_prediction_of_an_unknown_or_latent_site(site):
    def model(y):
        sample("y", Normal(gaussian(), **N01), obs=y)

    program = ngmp.compile(model)
    post = program(y=Y)
    with pytest.raises(ModelError, match=f"site '{site}': not an observed site.*'y'"):
        program.predict(post, site, y=Y)


def test_unknown_sites_and_families_in_options():
    def model():
        gaussian("x")

    options = {"rules": {"q": ngmp.NGMP()}, "families": {"r": ngmp.families.Gamma, "x": ngmp.families.Gamma}}
    with pytest.raises(ModelError) as info:
        ngmp.compile(model, **options)()
    assert len(info.value.problems) == 3
    for word in ("'q'", "rules=", "'r'", "families=", "['x']", "Gamma", "family is Gaussian"):
        assert word in str(info.value)


def test_options_of_the_wrong_kind():
    with pytest.raises(ModelError) as info:
        ngmp.compile(
            gaussian, method="ngmp", rules={"x": 3, "y": ngmp.NGMP(projection="gh")}, families={"x": "gaussian"}
        )
    assert len(info.value.problems) == 4
    for word in ("method= is 'ngmp'", "NGMP()", "site 'x' is 3", "projection='gh'", "GaussHermite(n)", "'gaussian'"):
        assert word in str(info.value)
    with pytest.raises(TypeError, match="solver=0.5 is not an optax transformation"):
        ngmp.compile(gaussian, solver=0.5)  # type: ignore[arg-type]
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="max_sweeps must be an integer of at least 1"):
            ngmp.compile(gaussian, max_sweeps=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tol must be positive"):
        ngmp.compile(gaussian, tol=0.0)
    ngmp.compile(gaussian, solver=optax.sgd(0.1), max_sweeps=np.int64(3), tol=1e-3)


def test_belief_propagation_is_refused_where_it_is_not_exact():
    def model(y):
        sample("y", Poisson(exp(gaussian())), obs=y)

    with pytest.raises(ModelError, match="site 'y'.*BP.*NGMP"):
        ngmp.compile(model, method=ngmp.BP())(y=Y)
