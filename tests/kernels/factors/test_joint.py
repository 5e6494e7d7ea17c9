"""Joint edges of factors against brute force: expected gradients and Hessians on dense products of Hermite nodes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ngmp_kernels import GaussHermite, JointFactor, Quadrature
from ngmp_kernels.factors.beta_regression import BetaLogits
from ngmp_kernels.factors.bilinear import Bilinear
from ngmp_kernels.factors.gamma_regression import GammaLogs
from ngmp_kernels.factors.generic import GenericFactor
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLogs
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.ordinal import OrderedCuts
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.factors.product_log_precision import ProductLogPrecision
from ngmp_kernels.factors.softmax import Softmax
from ngmp_kernels.factors.student_t import StudentTLogs, StudentTLogScale
from ngmp_kernels.factors.weibull import WeibullLogs
from ngmp_kernels.families import Gamma, Gaussian, MvGaussian

N = 3
OUT = np.array([0.4, -1.0, 2.0])
RULE = Quadrature()


def softmax(a, b, c):
    return a - jnp.logaddexp(jnp.logaddexp(a, b), c)


FACTORS = {
    "normal, log-precision": NoiseLogPrecision(),
    "product of data": ProductNoise(out=OUT, precision=np.array([0.7, 1.0, 2.0])),
    "product": ProductNoise(precision=np.array([0.7, 1.0, 2.0])),
    "product, log-precision of data": ProductLogPrecision(out=OUT),
    "product, log-precision": ProductLogPrecision(),
    "Student's t": StudentTLogScale(np.array([3.0, 5.0, 9.0])),
    "negative binomial": NegativeBinomialLogs(np.array([0.0, 3.0, 12.0])),
    "Student's t, df": StudentTLogs(),
    "Student's t, df, scale known": StudentTLogs(np.array([0.5, 1.0, 2.0])),
    "Gamma": GammaLogs(np.array([0.4, 1.0, 3.0])),
    "Weibull": WeibullLogs(np.array([0.4, 1.0, 3.0])),
    "Beta": BetaLogits(np.array([0.2, 0.5, 0.9])),
    "ordered, logistic": OrderedCuts(np.array([0.0, 1.0, 3.0]), 4),
    "ordered, probit": OrderedCuts(np.array([3.0, 2.0, 1.0]), 4, "probit"),
    "softmax": GenericFactor(softmax, (), (Gaussian,) * 3),
}
CLOSED = {name for name in FACTORS if "product" in name or name in ("normal, log-precision", "Gamma")}


def marginal(rng, k, scale=0.15):
    """Correlated Gaussians of k dimensions."""
    roots = scale * (np.eye(k) + 0.5 * rng.standard_normal((N, k, k)))
    return MvGaussian.from_mean_covariance(0.5 * rng.standard_normal((N, k)), roots @ roots.transpose(0, 2, 1))


def brute(factor, members, q):
    """`E[l]` and the message of Bonnet and Price, by derivatives of the log-density at many nodes."""
    k, m = len(members), np.asarray(q.mean, float)
    u, w = np.polynomial.hermite_e.hermegauss({2: 24, 3: 12, 4: 8}[k])
    every = np.asarray(list(itertools.product(range(len(u)), repeat=k)))
    w = (w / w.sum())[every].prod(1)
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(q.precision, float)))
    z = m + np.einsum("nij,qj->qni", root, u[every])

    def log_density(z):
        return factor.log_density(*(z[None, :, members.index(i)] for i in range(k)))[0]

    def total(z):
        return jnp.sum(log_density(z))

    def second(z):  # rows are independent: Hessians of each by k directions
        ways = (jnp.zeros_like(z).at[:, i].set(1.0) for i in range(k))
        return jnp.stack([jax.jvp(jax.grad(total), (z,), (way,))[1] for way in ways], -1)

    each = jax.jit(jax.vmap(lambda z: (log_density(z), jax.grad(total)(z), second(z))))(z)
    value, slope, bend = (np.tensordot(w, x, 1) for x in each)
    return value, slope - np.einsum("nij,nj->ni", bend, m), 0.5 * bend


@pytest.mark.parametrize("name", FACTORS)
def test_projection(name, rng, x64):
    """Messages and expected log-densities, in closed form or by quadrature; in any order of the interfaces."""
    factor = FACTORS[name]
    members = tuple(reversed(range(len(factor.interfaces))))
    joint = JointFactor(factor, members)
    q = marginal(rng, len(members))
    value, eta1, eta2 = brute(factor, members, q)
    tol = (1e-3 if "df" in name else 1e-5) if x64 else 2e-3  # seven nodes an axis, of heavy tails
    found, mean = jax.jit(lambda q: (joint.project(0, q, (q,), RULE), joint.expected_log_message(0, q, (q,), RULE)))(q)
    np.testing.assert_allclose(found.eta1, eta1, rtol=tol, atol=tol)
    np.testing.assert_allclose(found.eta2, eta2, rtol=tol, atol=tol)
    np.testing.assert_allclose(mean, value, rtol=tol, atol=tol)
    known = factor.joint_expectation(q.mean, q.covariance)
    assert (known is not None) == (name in CLOSED)


@pytest.mark.parametrize("name", FACTORS)
def test_one_row_for_all(name, rng):
    """A marginal that all factors share may have one row."""
    factor = FACTORS[name]
    joint = JointFactor(factor, tuple(range(len(factor.interfaces))))
    one = jax.tree.map(lambda x: x[:1], marginal(rng, len(factor.interfaces)))
    same = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *x.shape[1:])), one)
    found, expected = jax.jit(lambda: tuple(joint.project(0, q, (q,), RULE) for q in (one, same)))()
    np.testing.assert_allclose(jnp.broadcast_to(found.eta1, expected.eta1.shape), expected.eta1, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(jnp.broadcast_to(found.eta2, expected.eta2.shape), expected.eta2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("k", "tol"), [(2, 1e-6), (5, 5e-3)])
def test_softmax(k, tol, rng):
    """The message of scores of k + 1 classes, against the same with derivatives at many random draws or nodes."""
    factor, q = Softmax(jnp.eye(k + 1)[np.array([0, k, 1])]), marginal(rng, k, 0.4)
    u = rng.standard_normal((200_000, k)) if k > 3 else None
    if u is None:
        x, w = np.polynomial.hermite_e.hermegauss(40)
        u, w = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2), np.outer(w, w).reshape(-1) / w.sum() ** 2
    else:
        w = np.full(len(u), 1 / len(u))
    root, m = np.linalg.cholesky(np.asarray(q.covariance, float)), np.asarray(q.mean, float)
    z = m + np.einsum("nij,qj->qni", root, u)
    p = np.exp(z) / (1 + np.exp(z).sum(-1, keepdims=True))
    bend = np.einsum("q,qni,qnj->nij", w, p, p) - np.einsum("q,qni,ij->nij", w, p, np.eye(k))
    slope = np.asarray(factor.one_hot)[:, :-1] - np.einsum("q,qni->ni", w, p)
    found, mean = factor.project(0, q, (q,), RULE), factor.expected_log_message(0, q, (q,), RULE)
    tol = max(tol, 1e-5 if jax.config.jax_enable_x64 is False else 0.0)
    np.testing.assert_allclose(found.eta2, 0.5 * bend, atol=tol)
    np.testing.assert_allclose(found.eta1, slope - np.einsum("nij,nj->ni", bend, m), atol=2 * tol)
    value = np.einsum("ni,qni->qn", np.asarray(factor.one_hot)[:, :-1], z) - np.log1p(np.exp(z).sum(-1))
    np.testing.assert_allclose(mean, w @ value, atol=2 * tol)


class _Apart:
    """A factor of one vector as one of its entries."""

    def __init__(self, factor):
        self.factor = factor

    def log_density(self, *z):
        return self.factor.log_density(jnp.stack(jnp.broadcast_arrays(*z), -1))


NOISE = np.array([0.7, 1.0, 2.0])[:, None, None]
BILINEAR = {
    "two products of data": Bilinear((1, 2), out=OUT[:, None], precision=NOISE),
    "a product": Bilinear((1, 1), precision=NOISE),
    "a product, log-precision": Bilinear((1, 1)),
    "a row": Bilinear((2, 1), out=np.stack([OUT, -OUT], -1), precision=NOISE * np.array([[1.0, 0.3], [0.3, 2.0]])),
    "of fewer": Bilinear((1, 2), OUT[:, None], NOISE, np.eye(4, 3)[None] + 0.2, np.full((1, 4), 0.1)),
}


@pytest.mark.parametrize("name", BILINEAR)
def test_bilinear(name, rng, x64):
    factor = BILINEAR[name]
    k = {"two products of data": 4, "a product, log-precision": 4}.get(name, 3)
    q = marginal(rng, k, 0.3)
    value, eta1, eta2 = brute(_Apart(factor), tuple(range(k)), q)
    found, mean = jax.jit(lambda: (factor.project(0, q, (q,), RULE), factor.expected_log_message(0, q, (q,), RULE)))()
    tol = 1e-6 if x64 else 2e-3
    np.testing.assert_allclose(found.eta1, eta1, rtol=tol, atol=tol)
    np.testing.assert_allclose(found.eta2, eta2, rtol=tol, atol=tol)
    np.testing.assert_allclose(mean, value, rtol=tol, atol=tol)


def test_separable(rng):
    """With independent entries and a log-density that is a sum over them, the message is that of the entries alone."""

    def log_density(a, b):
        return 3.0 * a - jnp.exp(a) - 2.0 * jnp.logaddexp(0.0, b)

    joint = JointFactor(GenericFactor(log_density, (), (Gaussian, Gaussian)), (0, 1))
    m, v = rng.standard_normal((2, N)), 0.2 + 0.1 * rng.random((2, N))
    q = MvGaussian.from_mean_covariance(m.T, v.T[..., None] * np.eye(2))
    found = joint.project(0, q, (q,), RULE)
    for i, f in enumerate((lambda a: 3.0 * a - jnp.exp(a), lambda b: -2.0 * jnp.logaddexp(0.0, b))):
        alone = GenericFactor(f, (), (Gaussian,))
        own = Gaussian.from_mean_variance(m[i], v[i])
        expected = alone.project(0, own, (own,), RULE)
        np.testing.assert_allclose(found.eta1[:, i], expected.eta1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.eta2[:, i, i], expected.eta2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.eta2[:, 0, 1], 0.0, atol=1e-5)


def test_beside_a_precision(rng, x64):
    """A Gamma precision that is not joined: each message integrates over the other's cavity."""
    joint = JointFactor(ProductNoise(out=OUT), (0, 1))
    assert joint.interfaces == ("(a, b)", "tau")
    q, tau = marginal(rng, 2), Gamma.from_concentration_rate(jnp.full(N, 5.0), jnp.array([4.0, 5.0, 6.0]))
    z = np.asarray(q.sample(jax.random.key(0), (4,)))
    a, b = np.asarray(tau.concentration, float), np.asarray(tau.rate, float)
    residual = OUT - z[..., 0] * z[..., 1]

    expected = stats.t(2 * a, scale=np.sqrt(b / a)).logpdf(residual)
    tol = 1e-8 if x64 else 1e-4
    np.testing.assert_allclose(joint.log_message(0, (q, tau))(jnp.asarray(z)), expected, rtol=tol, atol=tol)
    # Toward tau, by draws of nothing: a dense grid of the two.
    u = np.linspace(-8.0, 8.0, 161)
    grid = np.stack(np.meshgrid(u, u), -1).reshape(-1, 2)
    w = np.exp(-0.5 * (grid**2).sum(1))
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(q.precision, float)))
    at = np.asarray(q.mean, float) + np.einsum("nij,qj->qni", root, grid)
    r = OUT - at[..., 0] * at[..., 1]
    t = np.array([[0.3], [1.0], [2.5]]) * np.ones(N)
    density = np.sqrt(t[:, None] / (2 * np.pi)) * np.exp(-0.5 * t[:, None] * r**2)
    expected = np.log(np.einsum("q,tqn->tn", w / w.sum(), density))
    np.testing.assert_allclose(joint.log_message(1, (q, tau))(jnp.asarray(t)), expected, rtol=tol, atol=tol)


@pytest.mark.parametrize(("out", "inside"), [(None, (0, 1, 3)), (None, (3, 2)), (OUT, (0, 2))])
def test_closed_rest(out, inside, rng):
    """What a product of unknown noise says of a joint edge when the rest is integrated out, and of the rest."""
    factor = ProductLogPrecision(out=out)
    joint = JointFactor(factor, inside)
    cavities = (marginal(rng, len(inside)), *(Gaussian.from_mean_variance(jnp.array([0.3, -1.0, 0.5]), jnp.full(N, v))
                                              for v in (0.2, 0.4)[: len(joint.rest)]))  # fmt: skip
    for j in range(len(cavities)):
        fine = GaussHermite(24)
        z = cavities[j].nodes(GaussHermite(3))[0]
        found = joint.log_message(j, cavities)(z)
        expected = joint.fractional_message(j, cavities, 1.0, fine)(z)
        np.testing.assert_allclose(found, expected, atol=2e-4)
