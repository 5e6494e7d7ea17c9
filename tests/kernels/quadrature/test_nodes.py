"""Nodes of a quadrature: shapes, dtypes, exactness, and rules as values."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_kernels.families import Categorical, Dirichlet, Gamma, Wishart
from ngmp_kernels.quadrature.nodes import symmetric
from ngmp_kernels.quadrature.projection import (
    GaussHermite,
    LogTrapezoid,
    Quadrature,
    Unscented,
    expectation,
    nodes,
    tangent_projection,
)
from tests.kernels.quadrature.edges import EDGES, RULES, both, compiled_nodes

# -- nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.core32
@pytest.mark.parametrize("width", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_nodes_have_the_shape_and_dtype_of_the_edge(name, width, x64):
    if width == "float64" and not x64:
        pytest.skip("float64 needs its own process")
    q = jax.tree.map(lambda x: jnp.asarray(x, width), EDGES[name][0]())
    for rule in RULES.values():
        z, log_weights = jax.eval_shape(lambda q, rule=rule: nodes(rule, q), q)
        assert z.shape == log_weights.shape and z.shape[1:] == q.batch_shape
        assert log_weights.dtype == jnp.dtype(width)
        assert jnp.issubdtype(z.dtype, jnp.integer) if name == "categorical" else z.dtype == jnp.dtype(width)
        results = jax.eval_shape(lambda q, rule=rule: _project_square(q, rule), q)
        assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype(width)}


def _project_square(q, rule):
    def square(z):
        return jnp.asarray(z, q.dtype) ** 2

    return tangent_projection(q, square, rule), expectation(q, square, rule)


@pytest.mark.core32
@pytest.mark.parametrize("name", EDGES)
def test_expectations_of_statistics_are_the_mean_parameters(name, x64):
    q = EDGES[name][0]()
    z, log_weights = compiled_nodes(q, Quadrature())
    np.testing.assert_allclose(np.exp(log_weights).sum(0), 1.0, rtol=1e-12 if x64 else 1e-5)
    assert np.all(np.isfinite(z)) and np.all(np.isfinite(log_weights))
    # Beta(0.4, 0.6) has 1e-9 (float32: 1e-4) of its mass where 1 - p rounds to zero
    tol = 1e-11 if x64 else 2e-5
    tol = tol if name != "beta" else (1e-6 if x64 else 5e-2)
    w = np.asarray(jnp.exp(log_weights))
    for t, mu in zip(q.statistics(z), q.to_mean(), strict=True):
        weights = w.reshape(w.shape + (1,) * (t.ndim - w.ndim))
        np.testing.assert_allclose((weights * t).sum(0), mu, rtol=tol, atol=tol)


@pytest.mark.core32
def test_gamma_nodes_stay_positive_at_extreme_shapes():
    q = Gamma.from_concentration_rate(
        jnp.array([0.01, 0.19, 0.3, 1.0, 1e6], jnp.float32), jnp.array([1e3, 0.1, 1e-3, 1.0, 1e-2], jnp.float32)
    )
    z, log_weights = compiled_nodes(q, Quadrature())
    assert np.all(np.asarray(z) > 0) and np.all(np.isfinite(jnp.log(z))) and np.all(np.isfinite(log_weights))
    result, _ = both(q, lambda t: -jnp.log(1 + t / q.mean))
    assert all(np.all(np.isfinite(x)) for x in result.natural)
    assert np.all(np.isfinite(jax.vmap(q.log_density)(z)))  # as moment matching divides by it


def test_a_rule_leaves_other_families_to_the_default():
    gamma, gaussian, beta = (EDGES[name][0]() for name in ("gamma", "gaussian", "beta"))
    for rule, q in ((GaussHermite(8), gamma), (LogTrapezoid(9), gaussian), (Unscented(), beta)):
        ours, default = (jax.eval_shape(lambda q, r=r: nodes(r, q)[0], q) for r in (rule, Quadrature()))
        assert ours.shape == default.shape


def test_vector_families_are_refused():
    for q in (Wishart.flat((2,), (3, 3)), Dirichlet.flat((2,), (3,))):
        with pytest.raises(TypeError, match="must be conjugate"):
            tangent_projection(q, lambda z: z, Quadrature())


def test_rules_are_values():
    """Equal rules compile once; a rule travels through jit as an argument without leaves."""
    traces = []

    @jax.jit
    def run(q, rule):
        traces.append(rule)
        return expectation(q, jnp.sin, rule)

    q = EDGES["gaussian"][0]()
    run(q, GaussHermite(8)), run(q, GaussHermite(8)), run(q, GaussHermite(9))
    assert len(traces) == 2 and GaussHermite(8) == GaussHermite(8) != GaussHermite(9)
    assert not jax.tree.leaves(RULES)


def test_an_impossible_class_does_not_spoil_the_expectation():
    q = Categorical.from_probs(jnp.array([[0.0, 0.25, 0.75]]))
    table = jnp.array([-jnp.inf, 1.0, 2.0])
    np.testing.assert_allclose(both(q, lambda z: table[z])[1], [1.75], rtol=1e-6)


@pytest.mark.parametrize("d", [5, 6])
def test_symmetric_rules_are_exact_to_degree_seven(d):
    """Every monomial against the moments of independent normals; no weight is negative."""
    u, log_weights = symmetric(d)
    w = np.exp(log_weights)
    assert len(w) == {5: 135, 6: 232}[d] and np.all(np.isfinite(log_weights))
    moments = [1, 0, 1, 0, 3, 0, 15, 0]
    for powers in itertools.combinations_with_replacement(range(d + 1), 7):  # d stands for one
        counts = [powers.count(i) for i in range(d)]
        expected = np.prod([moments[c] for c in counts])
        np.testing.assert_allclose(w @ np.prod(u ** np.array(counts), 1), expected, atol=1e-9)
