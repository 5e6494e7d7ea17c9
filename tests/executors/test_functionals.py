"""Gaussian vectors seen through linear functionals: weight space, function space and dense numpy agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, Normal, StudentT, dot
from ngmp_compiler.executors.gaussian import rows as _rows
from ngmp_compiler.executors.gaussian.base import Potential
from ngmp_compiler.executors.gaussian.pieces import Piece, PieceLink
from ngmp_compiler.executors.gaussian.rows import Rows
from ngmp_compiler.executors.gaussian.vectors import Term, Vectors
from ngmp_compiler.graph.index import index_map
from ngmp_compiler.graph.planes import Plane
from ngmp_kernels.families import MvGaussian


def close(actual, expected, tol=1e-9):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tol, atol=tol)

SPACES = pytest.mark.parametrize("space", ["weight", "function"])


def dense_gaussian(precision, linear):
    """Mean, covariance and log-integral of `exp{linear . w - w^T precision w / 2}`, by numpy."""
    covariance = np.linalg.inv(precision)
    sign, log_det = np.linalg.slogdet(precision / (2 * np.pi))
    assert sign > 0
    return covariance @ linear, covariance, 0.5 * linear @ covariance @ linear - 0.5 * log_det


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
    close(rows.put(taken), values)
    expected = np.zeros((count, 2))
    np.add.at(expected, where, values)
    close(rows.scatter([x.sum(1) for x in taken]), expected)


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
    exact = [dense_gaussian(p, h) for p, h in zip(precision, linear, strict=True)]
    close(solved.log_volume, sum(e[2] - 0.5 * h @ e[0] for e, h in zip(exact, linear, strict=True)), tol)
    close(solved.mean, np.stack([e[0] for e in exact]), tol)
    close(solved.marginal.precision, precision, tol)
    close(solved.marginal.mean, np.stack([e[0] for e in exact]), tol)
    for (at, phi, _, _), (m, v) in zip([*groups[1:], groups[0]], moments, strict=True):
        close(m, [f @ exact[i][0] for f, i in zip(phi, at, strict=True)], tol)
        close(v, [f @ exact[i][1] @ f for f, i in zip(phi, at, strict=True)], tol)


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
    return dense_gaussian(precision + phi.T @ (lam[:, None] * phi), linear + phi.T @ h)


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
    close(post["w"].mean, mean)
    close(post["w"].covariance, covariance)


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
    jax.tree.map(lambda a, b: close(a, b, 1e-7), *runs)


def test_masked_rows_say_nothing(monkeypatch):
    phi, y = _features(6, 9)
    mask = np.array([True, False, True, True, False, True])
    _force(monkeypatch, "function")
    program = ngmp.compile(classify)
    masked, fewer = program(phi=phi, y=y, mask=mask), program(phi=phi[mask], y=y[mask])
    close(masked["w"].mean, fewer["w"].mean, 1e-8)
    close(masked.free_energy, fewer.free_energy, 1e-8)


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
        close(energy, program(phi=phi, y=y, mask=mask).free_energy)

    def loss(scale, phi):
        post = program(phi=phi, y=y, mask=masks[0], scale=scale)
        return post.free_energy + jnp.sum(post["w"].mean ** 2)

    by_scale, by_phi = jax.jit(jax.grad(loss, (0, 1)))(1.5, phi)
    step = 1e-5
    close(by_scale, (loss(1.5 + step, phi) - loss(1.5 - step, phi)) / (2 * step), 1e-6)
    bump = np.zeros_like(phi)
    row = int(np.flatnonzero(masks[0])[0])
    bump[row, 2] = step
    close(by_phi[row, 2], (loss(1.5, phi + bump) - loss(1.5, phi - bump)) / (2 * step), 1e-6)


def test_no_data_is_the_prior():
    post = ngmp.compile(classify)(phi=np.zeros((0, 4)), y=np.zeros(0), scale=2.0)
    assert post.converged
    close(post["w"].mean, np.full(4, 0.3))
    close(post["w"].covariance, 2 * np.eye(4))


@SPACES
def test_duplicate_and_constant_features(monkeypatch, space):
    phi, y = _features(5, 6)
    phi[:, 1], phi[:, 2] = phi[:, 0], 1.0
    phi[3] = phi[4]
    _force(monkeypatch, space)
    post = ngmp.compile(classify)(phi=phi, y=y)
    assert post.converged and post.jitter == 0
    mean, _, _ = _posterior_of_leaves(post, phi, np.eye(6), np.full(6, 0.3), *post.state.leaves)
    close(post["w"].mean, mean)


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
    close(phi @ np.asarray(post["w"].mean), x, 1e-3)
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
