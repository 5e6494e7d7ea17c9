"""Every property of an exponential family, on every family: one table of instances, crossed with one list of tests.

Oracles are scipy's distributions and adaptive quadrature; nothing is compared with our own code alone.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy import special, stats

from ngmp_kernels.families import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    InverseGamma,
    MvGaussian,
    Wishart,
)

pytestmark = pytest.mark.core32

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # every program here runs a few times only


class Case(NamedTuple):
    """A family: how to make a batch, another batch for divergences, and the same thing in scipy."""

    make: Callable[[Any], Any]
    other: Callable[[Any], Any]
    scipy: Callable[[Any, int], Any]  # (instance, batch index) -> frozen scipy distribution


def _mv(seed, dtype):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 3, 3))
    return MvGaussian.from_mean_covariance(
        jnp.asarray(rng.normal(size=(2, 3)), dtype), jnp.asarray(root @ root.swapaxes(1, 2) + np.eye(3), dtype)
    )


def _wishart(seed, dtype, df):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 2, 2))
    scale = root @ root.swapaxes(1, 2) + 0.5 * np.eye(2)
    return Wishart.from_df_scale(jnp.asarray(df, dtype), jnp.asarray(scale, dtype))


def _array(*x):
    return lambda dtype: jnp.asarray(x, dtype)


GAMMA_A, GAMMA_B = _array(0.3, 1.0, 2.5, 40.0, 1e4), _array(2.0, 0.1, 3.0, 55.0, 9e3)
INVERSE_A, INVERSE_B = _array(2.5, 4.0, 40.0, 1e4), _array(2.0, 0.1, 55.0, 9e3)
BETA_A, BETA_B = _array(0.5, 2.0, 60.0, 300.0), _array(0.7, 3.0, 900.0, 4.0)
PROBS = _array([0.2, 0.5, 0.3], [0.05, 0.05, 0.9])

CASES = {
    "gaussian": Case(
        lambda dt: Gaussian.from_mean_variance(_array(-3.0, 0.0, 40.0)(dt), _array(0.2, 1.0, 9.0)(dt)),
        lambda dt: Gaussian.from_mean_variance(_array(-2.0, 0.5, 38.0)(dt), _array(0.3, 4.0, 2.0)(dt)),
        lambda q, i: stats.norm(q.mean[i], q.std[i]),
    ),
    "mvgaussian": Case(
        lambda dt: _mv(0, dt),
        lambda dt: _mv(1, dt),
        lambda q, i: stats.multivariate_normal(np.asarray(q.mean[i], float), np.asarray(q.covariance[i], float)),
    ),
    "gamma": Case(
        lambda dt: Gamma.from_concentration_rate(GAMMA_A(dt), GAMMA_B(dt)),
        lambda dt: Gamma.from_concentration_rate(GAMMA_A(dt) * 1.2, GAMMA_B(dt) * 0.9),
        lambda q, i: stats.gamma(float(q.concentration[i]), scale=1 / float(q.rate[i])),
    ),
    "beta": Case(
        lambda dt: Beta.from_ab(BETA_A(dt), BETA_B(dt)),
        lambda dt: Beta.from_ab(BETA_A(dt) * 1.1, BETA_B(dt) * 0.9),
        lambda q, i: stats.beta(float(q.a[i]), float(q.b[i])),
    ),
    "bernoulli": Case(
        lambda dt: Bernoulli.from_probs(_array(0.1, 0.5, 0.97)(dt)),
        lambda dt: Bernoulli.from_logits(_array(-1.0, 0.3, 2.0)(dt)),
        lambda q, i: stats.bernoulli(float(q.probs[i])),
    ),
    "categorical": Case(
        lambda dt: Categorical.from_probs(PROBS(dt)),
        lambda dt: Categorical.from_logits(PROBS(dt) * 3),
        lambda q, i: stats.rv_discrete(values=(np.arange(3), np.asarray(q.probs[i], float) / float(q.probs[i].sum()))),
    ),
    "dirichlet": Case(
        lambda dt: Dirichlet.from_concentration(_array([0.5, 1.0, 2.0], [30.0, 4.0, 11.0])(dt)),
        lambda dt: Dirichlet.from_concentration(_array([0.7, 1.3, 1.0], [40.0, 6.0, 9.0])(dt)),
        lambda q, i: stats.dirichlet(np.asarray(q.concentration[i], float)),
    ),
    "inversegamma": Case(
        lambda dt: InverseGamma.from_concentration_scale(INVERSE_A(dt), INVERSE_B(dt)),
        lambda dt: InverseGamma.from_concentration_scale(INVERSE_A(dt) * 1.2, INVERSE_B(dt) * 0.9),
        lambda q, i: stats.invgamma(float(q.concentration[i]), scale=float(q.scale[i])),
    ),
    "wishart": Case(
        lambda dt: _wishart(0, dt, [2.5, 4.0, 60.0]),
        lambda dt: _wishart(1, dt, [3.5, 3.0, 50.0]),
        lambda q, i: stats.wishart(float(q.df[i]), np.asarray(q.scale[i], float)),
    ),
}
DISCRETE = {"bernoulli": 2, "categorical": 3}


DRAWS = 4000


@pytest.fixture(params=list(CASES))
def name(request):
    return request.param


@pytest.fixture
def dtype(x64):
    """The precision of this process; float32 numbers are judged in the float32 process."""
    return jnp.dtype("float64" if x64 else "float32")


@pytest.fixture
def only64(x64):
    if not x64:
        pytest.skip("compared in float64 only")


@pytest.fixture
def case(name):
    return CASES[name]


@pytest.fixture
def q(case, dtype):
    return case.make(dtype)


@pytest.fixture
def p(case, dtype):
    return case.other(dtype)


@pytest.fixture
def tol(dtype):
    return {"float32": 3e-4, "float64": 1e-9}[dtype.name]


def one(q, i):
    return jax.tree.map(lambda x: x[i], q)


def flatten(blocks, batch_shape):
    """Blocks of shape (*b, ...) side by side: (*b, k)."""
    return jnp.concatenate([x.reshape(batch_shape + (-1,)) for x in blocks], axis=-1)


def potential(family, shapes):
    """The log-partition of a single instance as a function of one flat vector."""
    cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

    def log_partition(v):
        return family(*(x.reshape(s) for x, s in zip(jnp.split(v, cuts), shapes, strict=True))).log_partition()

    return log_partition


def everything(q, p):
    """All results of one family in one program, because compiling them one by one would take minutes."""
    family, shapes = type(q), [eta.shape[1:] for eta in q.natural]
    eta, log_partition = flatten(q.natural, q.batch_shape), potential(type(q), shapes)
    z = q.sample(jax.random.key(7), (DRAWS,))
    few = z[:7]
    return {
        "draws": z,
        "draws' statistics": flatten(q.statistics(z), (DRAWS,) + q.batch_shape),
        "flat mu": flatten(q.to_mean(), q.batch_shape),
        "gradient": jax.vmap(jax.grad(log_partition))(eta),
        "hessian": jax.vmap(jax.hessian(log_partition))(eta),
        "round trip": family.from_mean(*q.to_mean()),
        "plain log density": q.dot(q.statistics(few)) - q.log_partition(),
        "log density": q.log_density(few),
        "log partition": q.log_partition(),
        "entropy": q.entropy(),
        "kl": q.kl(p),
        "mean": q.mean,
        "variance": q.variance,
        "proper": q.is_proper(),
    }


@functools.cache
def results(name, dtype):
    """`everything`, compiled without optimisation: it runs once."""
    case = CASES[name]
    run = jax.jit(everything, compiler_options=FAST_COMPILE)
    return jax.tree.map(np.asarray, run(case.make(dtype), case.other(dtype)))


@pytest.fixture
def r(name, dtype):
    return results(name, dtype)


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


# -- against scipy -------------------------------------------------------------------------------------------------


COORDINATES = {  # s -> (z, dz/ds): where the density is smooth and its tails are short
    "gaussian": (lambda z: z, lambda s: (s, np.ones_like(s))),
    "gamma": (np.log, lambda s: (np.exp(s), np.exp(s))),
    "inversegamma": (np.log, lambda s: (np.exp(s), np.exp(s))),
    "beta": (
        lambda z: special.logit(min(z, 1 - 1e-15)),
        lambda s: (special.expit(s), special.expit(s) * special.expit(-s)),
    ),
}


def grid(dist, coordinate):
    """Trapezoidal points and weights for integrals dz over all but 1e-14 of the mass."""
    forward, back = COORDINATES[coordinate]
    s = np.linspace(forward(dist.ppf(1e-14)), forward(dist.isf(1e-14)), 4001)
    z, jacobian = back(s)
    return z, jacobian * (s[1] - s[0])


_log_density = jax.jit(lambda q, z: q.log_density(z))


@pytest.fixture(params=list(COORDINATES))
def scalar(request, only64):
    del only64
    case = CASES[request.param]
    return case, case.make(jnp.float64), case.other(jnp.float64), results(request.param, jnp.dtype("float64"))


def test_log_density_is_scipys(name, case, q, r, dtype):
    ours, z = r["log density"], np.asarray(r["draws"][:7], float)
    tol = 1e-9 if dtype == jnp.float64 else 2e-3
    assert ours.shape == (7,) + q.batch_shape
    for i in range(q.batch_shape[0]):
        dist = case.scipy(q, i)
        if name == "dirichlet":
            expected = [dist.logpdf(x / x.sum()) for x in z[:, i]]
        elif name == "wishart":
            expected = [dist.logpdf(x) for x in z[:, i]]
        else:
            expected = getattr(dist, "logpmf" if name in DISCRETE else "logpdf")(z[:, i])
        np.testing.assert_allclose(ours[:, i], expected, rtol=tol, atol=tol)


def test_log_density_is_eta_dot_t_minus_a(r, dtype):
    magnitude = np.max(np.abs(r["log partition"]))  # the plain formula cancels; that is why log_density is not it
    atol = 1e3 * float(jnp.finfo(dtype).eps) * magnitude
    np.testing.assert_allclose(r["log density"], r["plain log density"], rtol=1e-5, atol=atol)


def test_density_integrates_to_one(scalar):
    case, q, _, _ = scalar
    for i in range(q.batch_shape[0]):
        z, w = grid(case.scipy(q, i), q.kind)
        np.testing.assert_allclose(w @ np.exp(_log_density(one(q, i), z)), 1.0, atol=1e-9)


def test_entropy_and_kl_by_quadrature(scalar):
    case, q, p, r = scalar
    for i in range(q.batch_shape[0]):
        z, w = grid(case.scipy(q, i), q.kind)
        log_q, log_p = case.scipy(q, i).logpdf(z), case.scipy(p, i).logpdf(z)
        np.testing.assert_allclose(r["entropy"][i], w @ (-np.exp(log_q) * log_q), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(r["kl"][i], w @ (np.exp(log_q) * (log_q - log_p)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", list(DISCRETE))
def test_discrete_families_by_enumeration(name, dtype, tol):
    case, r = CASES[name], results(name, dtype)
    q, p = case.make(dtype), case.other(dtype)
    z = np.arange(DISCRETE[name])
    for i in range(q.batch_shape[0]):
        log_q, log_p = case.scipy(q, i).logpmf(z), case.scipy(p, i).logpmf(z)
        np.testing.assert_allclose(jnp.exp(one(q, i).log_density(z)), np.exp(log_q), rtol=tol)
        np.testing.assert_allclose(r["entropy"][i], -np.sum(np.exp(log_q) * log_q), rtol=tol)
        np.testing.assert_allclose(r["kl"][i], np.sum(np.exp(log_q) * (log_q - log_p)), rtol=tol, atol=tol)


@pytest.mark.usefixtures("only64")
def test_mvgaussian_against_textbook():
    case, r = CASES["mvgaussian"], results("mvgaussian", jnp.dtype("float64"))
    q, p = case.make(jnp.float64), case.other(jnp.float64)
    for i in range(2):
        dist, other = case.scipy(q, i), case.scipy(p, i)
        np.testing.assert_allclose(r["entropy"][i], dist.entropy(), rtol=1e-10)
        ratio, d = np.linalg.solve(other.cov, dist.cov), dist.mean - other.mean
        kl = 0.5 * (np.trace(ratio) - 3 + d @ np.linalg.solve(other.cov, d) - np.linalg.slogdet(ratio)[1])
        np.testing.assert_allclose(r["kl"][i], kl, rtol=1e-10)


@pytest.mark.usefixtures("only64")
def test_dirichlet_by_quadrature():
    case, r = CASES["dirichlet"], results("dirichlet", jnp.dtype("float64"))
    dist, other = case.scipy(case.make(jnp.float64), 1), case.scipy(case.other(jnp.float64), 1)
    np.testing.assert_allclose(r["entropy"][1], dist.entropy(), rtol=1e-10)
    x, w = np.polynomial.legendre.leggauss(80)
    x, w = 0.5 * (x + 1), 0.5 * w
    first, rest = (g.ravel() for g in np.meshgrid(x, x, indexing="ij"))
    points = np.stack([first, (1 - first) * rest, (1 - first) * (1 - rest)])  # the square onto the simplex
    weights = np.outer(w, w).ravel() * (1 - first)
    log_q, log_p = dist.logpdf(points), other.logpdf(points)
    np.testing.assert_allclose(weights @ np.exp(log_q), 1.0, rtol=1e-8)
    np.testing.assert_allclose(r["kl"][1], weights @ (np.exp(log_q) * (log_q - log_p)), rtol=1e-8)


@pytest.mark.usefixtures("only64")
def test_wishart_against_scipy():
    """Entropy from scipy; the divergence of two from E[log q - log p] with scipy's densities at many draws."""
    case, r = CASES["wishart"], results("wishart", jnp.dtype("float64"))
    q, p = case.make(jnp.float64), case.other(jnp.float64)
    for i in range(3):
        dist, other = case.scipy(q, i), case.scipy(p, i)
        np.testing.assert_allclose(r["entropy"][i], dist.entropy(), rtol=1e-9)
        z = np.moveaxis(dist.rvs(20_000, np.random.default_rng(i)), 0, -1)
        gap = dist.logpdf(z) - other.logpdf(z)
        np.testing.assert_allclose(r["kl"][i], gap.mean(), atol=5 * gap.std() / np.sqrt(20_000))


def test_mean_and_variance_are_scipys(name, case, q, r, tol):
    if name == "categorical":
        np.testing.assert_allclose(r["mean"], PROBS(q.dtype), rtol=tol)
        np.testing.assert_allclose(r["variance"], np.einsum("...ii->...i", r["hessian"]), rtol=tol, atol=tol)
        return
    for i in range(q.batch_shape[0]):
        dist = case.scipy(q, i)
        mean, variance = (dist.mean, np.diag(dist.cov)) if name == "mvgaussian" else (dist.mean(), dist.var())
        np.testing.assert_allclose(r["mean"][i], mean, rtol=tol, atol=tol)
        np.testing.assert_allclose(r["variance"][i], variance, rtol=tol, atol=tol)


def test_large_concentrations_keep_their_digits(dtype):
    """Log-gammas of 1e7 must not cancel at a = 1e6, where float32 would have no digit left."""
    q = Gamma.from_concentration_rate(*jnp.full((2, 1), 1e6, dtype))
    p = Gamma.from_concentration_rate(*jnp.asarray([[1.01e6], [1.011e6]], dtype))
    (a0, b0), (a1, b1) = ((float(x.concentration[0]), float(x.rate[0])) for x in (q, p))
    z = jnp.asarray([0.999, 1.0, 1.002], dtype)
    run = jax.jit(lambda q, p: (q.entropy(), q.kl(p), q.log_density(z)), compiler_options=FAST_COMPILE)
    entropy, kl, log_density = run(q, p)
    with mpmath.workdps(40):
        exact = mpmath.mpf(a0)
        exact_entropy = exact - mpmath.log(b0) + mpmath.loggamma(exact) + (1 - exact) * mpmath.digamma(exact)
        exact_kl = (
            (exact - a1) * mpmath.digamma(exact)
            - mpmath.loggamma(exact)
            + mpmath.loggamma(a1)
            + a1 * (mpmath.log(b0) - mpmath.log(b1))
            + exact * (mpmath.mpf(b1) - b0) / b0
        )
    tol = 1e-11 if dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(entropy, float(exact_entropy), rtol=tol)
    np.testing.assert_allclose(kl, float(exact_kl), rtol=10 * tol)
    expected = stats.gamma(a0, scale=1 / b0).logpdf(np.asarray(z, float))
    np.testing.assert_allclose(log_density, expected, rtol=1e2 * tol)  # scipy itself is good to 1e-9 here


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
