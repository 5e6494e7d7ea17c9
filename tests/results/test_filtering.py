"""Filtering: posterior as prior, against Kalman filters, forward algorithms and full batches written in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, MvNormal, Normal, Poisson, dot, exp, take
from ngmp_kernels.families import Gaussian
from ngmp_models import heteroscedastic

RNG = np.random.default_rng(0)


def local_level(y, q=0.3, r=0.5):
    z0 = ngmp.sample("z0", Normal(0.3, variance=2.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, variance=q))
        ngmp.sample("y", Normal(z, variance=r), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def regression(x, y, mask=None):
    w = ngmp.sample("w", MvNormal(jnp.asarray([0.5, -1.0, 0.0], x.dtype), covariance=2.0))
    ngmp.sample("y", Normal(dot(x, w), variance=0.25), obs=y, mask=mask)


def batched(batch, size):
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)


def first(batches):
    return jax.tree.map(lambda x: x[0], batches)


@pytest.mark.core32
@pytest.mark.parametrize("size", [1, 3, 12])
def test_filter_of_a_local_level(size):
    y = jnp.asarray(RNG.normal(size=12))
    program = ngmp.compile(local_level, carry={"z0": "z"})
    batches = batched({"y": y}, size)
    carry, posts = jax.lax.scan(program.update, program.start(**first(batches)), batches)
    m, v = 0.3, 2.0
    for y_k in np.asarray(y):
        v += 0.3
        gain = v / (v + 0.5)
        m, v = m + gain * (y_k - m), v * (1 - gain)
    tol = 1e-10 if y.dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(carry["z0"].mean, m, rtol=tol, atol=tol)
    np.testing.assert_allclose(carry["z0"].variance, v, rtol=tol)
    # The smoother is the same declaration, called once.
    np.testing.assert_allclose(program(y=y)["z"].mean[-1], m, rtol=tol, atol=tol)
    # The evidence of a filter adds up to that of the smoother.
    np.testing.assert_allclose(jnp.sum(posts.free_energy), program(y=y).free_energy, rtol=tol)


def test_filter_of_a_rotating_vector():
    angle = 0.3
    a = jnp.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def model(y):
        z0 = ngmp.sample("z0", MvNormal(jnp.asarray([1.0, 0.0]), covariance=0.5))

        def step(z, y_k):
            z = ngmp.sample("z", MvNormal(a @ z, covariance=0.1))
            ngmp.sample("y", MvNormal(z, covariance=0.4), obs=y_k)
            return z, None

        ngmp.scan(step, z0, y)

    y = jnp.asarray(RNG.normal(size=(8, 2)))
    program = ngmp.compile(model, carry={"z0": "z"})
    *_, (carry, _) = ngmp.stream(program, [{"y": y[:3]}, {"y": y[3:4]}, {"y": y[4:]}])
    m, p = np.asarray([1.0, 0.0]), 0.5 * np.eye(2)
    for y_k in np.asarray(y):
        m, p = np.asarray(a) @ m, np.asarray(a) @ p @ np.asarray(a).T + 0.1 * np.eye(2)
        gain = p @ np.linalg.inv(p + 0.4 * np.eye(2))
        m, p = m + gain @ (y_k - m), p - gain @ p
    np.testing.assert_allclose(carry["z0"].mean, m, atol=1e-12)
    np.testing.assert_allclose(carry["z0"].covariance, p, atol=1e-12)


def test_filter_of_a_hidden_markov_model():
    start, table = np.asarray([0.2, 0.8]), np.asarray([[0.9, 0.1], [0.3, 0.7]])
    emission = np.asarray([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])

    def model(y):
        z0 = ngmp.sample("z0", Categorical(probs=start))

        def step(z, y_k):
            z = ngmp.sample("z", Categorical(probs=take(table, z)))
            ngmp.sample("y", Categorical(probs=take(emission, z)), obs=y_k)
            return z, None

        ngmp.scan(step, z0, y)

    y = jnp.asarray([0, 2, 2, 1, 0, 2])
    program = ngmp.compile(model, carry={"z0": "z"})
    batches = batched({"y": y}, 2)
    carry, _ = jax.lax.scan(program.update, program.start(**first(batches)), batches)
    alpha = start
    for y_k in np.asarray(y):
        alpha = (alpha @ table) * emission[:, y_k]
        alpha = alpha / alpha.sum()
    np.testing.assert_allclose(jax.nn.softmax(carry["z0"].eta1), alpha, atol=1e-12)


@pytest.mark.core32
def test_conjugate_weights_do_not_notice_batches():
    x, y = jnp.asarray(RNG.normal(size=(12, 3))), jnp.asarray(RNG.normal(size=12))
    program = ngmp.compile(regression, carry="w")
    batches = batched({"x": x, "y": y}, 4)
    carry, _ = jax.lax.scan(program.update, program.start(**first(batches)), batches)
    a = np.asarray(x, float)
    precision = np.eye(3) / 2 + a.T @ a / 0.25
    mean = np.linalg.solve(precision, np.asarray([0.5, -1.0, 0.0]) / 2 + a.T @ np.asarray(y, float) / 0.25)
    tol = 1e-10 if x.dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(carry["w"].mean, mean, rtol=tol, atol=tol)
    np.testing.assert_allclose(carry["w"].covariance, np.linalg.inv(precision), rtol=tol, atol=tol)
    # Prediction at new inputs, in closed form.
    new, seen = jnp.asarray(RNG.normal(size=(5, 3))), jnp.asarray(RNG.normal(size=5))
    p = program.predict(carry, "y", x=new, y=seen)
    b = np.asarray(new, float)
    variance = np.einsum("ni,ij,nj->n", b, np.linalg.inv(precision), b) + 0.25
    np.testing.assert_allclose(p.mean, b @ mean, rtol=tol, atol=tol)
    np.testing.assert_allclose(p.variance, variance, rtol=tol)
    expected = -0.5 * (np.asarray(seen, float) - b @ mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
    np.testing.assert_allclose(p.log_density, expected, rtol=tol, atol=10 * tol)


def test_gamma_precision_is_carried():
    def model(y):
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(0.0, precision=tau), obs=y)

    y = jnp.asarray(RNG.normal(size=10))
    program = ngmp.compile(model, carry=("tau",))
    *_, (carry, post) = ngmp.stream(program, [{"y": y[:4]}, {"y": y[4:]}])
    np.testing.assert_allclose(carry["tau"].mean, (2 + 5) / (1 + float(jnp.sum(y**2)) / 2), rtol=1e-12)
    assert post.converged


@pytest.mark.slow
def test_projected_filter_composes_with_grad_and_vmap():
    def model(y, sigma2=0.1):
        z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=sigma2))
            ngmp.sample("y", Poisson(exp(z)), obs=y_k)
            return z, None

        ngmp.scan(step, z0, y)

    program = ngmp.compile(model, carry={"z0": "z"}, tol=1e-12)
    batches = {"y": jnp.asarray([[1, 0, 2], [4, 3, 6], [2, 0, 1]])}

    def loss(sigma2):
        fixed = {"sigma2": jnp.full(3, sigma2)}
        _, posts = jax.lax.scan(program.update, program.start(**first(batches)), {**batches, **fixed})
        return jnp.sum(posts.free_energy)

    values, gradients = jax.vmap(jax.value_and_grad(loss))(jnp.asarray([0.1, 0.4]))
    for s2, value, gradient in zip((0.1, 0.4), values, gradients, strict=True):
        np.testing.assert_allclose(value, loss(s2), rtol=1e-10)
        numeric = (loss(s2 + 1e-5) - loss(s2 - 1e-5)) / 2e-5
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6)


def test_padded_batches_are_the_batches():
    x, y = jnp.asarray(RNG.normal(size=(9, 3))), jnp.asarray(RNG.normal(size=9))
    program = ngmp.compile(regression, carry="w")
    cuts = [slice(0, 4), slice(4, 4), slice(4, 9)]  # one of them empty
    batches = [{"x": x[c], "y": y[c]} for c in cuts]
    *_, (padded, post) = ngmp.stream(program, batches, size=6)
    np.testing.assert_allclose(padded["w"].mean, program(x=x, y=y)["w"].mean, atol=1e-12)
    assert post.converged
    bare = program.start(**batches[0])
    for batch in batches:
        bare, _ = program.update(bare, batch)
    np.testing.assert_allclose(bare["w"].mean, padded["w"].mean, atol=1e-12)
    assert ngmp.pad({"y": y, "x": x, "mask": y > 0, "scale": 1.0}, 12)["mask"].sum() == (y > 0).sum()


def test_new_inputs_of_a_hierarchy():
    """Quadrature over the log-precision against a dense grid."""
    phi, psi = jnp.asarray(RNG.normal(size=(30, 3))), jnp.asarray(RNG.normal(size=(30, 2)))
    y = phi @ jnp.asarray([1.0, -0.5, 0.2]) + jnp.exp(-0.5 * psi[:, 0]) * jnp.asarray(RNG.normal(size=30))
    program = ngmp.compile(heteroscedastic, carry=("v", "w"))
    post = program(phi=phi, psi=psi, y=y)
    carry = {"v": post["v"], "w": post["w"]}
    p = program.predict(carry, "y", phi=phi[:4], psi=psi[:4], y=y[:4])
    for n in range(4):
        f, k = np.asarray(phi[n]), np.asarray(psi[n])
        mean, variance = f @ np.asarray(post["v"].mean), f @ np.asarray(post["v"].covariance) @ f
        centre, spread = k @ np.asarray(post["w"].mean), k @ np.asarray(post["w"].covariance) @ k + 1 / 25
        s = centre + np.linspace(-10, 10, 4001) * np.sqrt(spread)
        weight = np.exp(-0.5 * (s - centre) ** 2 / spread)
        weight /= weight.sum()
        total = variance + np.exp(-s)
        density = np.sum(weight * np.exp(-0.5 * (float(y[n]) - mean) ** 2 / total) / np.sqrt(2 * np.pi * total))
        np.testing.assert_allclose(p.mean[n], mean, rtol=1e-8)
        np.testing.assert_allclose(p.log_density[n], np.log(density), rtol=1e-6)
        np.testing.assert_allclose(p.variance[n], variance + np.exp(-centre + spread / 2), rtol=1e-6)


class TestBadInput:
    y = jnp.asarray([0.1, 0.2])

    def test_names(self):
        with pytest.raises(ngmp.ModelError, match="carry= names no variable"):
            ngmp.compile(local_level, carry=("q",)).start(y=self.y)
        with pytest.raises(ngmp.ModelError, match=r"site 'z'.*depends on other variables.*start of a chain"):
            ngmp.compile(local_level, carry=("z",)).start(y=self.y)
        with pytest.raises(TypeError, match="carry= has the entry"):
            ngmp.compile(local_level, carry={"z0": 3})

    def test_unlike_ends(self):
        def model(y):
            w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
            ngmp.sample("s", Normal(dot(jnp.ones((3, 2)), w), variance=1.0))

        with pytest.raises(ngmp.ModelError, match="first and last state must be alike"):
            ngmp.compile(model, carry={"w": "s"}).start(y=self.y)

    def test_carry(self):
        program = ngmp.compile(local_level, carry={"z0": "z"})
        with pytest.raises(ValueError, match=r"the carry holds \['z'\]; this program carries \['z0'\]"):
            program.update({"z": program.start(y=self.y)["z0"]}, {"y": self.y})
        with pytest.raises(ngmp.ModelError, match="carry has batch shape"):
            program.update({"z0": Gaussian.from_mean_variance(jnp.zeros(3), jnp.ones(3))}, {"y": self.y})
        with pytest.raises(ngmp.ModelError, match="the carry holds a Gamma"):
            program.update({"z0": ngmp.families.Gamma.from_concentration_rate(1.0, 1.0)}, {"y": self.y})
        with pytest.raises(ngmp.DataError, match="must be proper"):
            program.update({"z0": Gaussian(jnp.asarray(0.0), jnp.asarray(0.5))}, {"y": self.y})
        with pytest.raises(ValueError, match="carries nothing"):
            ngmp.compile(local_level).update({}, {"y": self.y})
        with pytest.raises(TypeError, match="predict was given a float"):
            program.predict(1.0, "y", y=self.y)

    def test_padding(self):
        program = ngmp.compile(local_level, carry={"z0": "z"})
        with pytest.raises(ValueError, match="would pad the chain 'z'"):
            ngmp.stream(program, [{"y": self.y}], size=4)
        with pytest.raises(ValueError, match="more than size=1"):
            ngmp.pad({"y": self.y}, 1)
        with pytest.raises(ValueError, match="leading sizes"):
            ngmp.pad({"y": self.y, "prior": jnp.zeros(3)}, 4)
        with pytest.raises(ValueError, match="has no"):
            ngmp.pad({"y": self.y}, 4, names=("x",))
        # A batch of another width than the weights.
        weights = ngmp.compile(regression, carry="w")
        carry = weights.start(x=jnp.zeros((2, 3)), y=self.y)
        with pytest.raises(ngmp.ModelError, match="5"):
            weights.update(carry, {"x": jnp.zeros((2, 5)), "y": self.y})
