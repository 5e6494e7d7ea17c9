"""Indices that are inputs of the model, `theta[student]`, against dense linear algebra and indices that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Categorical, DataError, Gamma, ModelError, MvNormal, Normal, Poisson, dot

S, G, N = 5, 3, 24
rng = np.random.default_rng(0)
STUDENT, ITEM = rng.integers(0, S, N), rng.integers(0, G, N)
X, Y = rng.normal(size=N), rng.normal(size=N)
ONE = {"S": np.eye(S)[STUDENT], "G": np.eye(G)[ITEM]}  # rows of a design matrix


def posterior(prior: np.ndarray, rows: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, covariance and log-evidence of `y = rows x + noise` with x ~ N(0, prior)."""
    precision = np.linalg.inv(prior) + rows.T @ rows / noise
    covariance = np.linalg.inv(precision)
    marginal = rows @ prior @ rows.T + noise * np.eye(N)
    sign, log = np.linalg.slogdet(2 * np.pi * marginal)
    return covariance @ rows.T @ Y / noise, covariance, -0.5 * (log + Y @ np.linalg.solve(marginal, Y))


def crossed(student, item, y):
    mu = ngmp.sample("mu", Normal(0.0, variance=4.0))
    theta = ngmp.sample("theta", Normal(ngmp.broadcast_to(mu, (S,)), variance=1.0))
    b = ngmp.sample("b", Normal(np.zeros(G), variance=2.0))
    ngmp.sample("y", Normal(theta[student] - b[item], variance=0.5), obs=y)


def crossed_exact():
    prior = np.zeros((1 + S + G, 1 + S + G))
    prior[: 1 + S, : 1 + S] = 4.0
    prior[np.arange(1, 1 + S), np.arange(1, 1 + S)] += 1.0
    prior[1 + S :, 1 + S :] = 2.0 * np.eye(G)
    return posterior(prior, np.concatenate([np.zeros((N, 1)), ONE["S"], -ONE["G"]], 1), 0.5)


def slopes(student, x, y):
    a = ngmp.sample("a", Normal(np.zeros(S), variance=2.0))
    b = ngmp.sample("b", Normal(np.zeros(S), variance=1.0))
    c = ngmp.sample("c", Normal(0.0, variance=1.0))
    ngmp.sample("y", Normal(a[student] + b[student] * x + c * x, variance=0.5), obs=y)


def slopes_exact():
    prior = np.diag(np.concatenate([np.full(S, 2.0), np.ones(S + 1)]))
    return posterior(prior, np.concatenate([ONE["S"], X[:, None] * ONE["S"], X[:, None]], 1), 0.5)


def vectors(student, x, y):
    w = ngmp.sample("w", MvNormal(np.zeros((S, 2)), covariance=2.0))
    ngmp.sample("y", Normal(dot(jnp.stack([jnp.ones(N), x], -1), w[student]), variance=0.5), obs=y)


def vectors_exact():
    rows = np.stack([ONE["S"], X[:, None] * ONE["S"]], -1).reshape(N, -1)
    return posterior(2.0 * np.eye(2 * S), rows, 0.5)


def pairs(student, other, y):  # both ends in one plate, some rows with themselves
    theta = ngmp.sample("theta", Normal(np.zeros(S), variance=1.0))
    for k in range(N):
        ngmp.sample("y", Normal(theta[student[k]] - theta[other[k]], variance=0.5), obs=y[k])


OTHER = (STUDENT + rng.integers(0, S, N)) % S


def pairs_exact():
    return posterior(np.eye(S), ONE["S"] - np.eye(S)[OTHER], 0.5)


def cells(student, item, y):  # an index for each axis, and a scan with an index in it
    a = ngmp.sample("a", Normal(np.zeros((S, G)), variance=1.0))
    b = ngmp.sample("b", Normal(np.zeros(G), variance=2.0))

    def step(z, row):
        i, j, y_k = row
        ngmp.sample("y", Normal(a[i, j] + b[j] + z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z", Normal(0.0, variance=1.0)), (student, item, y))


def cells_exact():
    cell = np.eye(S * G)[STUDENT * G + ITEM]
    prior = np.diag(np.concatenate([np.ones(S * G), np.full(G, 2.0), [1.0]]))
    return posterior(prior, np.concatenate([cell, ONE["G"], np.ones((N, 1))], 1), 0.5)


CASES = {
    "crossed": (crossed, {"student": STUDENT, "item": ITEM}, crossed_exact, ("mu", "theta", "b")),
    "slopes": (slopes, {"student": STUDENT, "x": X}, slopes_exact, ("a", "b", "c")),
    "vectors": (vectors, {"student": STUDENT, "x": X}, vectors_exact, ("w",)),
    "pairs": (pairs, {"student": STUDENT, "other": OTHER}, pairs_exact, ("theta",)),
    "cells": (cells, {"student": STUDENT, "item": ITEM}, cells_exact, ("a", "b", "z")),
}


@pytest.mark.core32
@pytest.mark.parametrize("name", CASES)
def test_conjugate_models_with_given_indices_are_exact(name, x64):
    model, inputs, exact, names = CASES[name]
    post = ngmp.compile(model)(**inputs, y=Y)
    mean, covariance, evidence = exact()
    tol = 1e-9 if x64 else 2e-3
    np.testing.assert_allclose(np.concatenate([np.ravel(post[k].mean) for k in names]), mean, atol=tol)
    variances = [np.ravel(np.diagonal(c, axis1=-2, axis2=-1) if (c := post[k].variance).ndim > 2 else c) for k in names]
    np.testing.assert_allclose(np.concatenate(variances), np.diag(covariance), atol=tol)
    np.testing.assert_allclose(-post.free_energy, evidence, atol=10 * tol)
    assert post.exact


@pytest.mark.usefixtures("only64")
def test_one_program_serves_all_contents_under_jit_and_vmap():
    program = ngmp.compile(crossed)
    many = np.stack([STUDENT, STUDENT[::-1], OTHER])
    single = [program(student=s, item=ITEM, y=Y).free_energy for s in many]
    assert len(program._compiled) == 1
    batch = jax.jit(jax.vmap(lambda s: program(student=s, item=ITEM, y=Y).free_energy))(many)
    np.testing.assert_allclose(batch, single, rtol=1e-12)
    assert "arrow" in program.lower(student=STUDENT, item=ITEM, y=Y).describe()


@pytest.mark.usefixtures("only64")
def test_draws_have_the_joint_covariance(key):
    post = ngmp.compile(slopes)(student=STUDENT, x=X, y=Y)
    draws = post.sample(key, (20_000,))
    _, covariance, _ = slopes_exact()
    flat = np.concatenate([np.asarray(draws[k]).reshape(20_000, -1) for k in ("a", "b", "c")], 1)
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=0.04)


def projected(student, other, group, y, count):
    theta = ngmp.sample("theta", Normal(np.zeros(S), variance=1.0))
    ngmp.sample("y", Bernoulli(logits=theta[student] - theta[other]), obs=y)
    rate = ngmp.sample("rate", Gamma(2.0 * np.ones(G), rate=1.0))
    ngmp.sample("count", Poisson(rate[group]), obs=count)


@pytest.mark.usefixtures("only64")
def test_projected_and_other_families_equal_known_indices():
    data = {"y": 1.0 * (Y > 0), "count": np.arange(N) % 4}
    indices = {"student": STUDENT, "other": OTHER, "group": ITEM}

    def known(y, count):
        projected(**indices, y=y, count=count)

    program = ngmp.compile(projected)
    post, exact = program(**indices, **data), ngmp.compile(known)(**data)
    assert post.converged and exact.converged
    for name in ("theta", "rate"):
        np.testing.assert_allclose(post[name].mean, exact[name].mean, atol=1e-9)
        np.testing.assert_allclose(post[name].variance, exact[name].variance, atol=1e-9)
    np.testing.assert_allclose(post.free_energy, exact.free_energy, atol=1e-8)
    slope = jax.grad(lambda y: program(**indices, y=y, count=data["count"]).free_energy)(data["y"])
    other = jax.grad(lambda y: ngmp.compile(known)(y=y, count=data["count"]).free_energy)(data["y"])
    np.testing.assert_allclose(slope, other, atol=1e-7)


@pytest.mark.usefixtures("only64")
def test_an_index_out_of_its_plate_is_an_error_or_flagged():
    program = ngmp.compile(crossed)
    with pytest.raises(DataError, match=r"site 'y': an index is outside of its plate of 5 .*first at \[2\]"):
        program(student=np.where(np.arange(N) == 2, S, STUDENT), item=ITEM, y=Y)
    assert not jax.jit(lambda s: program(student=s, item=ITEM, y=Y).converged)(STUDENT + 1)
    last = program(student=STUDENT - S, item=ITEM, y=Y)  # negative ones count from the end
    np.testing.assert_allclose(last.free_energy, program(student=STUDENT, item=ITEM, y=Y).free_energy)
    with pytest.raises(ModelError, match="traced array of dtype float"):
        program(student=X, item=ITEM, y=Y)


@pytest.mark.usefixtures("only64")
def test_schedules_that_depend_on_contents_are_compiled_for_them():
    def hidden(y, before):  # which classes are tied is structure: a tree of any shape
        z = ngmp.sample("z", Categorical(probs=np.full((S, 2), 0.5)))
        table = np.array([[0.9, 0.1], [0.2, 0.8]])
        w = ngmp.sample("w", Categorical(probs=ngmp.take(table, z[before])))
        ngmp.sample("y", Normal(ngmp.take(np.array([-1.0, 1.0]), w), variance=1.0), obs=y)

    program, first = ngmp.compile(hidden), STUDENT[:6]
    post = program(y=Y[:6], before=first)
    joint = np.zeros((S, 2))
    for k in range(S):
        rows = Y[:6][first == k]
        like = np.exp(-0.5 * (rows[:, None] - np.array([-1.0, 1.0])) ** 2)
        joint[k] = 0.5 * np.prod(like @ np.array([[0.9, 0.1], [0.2, 0.8]]).T, axis=0)
    np.testing.assert_allclose(post["z"].probs, joint / joint.sum(1, keepdims=True), atol=1e-9)
    assert "compiled for the contents of before" in program.lower(y=Y[:6], before=first).describe()
    with pytest.raises(ModelError, match="outside of jit"):
        jax.jit(lambda b: program(y=Y[:6], before=b).free_energy)(first)


def pairs(first, second, y):
    s = ngmp.sample("s", Normal(np.zeros(S), variance=2.0))
    ngmp.sample("y", Normal(s[first] - s[second], variance=0.5), obs=y)


@pytest.mark.usefixtures("only64")
def test_draws_where_every_variable_is_tied_to_every_other(key):
    """Ratings from pairs: nothing can be eliminated one by one, all is border. Once: integer modulo by zero."""
    other = (STUDENT + 1 + ITEM) % S
    mean, covariance, _ = posterior(2.0 * np.eye(S), ONE["S"] - np.eye(S)[other], 0.5)
    draws = np.asarray(ngmp.compile(pairs)(first=STUDENT, second=other, y=Y).sample(key, (4000,))["s"])
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.15)
