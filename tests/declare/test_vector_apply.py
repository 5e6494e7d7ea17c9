"""Stacked scalars against dense algebra, and deterministic nodes of vectors against integrals on grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal
from ngmp_kernels import Quadrature, nodes
from ngmp_kernels.factors.vector_node import VectorNode
from ngmp_kernels.families import Gaussian, MvGaussian

NOISE = np.asarray([[0.5, 0.2], [0.2, 0.4]])


def polar(x):
    """Smooth, bent in both directions, and not one to one."""
    return jnp.stack([x[0] + 0.3 * jnp.sin(x[1]), x[1] + 0.4 * x[0] * x[1]])


def polar_numpy(x):
    return np.stack([x[..., 0] + 0.3 * np.sin(x[..., 1]), x[..., 1] + 0.4 * x[..., 0] * x[..., 1]], -1)


def grid(mean, covariance, reach=7.0, n=401):
    """Points (n^2, 2) and weights of a Gaussian."""
    u = np.linspace(-reach, reach, n)
    u = np.stack(np.meshgrid(u, u, indexing="ij"), -1).reshape(-1, 2)
    weight = np.exp(-0.5 * np.sum(u**2, 1))
    return mean + u @ np.linalg.cholesky(covariance).T, weight / weight.sum()


def log_normal(y, mean, covariance):
    r = y - mean
    quadratic = np.einsum("...i,ij,...j->...", r, np.linalg.inv(covariance), r)
    return -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1])


# -- stacking ---------------------------------------------------------------------------------------------------------


def test_stacked_scalars_are_linear_functionals():
    y, rows = np.asarray([[0.3, -0.2], [1.1, 0.4]]), np.asarray([[1.0, 0.5, -1.0], [0.2, 0.0, 2.0]])

    def model(y):
        a, b = ngmp.sample("a", Normal(0.5, variance=2.0)), ngmp.sample("b", Normal(-0.3, variance=1.5))
        v = ngmp.sample("v", MvNormal(jnp.zeros(2), covariance=1.0))
        both = ngmp.stack([a, 2.0 * b + v[0] + 0.1])
        ngmp.sample("y", MvNormal(both, covariance=NOISE), obs=y)
        ngmp.sample("z", MvNormal(rows @ ngmp.stack([a, b, 0.7]), covariance=0.6), obs=y[0])
        ngmp.sample("s", Normal(ngmp.dot(np.asarray([1.0, -1.0]), both) + both[1], variance=0.9), obs=0.4)

    post = ngmp.compile(model)(y=jnp.asarray(y))
    # The same by hand, on x = (a, b, v0, v1).
    prior = np.diag([2.0, 1.5, 1.0, 1.0])
    mean = np.asarray([0.5, -0.3, 0.0, 0.0])
    both = np.asarray([[1.0, 0, 0, 0], [0, 2.0, 1.0, 0]])
    select = np.asarray([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    design = np.concatenate([both, both, rows[:, :2] @ select, [both[0] - both[1] + both[1]]])
    offset = np.concatenate([[0, 0.1], [0, 0.1], rows[:, 2] * 0.7, [-0.1 + 0.1]])
    noise = np.zeros((7, 7))
    noise[:2, :2] = noise[2:4, 2:4] = NOISE
    noise[4:6, 4:6], noise[6, 6] = 0.6 * np.eye(2), 0.9
    data = np.concatenate([y[0], y[1], y[0], [0.4]])
    total = design @ prior @ design.T + noise
    gain = prior @ design.T @ np.linalg.inv(total)
    gap = data - offset - design @ mean
    found, covariance = mean + gain @ gap, prior - gain @ design @ prior
    np.testing.assert_allclose(post["a"].mean, found[0], atol=1e-12)
    np.testing.assert_allclose(post["b"].variance, covariance[1, 1], atol=1e-12)
    np.testing.assert_allclose(post["v"].mean, found[2:], atol=1e-12)
    np.testing.assert_allclose(post["v"].covariance, covariance[2:, 2:], atol=1e-12)
    energy = 0.5 * gap @ np.linalg.solve(total, gap) + 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-12)


def test_a_plate_of_stacks_is_one_group():
    """A plate, and a loop over it: the same plan and the same answer, also where one scalar stands twice."""
    y = np.random.default_rng(0).normal(size=(20, 2))

    def plate(y):
        x = ngmp.sample("x", Normal(jnp.zeros(len(y)), variance=1.0))
        ngmp.sample("y", MvNormal(ngmp.stack([x, 0.5 * x]), covariance=NOISE), obs=y)

    def loop(y):
        for k in range(len(y)):
            x = ngmp.sample("x", Normal(0.0, variance=1.0))
            ngmp.sample("y", MvNormal(ngmp.stack([x, 0.5 * x]), covariance=NOISE), obs=y[k])

    programs = [ngmp.compile(m) for m in (plate, loop)]
    one, other = (p(y=jnp.asarray(y)) for p in programs)
    a = np.asarray([1.0, 0.5])
    precision = 1 + a @ np.linalg.solve(NOISE, a)
    for post in (one, other):
        np.testing.assert_allclose(post["x"].mean, y @ np.linalg.solve(NOISE, a) / precision, atol=1e-12)
        np.testing.assert_allclose(post["x"].variance, 1 / precision, rtol=1e-12)
    (executor,) = programs[1].lower(y=jnp.asarray(y)).plan.gaussian
    assert (executor.name, executor.layout.lanes) == ("dense", 20)


def test_constants_stack_to_an_array():
    np.testing.assert_array_equal(ngmp.stack([1.0, jnp.asarray([2.0, 3.0])]), [[1.0, 2.0], [1.0, 3.0]])


# -- nodes of vectors -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_affine_function_of_vectors_is_exact():
    a = np.asarray([[1.0, 0.3], [-0.5, 2.0]])

    def applied(y):
        x = ngmp.sample("x", MvNormal(jnp.asarray([0.5, -1.0]), covariance=np.asarray([[1.0, 0.3], [0.3, 2.0]])))
        h = ngmp.apply(lambda x, c: a @ x + c, x, 0.2, name="h")
        ngmp.sample("y", MvNormal(h, covariance=NOISE), obs=y)

    def affine(y):
        x = ngmp.sample("x", MvNormal(jnp.asarray([0.5, -1.0]), covariance=np.asarray([[1.0, 0.3], [0.3, 2.0]])))
        ngmp.sample("y", MvNormal(a @ x + 0.2, covariance=NOISE), obs=y)

    y = jnp.asarray([[1.0, 3.0], [0.2, -0.4]])
    found, exact = ngmp.compile(applied, tol=1e-11)(y=y), ngmp.compile(affine)(y=y)
    assert found.converged
    np.testing.assert_allclose(found["x"].mean, exact["x"].mean, rtol=1e-8)
    np.testing.assert_allclose(found["x"].covariance, exact["x"].covariance, rtol=1e-8)
    np.testing.assert_allclose(found.free_energy, exact.free_energy, rtol=1e-8)


def test_a_vector_node_against_a_grid():
    y = np.asarray([0.8, 0.3])

    def model(y):
        x = [ngmp.sample(n, Normal(m, variance=0.3)) for n, m in (("a", 0.5), ("b", -0.2))]
        h = ngmp.apply(polar, ngmp.stack(x), name="h")
        ngmp.sample("y", MvNormal(h, covariance=NOISE), obs=y)

    post = ngmp.compile(model)(y=jnp.asarray(y))
    assert post.converged
    x, weight = grid(np.asarray([0.5, -0.2]), 0.3 * np.eye(2))
    h = polar_numpy(x)
    p = weight * np.exp(log_normal(y, h, NOISE))
    evidence, p = p.sum(), p / p.sum()
    mean = p @ x
    # A Gaussian stands for both x and h: a few per cent of their width.
    np.testing.assert_allclose([post["a"].mean, post["b"].mean], mean, atol=0.02)
    np.testing.assert_allclose([post["a"].variance, post["b"].variance], p @ (x - mean) ** 2, rtol=0.04)
    np.testing.assert_allclose(post["h"].mean, p @ h, atol=0.02)
    np.testing.assert_allclose(post.free_energy, -np.log(evidence), atol=0.04)


def test_a_number_of_a_vector_in_a_plate():
    """Without data a node has the moments of its function; a plate of them is one group."""
    means = np.asarray([[0.4, 0.0], [-0.5, 0.7], [1.0, 1.0]])

    def model():
        x = ngmp.sample("x", MvNormal(jnp.asarray(means), covariance=0.5))
        ngmp.apply(lambda x, c: jnp.sin(x[0]) * x[1] + c, x, jnp.asarray([0.0, 1.0, 2.0]), name="h")

    program = ngmp.compile(model)
    post = program()
    for k, m in enumerate(means):
        x, w = grid(m, 0.5 * np.eye(2))
        h = np.sin(x[:, 0]) * x[:, 1] + k
        np.testing.assert_allclose(post["h"].mean[k], w @ h, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(post["h"].variance[k], w @ (h - w @ h) ** 2, rtol=1e-8)
    assert program.lower().describe().split("conjugate core")[0].count("VectorNode") == 1


# -- the kernel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, None])
def test_messages_and_evidence_against_a_grid(width):
    rng = np.random.default_rng(3)
    mean, root = rng.normal(size=2), 0.4 * rng.normal(size=(2, 2))
    covariance = root @ root.T + 0.1 * np.eye(2)
    x = MvGaussian.from_mean_covariance(mean[None], covariance[None])
    q = MvGaussian.from_mean_covariance(mean[None] + 0.1, 0.5 * covariance[None])
    if width is None:
        node = VectorNode((Gaussian, MvGaussian), lambda x: polar(x)[0] * x[1], None, ())
        out, centre, spread = Gaussian.from_mean_variance(jnp.asarray([0.3]), jnp.asarray([0.2])), [0.3], [[0.2]]
    else:
        node = VectorNode((MvGaussian, MvGaussian), polar, 2, ())
        centre, spread = [0.3, -0.1], 0.5 * NOISE
        out = MvGaussian.from_mean_covariance(jnp.asarray([centre]), jnp.asarray(spread)[None])

    def value(points):
        h = polar_numpy(points)
        return h if width else (h[:, 0] * points[:, 1])[:, None]

    points, w = grid(mean, covariance)
    h = value(points)
    forward = node.project(0, out, (out, x), Quadrature())
    moments = w @ h, np.einsum("n,ni,nj->ij", w, h - w @ h, h - w @ h)
    got = (forward.mean[0], forward.covariance[0]) if width else (forward.mean, forward.variance[:, None])
    np.testing.assert_allclose(got[0], moments[0], rtol=1e-7)
    np.testing.assert_allclose(got[1], moments[1], rtol=1e-7)
    message = log_normal(np.asarray(centre), h, np.asarray(spread))
    evidence = np.log(w @ np.exp(message))
    np.testing.assert_allclose(node.log_evidence((out, x), Quadrature()), evidence, rtol=1e-3)
    # Toward x: the weighted regression of the log-message on 1, z and z z^T.
    points, w = grid(np.asarray(q.mean[0]), np.asarray(q.covariance[0]))
    message = log_normal(np.asarray(centre), value(points), np.asarray(spread))
    basis = [np.ones(len(points)), *points.T, points[:, 0] ** 2, points[:, 0] * points[:, 1], points[:, 1] ** 2]
    basis = np.stack(basis, 1) * np.sqrt(w)[:, None]
    slopes = np.linalg.lstsq(basis, np.sqrt(w) * message, rcond=None)[0]
    back = node.project(1, q, (out, x), Quadrature())
    np.testing.assert_allclose(back.eta1[0], slopes[1:3], rtol=1e-5, atol=1e-6)
    eta2 = [[slopes[3], 0.5 * slopes[4]], [0.5 * slopes[4], slopes[5]]]
    np.testing.assert_allclose(back.eta2[0], eta2, rtol=1e-5, atol=1e-6)
    expected = node.expected_log_message(1, q, (out, x), Quadrature())
    np.testing.assert_allclose(expected, w @ message, rtol=1e-7)


@pytest.mark.parametrize("d", [1, 2, 4, 6])
def test_nodes_of_vectors_are_exact_to_degree_five(d):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d))
    q = MvGaussian.from_mean_covariance(jnp.asarray(rng.normal(size=(2, d))), jnp.asarray(root @ root.T + np.eye(d)))
    z, log_weights = nodes(Quadrature(), q)
    weights = np.exp(log_weights)
    np.testing.assert_allclose(weights.sum(0), 1.0, rtol=1e-12)
    c = rng.normal(size=d)
    s = np.einsum("qbd,d->qb", z, c)
    m, v = q.mean @ c, np.einsum("i,bij,j->b", c, q.covariance, c)
    np.testing.assert_allclose(np.sum(weights * s**4, 0), m**4 + 6 * m**2 * v + 3 * v**2, rtol=1e-10)
    np.testing.assert_allclose(np.sum(weights * s**5, 0), m**5 + 10 * m**3 * v + 15 * m * v**2, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x, v: ngmp.apply(lambda x: x[7] + jnp.ones((2, 2)), v, name="h"), "must return a scalar or a vector"),
        (lambda x, v: ngmp.apply(lambda x, c: x[0], v, name="h"), "cannot be evaluated on a vector of 3 and 0"),
        (lambda x, v: ngmp.apply(jnp.sum, ngmp.sample("u", MvNormal(jnp.zeros(9), covariance=1.0))), "9 entries"),
    ],
)
def test_bad_input(model, words):
    def declare():
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        model(x, ngmp.sample("v", MvNormal(jnp.zeros(3), covariance=1.0)))

    with pytest.raises(ngmp.ModelError, match=words):
        ngmp.compile(declare)()


@pytest.mark.slow
def test_derivatives_pass_through_a_vector_node():
    def model(y, c):
        x = ngmp.sample("x", MvNormal(jnp.zeros(2), covariance=0.4))
        h = ngmp.apply(lambda x, c: jnp.sin(x[0]) + c * x[1], x, c, name="h")
        ngmp.sample("y", Normal(h, variance=0.3), obs=y)

    program = ngmp.compile(model, tol=1e-11)
    energy = jax.jit(jax.value_and_grad(lambda c: program(y=0.7, c=c).free_energy))
    _, slope = energy(0.8)
    numeric = (energy(0.8 + 1e-5)[0] - energy(0.8 - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_single_precision_under_x64():
    """Nothing of a node is wider than its inputs; it used to end in an error of jax."""

    def model(y):
        x = ngmp.sample("x", MvNormal(np.ones(2), covariance=np.float32(0.3)))
        h = ngmp.apply(lambda x: jnp.stack([x[0] + 0.3 * jnp.sin(x[1]), jnp.tanh(x[1])]), x, name="h")
        ngmp.sample("y", MvNormal(h, covariance=np.float32(0.1)), obs=y)

    program, y = ngmp.compile(model), np.array([0.5, 0.7])
    narrow, wide = program(y=y.astype(np.float32)), program(y=y)
    assert bool(narrow.converged) and narrow["x"].mean.dtype == jnp.float32
    np.testing.assert_allclose(narrow["x"].mean, wide["x"].mean, atol=1e-3)
