"""Sums of many scalars: a few operations on arrays, however long they are."""

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp


def total(y, n, weights=None):
    with ngmp.plate("items", n):
        z = ngmp.sample("z", ngmp.Normal(0.5, variance=2.0))
    s = z.sum() if weights is None else sum(weights[i] * z[i] for i in range(n))
    ngmp.sample("y", ngmp.Normal(s, variance=3.0), obs=y)


def equations(jaxpr):
    inner = [p for e in jaxpr.eqns for p in jax.tree.leaves(list(e.params.values())) if hasattr(p, "eqns")]
    closed = [p.jaxpr for e in jaxpr.eqns for p in jax.tree.leaves(list(e.params.values())) if hasattr(p, "jaxpr")]
    return len(jaxpr.eqns) + sum(equations(j) for j in inner + closed)


def test_the_program_of_a_sum_does_not_grow_with_its_terms():
    sizes = []
    for n in (20, 60):
        program = ngmp.compile(total)
        sizes.append(equations(jax.make_jaxpr(lambda y, p=program, n=n: p(y=y, n=n).free_energy)(1.0).jaxpr))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_long_sum_against_its_closed_form(weighted):
    n, y = 300, 7.0
    a = np.linspace(-1.0, 2.0, n) if weighted else np.ones(n)
    post = ngmp.compile(total)(y=y, n=n, weights=a if weighted else None)
    spread = 3.0 + 2.0 * a @ a
    error = y - 0.5 * a.sum()
    np.testing.assert_allclose(post["z"].mean, 0.5 + 2.0 * a * error / spread, rtol=1e-9)
    np.testing.assert_allclose(post["z"].variance, 2.0 - 4.0 * a**2 / spread, rtol=1e-9)
    np.testing.assert_allclose(post.free_energy, 0.5 * (np.log(2 * np.pi * spread) + error**2 / spread), rtol=1e-9)
