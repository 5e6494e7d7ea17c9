"""Gaussian vectors seen through linear functionals: weight space, function space and dense numpy agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, Normal, StudentT, dot
from ngmp_compiler.declare.expressions import Plane
from ngmp_compiler.executors.gaussian import rows as _rows
from ngmp_compiler.executors.gaussian.base import Piece, PieceLink, Potential
from ngmp_compiler.executors.gaussian.rows import Rows
from ngmp_compiler.executors.gaussian.vectors import Term, Vectors
from ngmp_compiler.graph.index import index_map
from ngmp_compiler.linalg import factor, function_space
from ngmp_kernels.families import MvGaussian

SPACES = pytest.mark.parametrize("space", ["weight", "function"])


def _close(actual, expected, tol=1e-9):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tol, atol=tol)


def _dense(precision, linear):
    """Mean, covariance and log-integral of `exp{linear . w - w^T precision w / 2}`, by numpy."""
    covariance = np.linalg.inv(precision)
    sign, log_det = np.linalg.slogdet(precision / (2 * np.pi))
    assert sign > 0
    return covariance @ linear, covariance, 0.5 * linear @ covariance @ linear - 0.5 * log_det


# -- linear algebra -------------------------------------------------------------------------------------------------


def _functionals(n=6, d=8):
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, d))
    return a @ a.T, rng.uniform(0.1, 2.0, n), rng.normal(size=n)


NEGATIVE = {
    "none": [],
    "zero": [(0, 0.0), (1, 0.0)],
    "some": [(0, -0.02), (2, 0.0)],
    "small": [(i, -0.01) for i in range(6)],
}


def _by_inverse(k, lam, e):
    k = 0.5 * (k + k.T)
    c = jnp.linalg.inv(jnp.linalg.inv(k) + jnp.diag(lam))
    return c @ e, jnp.diag(c), 0.5 * e @ c @ e - 0.5 * jnp.linalg.slogdet(jnp.eye(len(e)) + k * lam)[1]


@pytest.mark.slow
@pytest.mark.parametrize("case", NEGATIVE)
def test_function_space_and_its_derivatives(case):
    k, lam, e = _functionals()
    for i, x in NEGATIVE[case]:
        lam[i] = x
    found = function_space(k, lam, e)
    for a, b in zip(found[:3], _by_inverse(k, lam, e), strict=True):
        _close(a, b)
    assert found.jitter == 0

    def ours(k, lam, e):
        return function_space(0.5 * (k + k.T), lam, e)[:3]

    for mode in (jax.jacfwd, jax.jacrev):
        expected = jax.jacfwd(_by_inverse, (0, 1, 2))(k, lam, e)
        for a, b in zip(jax.tree.leaves(mode(ours, (0, 1, 2))(k, lam, e)), jax.tree.leaves(expected), strict=True):
            _close(a, b)
    second = jax.jacfwd(jax.jacrev(lambda *x: ours(*x)[1], 1), 0)(k, lam, e)
    _close(second, jax.jacfwd(jax.jacfwd(lambda *x: _by_inverse(*x)[1], 1), 0)(k, lam, e))


def test_function_space_keeps_its_digits_under_sharp_potentials():
    k, lam, _ = _functionals()
    lam = 1e12 * lam
    y = np.arange(6.0)
    found = function_space(k, lam, lam * y)
    # C = S^-1 (I + (S K S)^-1)^-1 S^-1 = 1/lambda - O(1/(lambda^2 K)): to twelve digits the noise alone.
    _close(found.variance * lam, np.ones(6), 1e-10)
    _close(found.mean, y, 1e-10)


def test_function_space_of_a_singular_prior_and_an_improper_posterior():
    k = np.ones((3, 3))  # three times the same functional
    found = function_space(k, np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, -1.0]))
    _close(found.variance, np.full(3, 1 / 7))
    _close(found.mean, np.zeros(3))
    assert not np.isfinite(function_space(k, np.array([1.0, -2.0, -0.5]), np.zeros(3)).log_expectation)


def test_factor_raises_the_diagonal_only_where_rounding_calls_for_it():
    chol, jitter = factor(jnp.eye(3) * 2.0)
    assert jitter == 0
    _close(chol, np.sqrt(2.0) * np.eye(3))
    singular = np.ones((3, 3)) * np.array([1e6, 1.0, 1e-6]) * np.array([1e6, 1.0, 1e-6])[:, None]
    chol, jitter = factor(singular)
    assert 0 < jitter < 1e-13
    np.testing.assert_allclose(chol @ chol.T, singular, rtol=1e-12)
    for improper in (np.diag([1e6, -1e-6]), np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]), np.zeros((2, 2))):
        chol, jitter = factor(improper)
        assert np.isnan(np.asarray(chol)).any() and jitter == 0
    many = jax.jit(jax.vmap(factor))(jnp.stack([jnp.ones((3, 3)), jnp.eye(3), -jnp.eye(3)]))
    assert many[1][0] > 0 and many[1][1] == 0 and not np.isfinite(many[0][2]).all()
    root = np.random.default_rng(0).normal(size=(4, 4))
    symmetric = jnp.asarray(root @ root.T + np.eye(4))

    def both(f):
        return jax.jacrev(lambda x: f(0.5 * (x + x.T)))(symmetric)

    _close(both(lambda x: factor(x)[0]), both(jnp.linalg.cholesky))
    # At a singular matrix the derivative is that of the raised one: large, but a number.
    assert np.isfinite(jax.grad(lambda x: jnp.sum(factor(x)[0]))(jnp.ones((3, 3)))).all()


# -- rows and vectors -----------------------------------------------------------------------------------------------

LAYOUTS = {
    "one": (np.zeros(7, int), 1),
    "runs": (np.repeat(np.arange(3), 2), 3),
    "tiles": (np.tile(np.arange(3), 2), 3),
    "irregular": (np.array([2, 0, 2, 3, 3, 2, 0]), 4),
    "uneven": (np.random.default_rng(0).permutation(np.r_[np.zeros(40, int), np.arange(1, 20), 5, 5]), 21),
    "none": (np.empty(0, int), 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_laid_out_and_put_back(layout):
    where, count = LAYOUTS[layout]
    rows = Rows(where, count)
    values = np.random.default_rng(1).normal(size=(len(where), 2))
    padded = sum(b.rows.size for b in rows.blocks)
    assert padded <= 2 * len(where) and len(rows.blocks) <= 1 + np.log2(max(len(where), 1))
    if not len(where):
        return
    taken = rows.take(jnp.asarray(values))
    _close(rows.put(taken), values)
    expected = np.zeros((count, 2))
    np.add.at(expected, where, values)
    _close(rows.scatter([x.sum(1) for x in taken]), expected)


def _term(where, count, d, op, coefficient, number=0):
    link = PieceLink(Plane(MvGaussian, (d,)), where, op, coefficient)
    width = None if op == "dot" else d
    return Term(Piece(number, None, len(where), (link,), jnp.zeros(1), width), 0, index_map(where, count))


def _priors(kind, count, d, rng):
    if kind == "full":
        root = rng.normal(size=(count, d, d))
        return root @ np.swapaxes(root, 1, 2) + np.eye(d)
    diagonal = rng.uniform(0.5, 2.0, (count, d)) if kind == "diagonal" else np.full((count, d), 0.7)
    return diagonal[..., None] * np.eye(d)


def _problem(where, count, d, kind, negative=False):
    """Vectors with a prior, fixed rows and two groups of moving rows, and every potential."""
    rng = np.random.default_rng(d)
    matrices, shifts = _priors(kind, count, d, rng), rng.normal(size=(count, d))
    prior = Potential(jnp.asarray(matrices), jnp.asarray(shifts))
    groups = []
    for rows in (where[::-1], where, where[: len(where) // 2]):
        lam = rng.uniform(0.2, 2.0, len(rows))
        if negative:
            lam[::2] *= -0.01
        groups.append((rows, rng.normal(size=(len(rows), d)) / np.sqrt(d), lam, rng.normal(size=len(rows))))
    groups[0] = (*groups[0][:2], np.abs(groups[0][2]), groups[0][3])
    fixed = [_term(np.arange(count), count, d, "scale", None)]
    rows = [_term(at, count, d, "dot", jnp.asarray(phi)) for at, phi, _, _ in groups]
    potentials = [Potential(jnp.asarray(lam), jnp.asarray(h)) for _, _, lam, h in groups]
    return (fixed + rows[:1], rows[1:]), ([prior, potentials[0]], potentials[1:]), groups


def _solve(terms, potentials, count, d, space):
    vectors = Vectors(d, count, *terms, True)
    vectors.in_function_space = space == "function"  # the other one than the cost rule's, half of the time
    prepared = vectors.prepare(potentials[0], potentials[1][0].precision.dtype)
    solved = vectors.solve(prepared, potentials[1])
    return solved, [*solved.moments, vectors.fixed_moments(solved, terms[0][1])]


def _check_against_dense(where, count, d, kind, space, negative=False, tol=1e-9):
    terms, potentials, groups = _problem(where, count, d, kind, negative)
    solved, moments = _solve(terms, potentials, count, d, space)
    assert solved.proper and solved.jitter == 0
    precision, linear = (np.array(x, float) for x in potentials[0][0][:2])
    for at, phi, lam, h in groups:
        np.add.at(precision, at, lam[:, None, None] * phi[:, :, None] * phi[:, None])
        np.add.at(linear, at, h[:, None] * phi)
    exact = [_dense(p, h) for p, h in zip(precision, linear, strict=True)]
    _close(solved.log_volume, sum(e[2] - 0.5 * h @ e[0] for e, h in zip(exact, linear, strict=True)), tol)
    _close(solved.mean, np.stack([e[0] for e in exact]), tol)
    _close(solved.marginal.precision, precision, tol)
    _close(solved.marginal.mean, np.stack([e[0] for e in exact]), tol)
    for (at, phi, _, _), (m, v) in zip([*groups[1:], groups[0]], moments, strict=True):
        _close(m, [f @ exact[i][0] for f, i in zip(phi, at, strict=True)], tol)
        _close(v, [f @ exact[i][1] @ f for f, i in zip(phi, at, strict=True)], tol)


@SPACES
@pytest.mark.parametrize(
    "n, d, kind", [(4, 9, "full"), (9, 4, "diagonal"), (9, 4, "full"), (4, 9, "scalar"), (6, 1, "scalar")]
)
def test_vectors_against_dense_algebra(n, d, kind, space):
    _check_against_dense(np.zeros(n, int), 1, d, kind, space)


@SPACES
def test_negative_precisions_are_exact(space):
    _check_against_dense(np.zeros(6, int), 1, 5, "full", space, negative=True)
    _check_against_dense(LAYOUTS["irregular"][0], 4, 3, "diagonal", space, negative=True)


@pytest.mark.slow
@SPACES
@pytest.mark.parametrize("layout", ["runs", "tiles", "irregular", "uneven"])
def test_plates_of_vectors_in_any_order(layout, space):
    _check_against_dense(*LAYOUTS[layout], 3, "full", space)


def test_many_rows_go_in_slices(monkeypatch):
    monkeypatch.setattr(_rows, "SLICE", 12)
    for n in (8, 11):  # whole slices of three rows, and a rest
        _check_against_dense(np.zeros(n, int), 1, 4, "full", "weight")


@SPACES
@pytest.mark.core32
def test_vectors_in_either_precision(x64, space):
    _check_against_dense(np.zeros(8, int), 1, 12, "full", space, tol=1e-9 if x64 else 1e-3)


@SPACES
def test_an_improper_posterior_is_not_repaired(space):
    terms, potentials, _ = _problem(np.zeros(5, int), 1, 7, "scalar")
    bad = [p._replace(precision=p.precision.at[0].set(-1e3)) for p in potentials[1]]
    solved, _ = _solve(terms, (potentials[0], bad), 1, 7, space)
    assert not solved.proper


def _largest(jaxpr) -> int:
    """The most elements of any array in a jaxpr, inner ones included."""
    sizes = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars if hasattr(v.aval, "size")]
    inner = [_largest(j.jaxpr) for eqn in jaxpr.eqns for j in jax.tree.leaves(
        list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")) if hasattr(j, "jaxpr")]  # fmt: skip
    return max([0, *sizes, *inner])


@SPACES
def test_no_array_grows_with_rows_times_dimension_squared(space):
    rng = np.random.default_rng(0)
    d, count, n = 8, 3, 300
    where = rng.integers(0, count, n)
    terms, potentials, _ = _problem(where, count, d, "scalar")
    jaxpr = jax.make_jaxpr(lambda p: _solve(terms, p, count, d, space)[1])(potentials)
    allowed = 2 * 1.5 * n * d if space == "weight" else count * (1.5 * n) ** 2
    assert _largest(jaxpr.jaxpr) <= allowed


# -- programs -------------------------------------------------------------------------------------------------------


def classify(phi, y, mask=None, scale=1.0):
    w = ngmp.sample("w", MvNormal(0.3 * jnp.ones(phi.shape[-1], phi.dtype), covariance=scale))
    ngmp.sample("y", Bernoulli(logits=dot(phi, w)), obs=y, mask=mask)


def robust(phi, psi, y, z):
    """Two groups of rows that move and one that does not, on one vector."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(phi.shape[-1]), covariance=2.0 * np.eye(phi.shape[-1]) + 0.5))
    ngmp.sample("y", StudentT(4.0, dot(phi, w), scale=0.5), obs=y)
    ngmp.sample("z", Bernoulli(logits=dot(psi, w)), obs=z)
    ngmp.sample("u", Normal(dot(psi, w), variance=0.5), obs=0.1 * z)


def _force(monkeypatch, space):
    costs = (1.0, 0.0) if space == "function" else (0.0, 1.0)
    monkeypatch.setattr(Vectors, "_costs", lambda self, sweeps: costs)


def _features(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), (rng.random(n) < 0.5).astype(float)


def _posterior_of_leaves(post, phi, precision, linear, key="y.z"):
    """The posterior that the leaves of a run imply, by numpy."""
    leaf = post.state.leaves[key]
    lam, h = -2 * np.asarray(leaf.eta2), np.asarray(leaf.eta1)
    return _dense(precision + phi.T @ (lam[:, None] * phi), linear + phi.T @ h)


@pytest.mark.parametrize("n, d", [(5, 12), (12, 3)])
def test_the_choice_is_made_printed_and_exact(n, d):
    phi, y = _features(n, d)
    program = ngmp.compile(classify)
    text = program.lower(phi=phi, y=y).describe()
    space, size = ("function", n) if n < d else ("weight", d)
    assert f"Cholesky in {space} space ({size} x {size})" in text and "operations a sweep, against" in text
    post = program(phi=phi, y=y, scale=2.0)
    assert post.converged and post.jitter == 0 and post.reason == "converged"
    (key,) = post.state.leaves
    mean, covariance, _ = _posterior_of_leaves(post, phi, np.eye(d) / 2, np.full(d, 0.15), key)
    _close(post["w"].mean, mean)
    _close(post["w"].covariance, covariance)


@pytest.mark.slow
def test_both_spaces_find_the_same_fixed_point_and_predictions(monkeypatch):
    (phi, y), (psi, z) = _features(6, 9), _features(5, 9, 1)
    runs = []
    for space in ("weight", "function"):
        _force(monkeypatch, space)
        program = ngmp.compile(robust)
        post = program(phi=phi, psi=psi, y=y, z=z)
        assert post.converged and f"Cholesky in {space} space" in program.lower(phi=phi, psi=psi, y=y, z=z).describe()
        ahead = [program.predict(post, site, phi=phi, psi=psi, y=y, z=z) for site in ("y", "z", "u")]
        kept = [(p.mean, p.variance, p.log_density) for p in ahead]
        runs.append((post.free_energy, post["w"].mean, post["w"].covariance, kept))
    jax.tree.map(lambda a, b: _close(a, b, 1e-7), *runs)


def test_masked_rows_say_nothing(monkeypatch):
    phi, y = _features(6, 9)
    mask = np.array([True, False, True, True, False, True])
    _force(monkeypatch, "function")
    program = ngmp.compile(classify)
    masked, fewer = program(phi=phi, y=y, mask=mask), program(phi=phi[mask], y=y[mask])
    _close(masked["w"].mean, fewer["w"].mean, 1e-8)
    _close(masked.free_energy, fewer.free_energy, 1e-8)


def test_without_a_prior_of_its_own_a_vector_stays_in_weight_space():
    terms, _, _ = _problem(np.zeros(3, int), 1, 20, "scalar")
    assert Vectors(20, 1, *terms, True).in_function_space
    alone = Vectors(20, 1, terms[0][1:], terms[1], False)
    assert not alone.in_function_space and "function space needs a fixed prior" in alone.why


@pytest.mark.slow
def test_vmap_and_derivatives_in_function_space(monkeypatch):
    phi, y = _features(5, 8)
    _force(monkeypatch, "function")
    program = ngmp.compile(classify, tol=1e-12)
    masks = np.random.default_rng(2).random((3, 5)) < 0.7
    many = jax.vmap(lambda m: program(phi=phi, y=y, mask=m).free_energy)(masks)
    for mask, energy in zip(masks, many, strict=True):
        _close(energy, program(phi=phi, y=y, mask=mask).free_energy)

    def loss(scale, phi):
        post = program(phi=phi, y=y, mask=masks[0], scale=scale)
        return post.free_energy + jnp.sum(post["w"].mean ** 2)

    by_scale, by_phi = jax.jit(jax.grad(loss, (0, 1)))(1.5, phi)
    step = 1e-5
    _close(by_scale, (loss(1.5 + step, phi) - loss(1.5 - step, phi)) / (2 * step), 1e-6)
    bump = np.zeros_like(phi)
    row = int(np.flatnonzero(masks[0])[0])
    bump[row, 2] = step
    _close(by_phi[row, 2], (loss(1.5, phi + bump) - loss(1.5, phi - bump)) / (2 * step), 1e-6)


def test_no_data_is_the_prior():
    post = ngmp.compile(classify)(phi=np.zeros((0, 4)), y=np.zeros(0), scale=2.0)
    assert post.converged
    _close(post["w"].mean, np.full(4, 0.3))
    _close(post["w"].covariance, 2 * np.eye(4))


@SPACES
def test_duplicate_and_constant_features(monkeypatch, space):
    phi, y = _features(5, 6)
    phi[:, 1], phi[:, 2] = phi[:, 0], 1.0
    phi[3] = phi[4]
    _force(monkeypatch, space)
    post = ngmp.compile(classify)(phi=phi, y=y)
    assert post.converged and post.jitter == 0
    mean, _, _ = _posterior_of_leaves(post, phi, np.eye(6), np.full(6, 0.3), *post.state.leaves)
    _close(post["w"].mean, mean)


def test_a_repaired_precision_reports_itself():
    def line(phi, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(2), precision=1e-17))
        ngmp.sample("y", Normal(dot(phi, w), variance=1.0), obs=y)

    # The same feature twice: only the prior tells the weights apart. The second pivot of the Gram matrix is 16 - 16.
    x = np.ones(16)
    phi = np.stack([x, x], 1)
    program = ngmp.compile(line)
    post = program(phi=phi, y=x)
    assert post.converged and 0 < post.jitter < 1e-12
    assert "singular to rounding" in post.reason and "duplicate features" in post.reason
    _close(phi @ np.asarray(post["w"].mean), x, 1e-3)
    assert np.isfinite(post.free_energy)
    assert program(phi=np.stack([x, np.arange(16.0)], 1), y=x).jitter == 0


def test_features_of_the_wrong_width_and_not_finite():
    def model(phi, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(3), covariance=1.0))
        ngmp.sample("y", Bernoulli(logits=dot(phi, w)), obs=y)

    phi, y = _features(4, 5)
    with pytest.raises(ngmp.ModelError, match="features of shape .4, 5. meet 'w', a vector of length 3"):
        ngmp.compile(model)(phi=phi, y=y)
    phi = phi[:, :3]
    phi[2, 1] = np.nan
    with pytest.raises(ngmp.DataError, match="'y'.*NaN or infinite"):
        ngmp.compile(model)(phi=phi, y=y)


def test_the_program_does_not_grow_with_the_rows():
    def equations(n):
        phi, y = _features(n, 40)
        return str(jax.make_jaxpr(lambda: ngmp.compile(classify)(phi=phi, y=y).free_energy)()).count(" = ")

    assert equations(10) == equations(20)
