"""Masks: what is not seen does not count, whatever stands there, and a batch of masks is a loop over masks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Bernoulli, Beta, Categorical, Dirichlet, MvNormal, Normal, Poisson, StudentT, dot, exp

TIGHT = {"solver": optax.sgd(0.5), "max_sweeps": 2000, "tol": 1e-12}
RNG = np.random.default_rng(0)
N = 5
SEEN = np.array([True, False, True, True, False])


def _mixture(counts, x, v, k, mask=None):
    """One plate of every kind of outcome, all masked alike."""
    z = ngmp.sample("z", Normal(np.zeros(N), variance=1.0))
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    p = ngmp.sample("p", Beta(2.0, 2.0))
    probs = ngmp.sample("probs", Dirichlet(np.ones(3)))
    ngmp.sample("counts", Poisson(exp(z)), obs=counts, mask=mask)
    ngmp.sample("x", StudentT(4.0, z, scale=0.5), obs=x, mask=mask)
    ngmp.sample("g", Normal(dot(v, w), variance=0.5), obs=x, mask=mask)
    ngmp.sample("v", MvNormal(w, covariance=0.5), obs=v, mask=mask)
    ngmp.sample("coin", Bernoulli(probs=p), obs=counts % 2, mask=mask)
    ngmp.sample("k", Categorical(probs=probs), obs=k, mask=mask)


def _hmm(y, initial, transition, emission, mask=None):
    ngmp_models.hmm(y, initial, transition, emission, mask)


TABLES = {k: RNG.dirichlet(np.ones(3), size=s) for k, s in (("initial", None), ("transition", 3), ("emission", 3))}
CASES = {
    "every outcome": (
        _mixture,
        {
            "counts": RNG.integers(0, 5, N),
            "x": RNG.normal(size=N),
            "v": RNG.normal(size=(N, 2)),
            "k": RNG.integers(0, 3, N),
        },
    ),
    "poisson chain": (ngmp_models.poisson_chain, {"y": RNG.integers(0, 5, N)}),
    "hidden Markov": (_hmm, {"y": RNG.integers(0, 3, N), **TABLES}),
    "stochastic volatility": (ngmp_models.stochastic_volatility, {"r": RNG.normal(size=N)}),
}
PROGRAMS = {name: ngmp.compile(model, **TIGHT) for name, (model, _) in CASES.items()}
each_case = pytest.mark.parametrize("name", CASES)


def _same(a, b, tol=1e-10):
    """Every marginal and the free energy of two posteriors."""
    assert set(a.marginals) == set(b.marginals)
    leaves = (jax.tree.leaves((post.marginals, post.free_energy)) for post in (a, b))
    for x, y in zip(*leaves, strict=True):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


@each_case
def test_an_all_true_mask_is_no_mask(name):
    inputs = CASES[name][1]
    _same(PROGRAMS[name](**inputs), PROGRAMS[name](**inputs, mask=np.ones(N, bool)))


@each_case
def test_masked_values_cannot_change_anything(name):
    """Not with other valid values, and not with NaN, infinities, negative counts or classes that do not exist."""
    inputs = CASES[name][1]
    expected = PROGRAMS[name](**inputs, mask=SEEN)
    assert expected.converged
    data = {k: v for k, v in inputs.items() if k not in TABLES and not (name == "every outcome" and k == "v")}
    for junk in (np.nan, np.inf, -3.0, 17.0):
        spoilt = {}
        for k, value in data.items():
            seen = SEEN.reshape(N, *(1,) * (value.ndim - 1))
            whole = not np.isfinite(junk) and np.issubdtype(value.dtype, np.integer)
            spoilt[k] = np.where(seen, value, -7 if whole else np.asarray(junk).astype(value.dtype))
        post = PROGRAMS[name](**{**inputs, **spoilt}, mask=SEEN)
        assert post.converged
        _same(expected, post, tol=0)


def test_masked_counts_given_as_floats_may_be_nan():
    y = np.array([1.0, np.nan, 3.0, 0.0, np.nan])
    program = PROGRAMS["poisson chain"]
    _same(program(y=y, mask=SEEN), program(y=np.nan_to_num(y), mask=SEEN))


def test_masked_features_still_must_be_finite_but_do_not_count():
    name = "every outcome"
    inputs = CASES[name][1]
    spoilt = {**inputs, "v": np.where(SEEN[:, None], inputs["v"], 100.0)}
    _same(PROGRAMS[name](**inputs, mask=SEEN), PROGRAMS[name](**spoilt, mask=SEEN), tol=1e-9)


def _dropped(y, seen):
    """The chain with the masked observations left out of the declaration; `seen` is static."""
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=0.1))
        if seen[k]:
            ngmp.sample("y", Poisson(exp(z)), obs=y[k])


def test_masked_is_dropped():
    y = CASES["poisson chain"][1]["y"]
    dropped = ngmp.compile(_dropped, **TIGHT)(y=y, seen=tuple(bool(s) for s in SEEN))
    _same(PROGRAMS["poisson chain"](y=y, mask=SEEN), dropped)


def test_masked_is_dropped_from_a_plate():
    y = np.random.default_rng(1).normal(size=N)
    program = ngmp.compile(ngmp_models.mean_precision, **TIGHT)
    _same(program(y=y, mask=SEEN), program(y=y[SEEN]))


@each_case
def test_a_batch_of_masks_is_a_loop_over_masks(name):
    inputs = CASES[name][1]
    masks = np.stack([SEEN, ~SEEN, np.ones(N, bool), np.zeros(N, bool)])
    program = PROGRAMS[name]
    batch = jax.vmap(lambda m: program(**inputs, mask=m))(masks)
    assert batch.converged.all()
    for i, mask in enumerate(masks):
        _same(jax.tree.map(lambda x, i=i: x[i], batch), program(**inputs, mask=mask), tol=1e-9)


def _coins(y, mask=None):
    p = ngmp.sample("p", Beta(2.0, 3.0))
    ngmp.sample("y", Bernoulli(probs=p), obs=y, mask=mask)


def test_a_scalar_mask_covers_the_site():
    program, y = ngmp.compile(_coins), np.array([1, 0, 1, 1, 0])
    _same(program(y=y, mask=np.asarray(False)), program(y=y, mask=np.zeros(N, bool)))
    prior = program(y=y, mask=jnp.asarray(False))
    np.testing.assert_allclose([prior["p"].a, prior["p"].b, prior.free_energy], [2.0, 3.0, 0.0], atol=1e-10)
    _same(program(y=y, mask=jnp.asarray(True)), program(y=y))
