"""Single precision: the core runs in it, stays in it, and agrees with double precision to what it can hold.

Tests marked `core32` run twice: in the usual float64 process, where float32 inputs must give float32 results, and in a
process of their own with NGMP_X64=0 (`NGMP_X64=0 python -m pytest -m core32`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Bernoulli, Beta, Categorical, Dirichlet, Gamma, MvNormal, Normal, Poisson, StudentT, dot, exp
from tests.oracle.compare import assert_marginals
from tests.oracle.exact import kalman_smoother
from tests.oracle.interpreter import interpret

pytestmark = pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
RNG = np.random.default_rng(0)
N = 6
SEEN = np.array([True, True, False, True, True, False])
COUNTS = np.array([0, 3, 1, 6, 2, 2], np.float32)
Y = RNG.normal(size=N).astype(np.float32)
FEATURES = RNG.normal(size=(N, 2)).astype(np.float32)
TABLES = {
    k: RNG.dirichlet(np.ones(3), size=s).astype(np.float32)
    for k, s in (("initial", None), ("transition", 3), ("emission", 3))
}


def _conjugate_plates(y, counts):
    rate = ngmp.sample("rate", Gamma(2.0, rate=0.5))
    ngmp.sample("counts", Poisson(rate), obs=counts)
    p = ngmp.sample("p", Beta(2.0, 1.5))
    ngmp.sample("coins", Bernoulli(probs=p), obs=counts > 1)
    probs = ngmp.sample("probs", Dirichlet(np.ones(3)))
    ngmp.sample("classes", Categorical(probs=probs), obs=counts % 3)
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("noise", Normal(0.2, precision=tau), obs=y)


def _knot(y, phi):
    """Dense, star and chain executors, and a Student-t step."""
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    b = ngmp.sample("b", Normal(0.0, variance=4.0))
    ngmp.sample("y", Normal(dot(phi, w) + b, variance=0.5), obs=y)
    hub = ngmp.sample("hub", Normal(0.0, std=2.0))
    x = ngmp.sample("x", Normal(0.5 * hub, precision=np.full(N, 2.0)))
    ngmp.sample("u", Normal(x, variance=0.5), obs=y)
    z = ngmp.sample("z0", Normal(0.0, variance=1.0))
    for k in range(3):
        z = ngmp.sample("z", StudentT(5.0, z, scale=0.7))
        ngmp.sample("v", Normal(z, variance=0.5), obs=y[k])


def _log_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=4.0))
    s = ngmp.sample("s", Normal(0.0, variance=0.5))
    ngmp.sample("y", Normal(x, precision=exp(s)), obs=y)


CASES = {
    "local level": (ngmp_models.local_level, {"y": Y, "mask": SEEN}, 1e-5),
    "hidden Markov": (ngmp_models.hmm, {"y": COUNTS % 3, **TABLES, "mask": SEEN}, 1e-5),
    "conjugate plates": (_conjugate_plates, {"y": Y, "counts": COUNTS}, 1e-5),
    "every executor": (_knot, {"y": Y, "phi": FEATURES}, 1e-4),
    "poisson chain": (ngmp_models.poisson_chain, {"y": COUNTS, "mask": SEEN}, 1e-3),
    "mean and precision": (ngmp_models.mean_precision, {"y": Y}, 1e-3),
    "log-precision": (_log_precision, {"y": Y}, 1e-3),
    "logistic regression": (ngmp_models.logistic_regression, {"features": FEATURES, "y": COUNTS > 1}, 1e-3),
}


def _float64(x):
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


@pytest.mark.core32
@pytest.mark.parametrize(("model", "inputs", "tol"), CASES.values(), ids=CASES)
def test_single_precision(model, inputs, tol):
    post = ngmp.compile(model)(**inputs)
    assert post.converged, post.reason
    floating = [x for x in jax.tree.leaves(post) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floating} == {jnp.dtype(jnp.float32)}
    expected = interpret(model, 101, **{k: _float64(v) for k, v in inputs.items()})
    assert_marginals(post, expected.marginals, tol)
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=tol, atol=tol)


@pytest.mark.core32
def test_a_long_chain_in_single_precision():
    n = 1000
    y = np.random.default_rng(1).normal(size=n).cumsum().astype(np.float32)
    one = np.eye(1)
    expected = kalman_smoother(
        y[:, None].astype(float), np.ones(n, bool), one, 0.5 * one, one, one, np.zeros(1), 10 * one
    )
    post = ngmp.compile(ngmp_models.local_level)(y=y, level_variance=0.5)
    assert post["z"].mean.dtype == jnp.float32
    np.testing.assert_allclose(post["z"].mean, expected.mean[1:, 0], atol=1e-3)
    np.testing.assert_allclose(post["z"].variance, expected.covariance[1:, 0, 0], rtol=1e-4)
    np.testing.assert_allclose(-post.free_energy, expected.log_evidence, rtol=3e-4)  # what is left of terms of 10^6


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.core32
def test_transformations_and_prediction_stay_in_single_precision():
    program = ngmp.compile(ngmp_models.poisson_chain)
    inputs = {"y": COUNTS, "mask": SEEN}
    post = program(**inputs)
    batch = jax.vmap(lambda m: program(y=COUNTS, mask=m).free_energy)(np.stack([SEEN, ~SEEN]))
    assert batch.dtype == jnp.float32
    np.testing.assert_allclose(batch[0], post.free_energy, rtol=1e-4)
    prediction = program.predict(post, "y", **inputs)
    assert {x.dtype for x in jax.tree.leaves(prediction)} == {jnp.dtype(jnp.float32)}
    state = program.step(program.init(**inputs), **inputs)
    assert program.posterior(state, **inputs)["z"].mean.dtype == jnp.float32
    warm = program(**inputs, init=post.state)
    assert warm.converged and warm.sweeps <= 3


def test_the_widest_input_decides(x64):
    if not x64:
        pytest.skip("there is one precision in this process")
    program = ngmp.compile(ngmp_models.logistic_regression)
    wide = program(features=FEATURES.astype(np.float64), y=COUNTS > 1)
    assert wide["w"].mean.dtype == jnp.float64
    narrow = program(features=FEATURES, y=COUNTS > 1, prior_variance=4.0)  # a Python float is not wide
    assert narrow["w"].mean.dtype == jnp.float32
    np.testing.assert_allclose(narrow["w"].mean, wide["w"].mean, atol=1e-3)
    integers = ngmp.compile(ngmp_models.poisson_chain)(y=COUNTS.astype(int))
    assert integers["z"].mean.dtype == jnp.float64


def test_describe_names_the_precision():
    text = ngmp.compile(ngmp_models.poisson_chain).lower(y=COUNTS).describe()
    assert "float32" in text.splitlines()[0]
