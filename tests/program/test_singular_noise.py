"""States that are partly deterministic: noise of a singular covariance, against the joint Gaussian of all variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, Poisson, exp

STEPS = 9
# A trend whose slope has no noise, and a season of four: only level and season are moved.
A = np.array([[1.0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, -1, -1, -1], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]])
Q = np.diag([0.3, 0.0, 0.1, 0.0, 0.0])
SEEN = np.array([1.0, 0, 1, 0, 0])
Y = 0.3 * np.arange(STEPS) + np.resize([1.0, -1.0, 0.5, -0.5], STEPS) + np.random.default_rng(0).normal(size=STEPS)


def series(y, start, noise):
    z0 = ngmp.sample("z0", MvNormal(np.zeros((*np.shape(y)[1:], 5)), covariance=start))

    def step(z, y):
        z = ngmp.sample("z", MvNormal(A @ z, covariance=noise))
        ngmp.sample("y", Normal(z[..., 0] + z[..., 2], std=0.5), obs=y)
        return z, None

    ngmp.scan(step, z0, y)


PROGRAM = ngmp.compile(series)


def dense(start, noise, y):
    """Means (n, 5), covariance (5 n, 5 n) of all states with the first, and the log-evidence."""
    n = 5 * (len(y) + 1)
    joint = np.zeros((n, n))
    joint[:5, :5] = start
    for k in range(5, n, 5):
        joint[k : k + 5, :k] = A @ joint[k - 5 : k, :k]
        joint[:k, k : k + 5] = joint[k : k + 5, :k].T
        joint[k : k + 5, k : k + 5] = A @ joint[k - 5 : k, k - 5 : k] @ A.T + noise
    rows = np.kron(np.eye(len(y), len(y) + 1, 1), SEEN)
    seen = rows @ joint @ rows.T + 0.25 * np.eye(len(y))
    gain = joint @ rows.T @ np.linalg.inv(seen)
    evidence = -0.5 * (y @ np.linalg.solve(seen, y) + np.linalg.slogdet(2 * np.pi * seen)[1])
    return (gain @ y).reshape(-1, 5), joint - gain @ rows @ joint, evidence


def blocks(covariance):
    return np.array([covariance[k : k + 5, k : k + 5] for k in range(5, len(covariance), 5)])


@pytest.mark.parametrize("start", [4 * np.eye(5), np.diag([1.0, 0, 1, 1, 0])], ids=["regular", "singular"])
def test_trend_and_season_are_exact(start):
    post = PROGRAM(y=Y, start=start, noise=Q)
    mean, covariance, evidence = dense(start, Q, Y)
    assert post.exact and not post.approximate
    np.testing.assert_allclose(post.free_energy, -evidence, rtol=1e-10)
    np.testing.assert_allclose(post["z"].mean, mean[1:], atol=1e-8)
    np.testing.assert_allclose(post["z"].covariance, blocks(covariance), atol=1e-7)
    np.testing.assert_allclose(post.joint("z").covariance[2], covariance[15:25, 15:25], atol=1e-6)
    np.testing.assert_allclose(post["z0"].mean, mean[0], atol=1e-8)


def test_draws_stay_on_the_deterministic_part():
    post = PROGRAM(y=Y, start=4 * np.eye(5), noise=Q)
    draws = np.asarray(post.sample(jax.random.key(0), (20_000,))["z"])
    np.testing.assert_allclose(draws[:, 1:, 3], draws[:, :-1, 2], atol=1e-10)
    covariance = dense(4 * np.eye(5), Q, Y)[1]
    found = np.cov(draws.reshape(len(draws), -1).T)
    np.testing.assert_allclose(found, covariance[5:, 5:], atol=0.15)
    check = PROGRAM.check(post, jax.random.key(1), y=Y, start=4 * np.eye(5), noise=Q)
    assert check.ok and abs(check.log_evidence + float(post.free_energy)) < 1e-6
    drawn = np.asarray(PROGRAM.simulate(jax.random.key(2), (4000,), y=Y, start=np.eye(5), noise=Q)["z"])
    np.testing.assert_allclose(drawn[:, 1:, 3], drawn[:, :-1, 2], atol=1e-10)
    np.testing.assert_allclose(np.cov(drawn[:, 0].T), A @ A.T + Q, atol=0.3)


def test_gradients_and_batches():
    def energy(y):
        return PROGRAM(y=y, start=4 * np.eye(5), noise=Q).free_energy

    several = jnp.stack([jnp.asarray(Y), -jnp.asarray(Y)])
    found, slope = jax.vmap(jax.value_and_grad(energy))(several)
    step = 1e-5 * np.eye(STEPS)[3]
    for i, y in enumerate(np.asarray(several)):
        np.testing.assert_allclose(found[i], -dense(4 * np.eye(5), Q, y)[2], rtol=1e-10)
        up, down = (dense(4 * np.eye(5), Q, y + s)[2] for s in (step, -step))
        np.testing.assert_allclose(slope[i][3], (down - up) / 2e-5, rtol=1e-5)


def test_chains_side_by_side():
    y = np.stack([Y, 2 * Y, Y[::-1]], 1)
    post = PROGRAM(y=y, start=4 * np.eye(5), noise=Q)
    np.testing.assert_allclose(
        post.free_energy, -sum(dense(4 * np.eye(5), Q, one)[2] for one in y.T), rtol=1e-10
    )


def autoregression(y, q):
    """Two lags, noise of a traced scale given by its root, and counts."""
    z0 = ngmp.sample("z0", MvNormal(np.zeros(2), covariance=np.eye(2)))

    def step(z, y):
        z = ngmp.sample("z", MvNormal(np.array([[0.6, 0.3], [1, 0]]) @ z, covariance_root=np.eye(2)[:, :1] * q))
        ngmp.sample("y", Poisson(exp(z[0])), obs=y)
        return z, None

    ngmp.scan(step, z0, y)


def scalar(y, q):
    """The same by scalars that carry their last value."""
    before, now = (ngmp.sample(k, Normal(0.0, std=1.0)) for k in ("b", "a"))

    def step(carry, y):
        x = ngmp.sample("x", Normal(0.6 * carry[0] + 0.3 * carry[1], std=q))
        ngmp.sample("y", Poisson(exp(x)), obs=y)
        return (x, carry[0]), None

    ngmp.scan(step, (now, before), y)


def test_a_projected_chain_is_that_of_scalars():
    y = np.arange(12) % 4
    one, other = (ngmp.compile(model)(y=y, q=0.5) for model in (autoregression, scalar))
    assert one.converged and other.converged and one.approximate
    np.testing.assert_allclose(one.free_energy, other.free_energy, rtol=1e-7)
    np.testing.assert_allclose(one["z"].mean[:, 0], other["x"].mean, atol=1e-6)
    np.testing.assert_allclose(one["z"].variance[:, 0], other["x"].variance, rtol=1e-6)


def test_what_cannot_be_solved_names_what_can():
    def alone(y):
        x = ngmp.sample("x", MvNormal(np.zeros(3), covariance=np.diag([1.0, 1.0, 0.0])))
        ngmp.sample("y", Normal(x[0], std=1.0), obs=y)

    def observed(y):
        x = ngmp.sample("x", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("y", MvNormal(x, covariance=np.diag([1.0, 1.0, 0.0])), obs=y)

    with pytest.raises(ngmp.ModelError, match="site 'x': its covariance is singular.*use L @ w"):
        ngmp.compile(alone)(y=1.0)
    with pytest.raises(ngmp.ModelError, match="site 'y': an observed vector.*entries that have noise"):
        ngmp.compile(observed)(y=np.ones(3))
    with pytest.raises(ngmp.DataError, match="covariance_root=L"):
        PROGRAM(y=Y, start=4 * np.eye(5), noise=np.diag([-1.0, 0, 0, 0, 0]))
    with pytest.raises(ngmp.ModelError, match="a matrix of 5 rows"):
        ngmp.compile(lambda: ngmp.sample("x", MvNormal(np.zeros(5), covariance_root=np.ones((4, 2)))))()


def test_a_singular_precision_is_a_structure():
    rows = np.array([[1.0, -1, 0], [0, 1, -1]])

    def model(y):
        x = ngmp.sample("x", MvNormal(np.zeros(3), precision=2.0 * rows.T @ rows))
        ngmp.sample("y", Normal(x, std=0.5), obs=y)

    post = ngmp.compile(model)(y=np.array([0.0, 1.0, 3.0]))
    expected = np.linalg.solve(2.0 * rows.T @ rows + 4 * np.eye(3), [0.0, 4.0, 12.0])
    np.testing.assert_allclose(post["x"].mean, expected, rtol=1e-10)


def test_an_exported_program_has_the_noise_that_it_was_exported_with(tmp_path):
    inputs = {"y": Y, "start": 4 * np.eye(5), "noise": Q}
    ngmp.compile(series).export(tmp_path / "program", **inputs)
    loaded = ngmp.load_exported(tmp_path / "program")
    found = loaded(y=2 * Y, start=np.eye(5))
    np.testing.assert_allclose(found.free_energy, -dense(np.eye(5), Q, 2 * Y)[2], rtol=1e-10)
    with pytest.raises(TypeError, match="'noise' was fixed"):
        loaded(**inputs)
