"""Every property of an exponential family, on every family: layout, geometry, sampling, domain, random members."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from ngmp_kernels.families import (
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    MvGaussian,
)
from tests.kernels.families.cases import CASES, DRAWS, FAST_COMPILE, everything, one, results

pytestmark = pytest.mark.core32


# -- layout and arithmetic -----------------------------------------------------------------------------------------


def test_layout(name, q, dtype):
    assert q.kind == name
    assert len(q.event_shape) == q.event_ndim
    flat = type(q).flat(q.batch_shape, q.event_shape, dtype)
    assert jax.tree.structure(flat) == jax.tree.structure(q)
    for zero, eta in zip(flat.natural, q.natural, strict=True):
        assert zero.shape == eta.shape and zero.dtype == eta.dtype == dtype
        assert not zero.any()
    assert type(q).flat((4, 2), q.event_shape).batch_shape == (4, 2)


def test_flat_refuses_a_wrong_event(q):
    wrong = (3, 2) if q.event_ndim == 2 else () if q.event_ndim else (3,)
    with pytest.raises(ValueError, match="event"):
        type(q).flat((2,), wrong)


def test_natural_arithmetic(q, p, dtype):
    scale = np.linspace(0.5, 2.0, q.batch_shape[0])  # float64 numpy: must not promote
    result = 0.5 * (q + p) - (-q) * scale
    for r, x, y in zip(result.natural, q.natural, p.natural, strict=True):
        factor = scale.reshape((-1,) + (1,) * (x.ndim - 1))
        np.testing.assert_allclose(r, 0.5 * (x + y) + factor * x, rtol=1e-6, atol=1e-6)
        assert r.dtype == dtype
    with pytest.raises(TypeError):
        q + 1.0


def test_dot_sums_event_axes(q, p, tol):
    mu = p.to_mean()
    expected = sum(
        np.asarray(e * m, float).reshape(q.batch_shape + (-1,)).sum(-1) for e, m in zip(q.natural, mu, strict=True)
    )
    np.testing.assert_allclose(q.dot(mu), expected, rtol=tol, atol=tol * 1e3)


@pytest.mark.parametrize("width", ["float32", "float64"])
def test_every_result_keeps_the_dtype(case, width, x64):
    if width == "float64" and not x64:
        pytest.skip("float64 needs its own process")
    q, p = case.make(width), case.other(width)
    shapes = jax.eval_shape(everything, q, p)
    assert shapes.pop("proper").dtype == bool
    assert jnp.issubdtype(shapes.pop("draws").dtype, jnp.integer if q.kind == "categorical" else width)
    assert {leaf.dtype for leaf in jax.tree.leaves((q, shapes))} == {jnp.dtype(width)}


# -- geometry ------------------------------------------------------------------------------------------------------


def test_gradient_of_log_partition_is_the_mean(r, tol):
    np.testing.assert_allclose(r["gradient"], r["flat mu"], rtol=tol, atol=tol)


def test_mean_round_trip(name, q, r, dtype):
    back = r["round trip"]
    if name == "categorical":
        q, back = (type(x)(jax.nn.log_softmax(x.eta1)) for x in (q, back))
    # The inverse map magnifies rounding of mu by the shape: mean parameters of sharp densities nearly coincide.
    loose = {"gamma": 1e4, "inversegamma": 1e4, "wishart": 1e3, "beta": 1e3, "dirichlet": 1e2, "gaussian": 1e3}.get(
        name, 10.0
    )
    tol = 30 * loose * float(jnp.finfo(dtype).eps)
    for x, y in zip(q.natural, back.natural, strict=True):
        np.testing.assert_allclose(y, x, rtol=tol, atol=tol)


@pytest.mark.usefixtures("only64")
@pytest.mark.parametrize("name", ["gaussian", "gamma", "bernoulli"])
def test_reverse_derivative_of_from_mean_is_inverse_fisher(name):
    q = one(CASES[name].make(jnp.float64), 1)
    mu, unravel = ravel_pytree(q.to_mean())

    def natural(m):
        return jnp.hstack(type(q).from_mean(*unravel(m)).natural)

    jacobian = jax.jit(jax.jacrev(natural), compiler_options=FAST_COMPILE)(mu)
    hessian = results(name, jnp.dtype("float64"))["hessian"][1]
    np.testing.assert_allclose(jacobian @ hessian, np.eye(len(mu)), atol=1e-8)


# -- sampling and domain -------------------------------------------------------------------------------------------


def test_sample_moments(r):
    standard_error = np.sqrt(np.einsum("...ii->...i", r["hessian"]) / DRAWS)
    error = np.abs(np.mean(np.asarray(r["draws' statistics"], float), axis=0) - r["flat mu"])
    assert np.max(error / standard_error) < 5.0  # the seed is fixed


def test_sample_shapes(q, key):
    event = () if q.kind == "categorical" else q.event_shape
    for shape in ((), (2, 4)):
        assert jax.eval_shape(lambda q, s=shape: q.sample(key, s), q).shape == shape + q.batch_shape + event


def test_is_proper(name, q, r):
    assert r["proper"].shape == q.batch_shape and r["proper"].all()
    for bad in (jnp.nan, jnp.inf):
        for leaf in range(len(q.natural)):
            poisoned = [eta.at[0].set(bad) if i == leaf else eta for i, eta in enumerate(q.natural)]
            proper = type(q)(*poisoned).is_proper()
            assert not proper[0] and proper[1:].all()
    scales = {"gaussian": -1.0, "mvgaussian": -1.0, "gamma": -1.0, "beta": -2.0, "dirichlet": -5.0}
    improper = {**scales, "inversegamma": -1.0, "wishart": -1.0}.get(name)
    if improper is not None:
        bad = q * improper if name != "beta" else Beta(q.eta1 - 400, q.eta2)
        bad = Dirichlet(q.eta1.at[:, 0].set(-1.0)) if name == "dirichlet" else bad
        assert not bad.is_proper().any()
    flat = type(q).flat(q.batch_shape, q.event_shape, q.dtype)
    assert flat.is_proper().all() == (name not in ("gaussian", "mvgaussian", "gamma", "inversegamma", "wishart"))


def test_an_impossible_class_is_not_nan():
    q = Categorical.from_probs(jnp.array([0.0, 0.25, 0.75]))
    p = Categorical.from_probs(jnp.array([0.0, 0.5, 0.5]))
    np.testing.assert_allclose(q.log_density(jnp.array([1, 2])), np.log([0.25, 0.75]), rtol=1e-6)
    assert np.isfinite(q.entropy()) and np.isfinite(q.kl(p)) and not q.is_proper()


def test_python_numbers_and_broadcasting():
    q = Gaussian.from_mean_variance(0, jnp.ones((2, 3), jnp.float32))
    assert q.batch_shape == (2, 3) and q.dtype == jnp.float32
    assert Gamma.from_concentration_rate(2, 1).dtype == jnp.result_type(float)
    r = MvGaussian.from_information(jnp.zeros((4, 2)), jnp.eye(2))
    assert r.batch_shape == (4,) and r.eta2.shape == (4, 2, 2)


# -- property tests ------------------------------------------------------------------------------------------------

BATCH = 8
positive = st.floats(-4.5, 9.2).map(np.exp)  # 0.01 .. 1e4
QUICK = settings(max_examples=25, deadline=None)


def _rows(columns):
    return st.lists(st.tuples(*[positive] * columns), min_size=BATCH, max_size=BATCH).map(np.array)


_gamma_back = jax.jit(lambda q: Gamma.from_mean(*q.to_mean()), compiler_options=FAST_COMPILE)
_beta_back = jax.jit(lambda q: Beta.from_mean(*q.to_mean()), compiler_options=FAST_COMPILE)
_dirichlet_back = jax.jit(lambda q: Dirichlet.from_mean(*q.to_mean()), compiler_options=FAST_COMPILE)


@pytest.mark.usefixtures("only64")
@QUICK
@given(_rows(2))
def test_gamma_round_trip(rows):
    q = Gamma.from_concentration_rate(*rows.T)
    back = _gamma_back(q)
    # mu loses log(mean) * eps absolutely; the inverse divides by log a - digamma(a), about 1 / (2a)
    tol = 1e-14 * (1 + np.abs(np.log(q.mean))) * (20 + 4 * q.concentration)
    assert np.all(np.abs(back.concentration / q.concentration - 1) < tol)
    assert np.all(np.abs(back.mean / q.mean - 1) < 1e-12)


@pytest.mark.usefixtures("only64")
@QUICK
@given(_rows(2), _rows(3))
def test_beta_and_dirichlet_round_trip(pairs, triples):
    q = Beta.from_ab(*pairs.T)
    back = _beta_back(q)
    total = pairs.sum(1)
    worst = np.maximum(np.abs(back.a / q.a - 1), np.abs(back.b / q.b - 1))
    assert np.all(worst < 1e-13 * (10 + total) * (1 + 1 / pairs.min(1)))
    q = Dirichlet.from_concentration(triples)
    back = _dirichlet_back(q)
    worst = np.max(np.abs(back.concentration / q.concentration - 1), axis=1)
    assert np.all(worst < 1e-13 * (10 + triples.sum(1)) * (1 + 1 / triples.min(1)))


def _divergences(q, p):
    return q.kl(p), q.kl(q), 1 + jnp.abs(q.log_partition()) + jnp.abs(p.log_partition())


_jit_divergences = jax.jit(_divergences, compiler_options=FAST_COMPILE)


@pytest.mark.usefixtures("only64")
@QUICK
@given(_rows(2), _rows(2))
def test_divergence_is_non_negative_and_zero_at_itself(one_side, other_side):
    for make in (Gamma.from_concentration_rate, Beta.from_ab, Gaussian.from_mean_variance):
        kl, zero, scale = _jit_divergences(make(*one_side.T), make(*other_side.T))
        assert np.all(kl >= -1e-13 * scale)
        assert np.all(np.abs(zero) <= 1e-13 * scale)


@QUICK
@given(_rows(2), _rows(2), st.floats(-2, 2))
def test_messages_form_a_vector_space(one_side, other_side, scale):
    q, p = (Gaussian.from_mean_variance(*x.T.astype(np.float32)) for x in (one_side, other_side))
    back = (q + scale * p) - scale * p
    for x, y, z in zip(back.natural, q.natural, p.natural, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6 * float(jnp.max(jnp.abs(y)) + 2 * jnp.max(jnp.abs(z))))
