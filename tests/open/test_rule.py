"""A message rule from outside: one file, nothing of the package is edited."""

import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models

Y = np.array([2.0, 0.0, 3.0, 5.0, 1.0, 4.0])


class Clipped(ngmp.AbstractRule):
    """Another rule whose natural parameters are kept within [-bound, bound]."""

    bound: float
    inner: Any = ngmp.NGMP()

    def supports(self, factor, j):
        return "vectors are not clipped" if "Mv" in factor.families[j].__name__ else self.inner.supports(factor, j)

    def target(self, factor, j, incoming):
        eta, exists = self.inner.target(factor, j, incoming)
        return jax.tree.map(lambda x: jnp.clip(x, -self.bound, self.bound), eta), exists

    def evidence(self, factor, incoming):
        return self.inner.evidence(factor, incoming)


@pytest.mark.parametrize("model, y", [(ngmp_models.poisson_chain, Y), (ngmp_models.mean_precision, Y - 2.0)])
def test_clipping_nothing_changes_nothing(model, y):
    expected, post = ngmp.compile(model)(y=y), ngmp.compile(model, method=Clipped(1e6))(y=y)
    assert post.converged
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=1e-7)
    for name, q in expected.marginals.items():
        np.testing.assert_allclose(post[name].mean, q.mean, rtol=1e-6, atol=1e-7)


def test_its_targets_are_what_the_leaves_come_to():
    post = ngmp.compile(ngmp_models.poisson_chain, method=Clipped(0.5))(y=Y)
    assert post.converged
    (leaf,) = post.state.leaves.values()
    assert all(np.max(np.abs(x)) <= 0.5 + 1e-7 for x in jax.tree.leaves(leaf))
    assert any(np.max(np.abs(x)) > 0.4999 for x in jax.tree.leaves(leaf))


def test_describe_and_results_name_it():
    program = ngmp.compile(ngmp_models.poisson_chain, rules={"y": Clipped(9.0)})
    text = program.lower(y=Y).describe()
    assert "Clipped(" in text and "(Clipped)" in text
    assert any("(Clipped)" in line for line in program(y=Y).approximate)
    assert "<svg" in program.lower(y=Y).draw()


def test_it_is_pickled():
    program = pickle.loads(pickle.dumps(ngmp.compile(ngmp_models.poisson_chain, method=Clipped(3.0))))
    assert eqx.tree_equal(program._options.method, Clipped(3.0))


def test_what_it_does_not_support_is_refused_in_its_words():
    def model(y):
        w = ngmp.sample("w", ngmp.MvNormal(jnp.zeros(2), covariance=1.0))
        p = ngmp.sample("p", ngmp.Wishart(5.0, scale=jnp.eye(2)))
        ngmp.sample("y", ngmp.MvNormal(w, precision=p), obs=y)

    with pytest.raises(ngmp.ModelError) as error:
        ngmp.compile(model, method=Clipped(1.0)).lower(y=np.ones((3, 2)))
    assert "Clipped on the non-conjugate" in str(error.value)
    assert "vectors are not clipped" in str(error.value) and "NGMP()" in str(error.value)


class Half:
    """No Module, and no evidence."""

    def supports(self, factor, j):
        return None

    def target(self, factor, j, incoming):
        return None


class Unfinished(ngmp.AbstractRule):
    def supports(self, factor, j):
        return None


class Whole(Half):
    def evidence(self, factor, incoming):
        return 0.0


@pytest.mark.parametrize("given, why", [
    (Half(), "it lacks evidence"), (Unfinished, "it lacks evidence, target"), (Whole(), "no instance of ngmp.Abstract"),
    (ngmp.NGMP, "no instance"),
])  # fmt: skip
def test_what_lacks_a_method_is_refused(given, why):
    for options in ({"method": given}, {"rules": {"y": given}}):
        with pytest.raises(ngmp.ModelError, match=why):
            ngmp.compile(ngmp_models.poisson_chain, **options)
