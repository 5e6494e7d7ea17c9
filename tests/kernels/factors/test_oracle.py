"""Every factor against brute force. A factor class without an oracle case, a density, moments and bad fields fails."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import AbstractConjugate, AbstractProjected, Quadrature, families
from ngmp_kernels.factors.bilinear import Bilinear
from ngmp_kernels.factors.categorical import (
    CategoricalTransition,
)
from ngmp_kernels.factors.gated import Gated
from ngmp_kernels.factors.generic import ConstantFactor, GenericFactor
from ngmp_kernels.factors.inverse_gamma import NoiseVariance
from ngmp_kernels.factors.latent_probs import LatentProbs
from ngmp_kernels.factors.location import LaplaceNoise
from ngmp_kernels.factors.mv_student_t import MvStudentTNoise
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.factors.softmax import Softmax
from ngmp_kernels.factors.switched_noise import SwitchedNoise
from ngmp_kernels.factors.wishart import NoiseWishart
from tests.kernels.factors.cases import ORACLE
from tests.kernels.factors.grids import (
    LEARNED,
    brute_log_message,
    brute_projection,
    call,
    case,
    double,
    draws,
    grid,
    tolerance,
)
from tests.kernels.factors.references import BAD, DENSITY, FACTORS, MOMENTS

PROJECTED = [c for c in FACTORS if issubclass(c, AbstractProjected)]
CONJUGATE = [c for c in FACTORS if issubclass(c, AbstractConjugate)]
PAIRS = (NoisePrecision, NoiseLogPrecision, NoiseVariance, GenericFactor, LatentProbs, SwitchedNoise, ProductNoise)
MEAN_FIELD = (NoiseWishart, *LEARNED)  # no projection of exact messages: test_mean_field_projection
JOINT = [*(c for c in PROJECTED if c.joins == "always"), Softmax, MvStudentTNoise, Bilinear]  # test_joint.py
SEVERAL = [c for c in PROJECTED if c not in (*MEAN_FIELD, *JOINT)]
EDGES = [(c, j) for c in SEVERAL for j in range(3 if c is Gated else 2 if c in PAIRS else 1)]
SCALAR_EDGES = [(c, j) for c, j in EDGES if c is not LatentProbs and (c, j) not in ((Gated, 2), (SwitchedNoise, 1))]
RULE = Quadrature()


def _name(x):
    return getattr(x, "__name__", str(x))


def test_complete():
    for table in (ORACLE, DENSITY, MOMENTS, BAD):
        missing = [c.__name__ for c in FACTORS if c not in table]
        assert not missing, f"no oracle case, reference density, moments or bad example for {missing}"
    unknown = [c.__name__ for c in ORACLE if c not in FACTORS]
    assert not unknown, f"oracle cases of factors that no signature lowers to: {unknown}"


# -- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.core32
@pytest.mark.parametrize("cls", [c for c in FACTORS if DENSITY.get(c)], ids=_name)
def test_density(cls, x64):
    """log_density is that of the named distribution, constants included."""
    factor, _, marginals = case(cls)
    z = draws(marginals, 7)
    expected = DENSITY[cls](double(factor), *map(double, z))
    tol = tolerance(x64, 1e-10, 2e-5)
    np.testing.assert_allclose(call(factor.log_density, *z), expected, rtol=tol, atol=tol)


@pytest.mark.core32
@pytest.mark.parametrize("cls", [c for c in CONJUGATE if c not in (CategoricalTransition, ConstantFactor)], ids=_name)
def test_conjugate(cls, x64):
    """log f(z) = eta . T(z) + log_scale exactly, in the declared family."""
    factor, _, marginals = case(cls)
    (z,) = draws(marginals, 7)
    eta, log_scale = call(factor.message)
    assert type(eta) is factor.families[0]
    tol = tolerance(x64, 1e-12, 1e-5)
    expected = call(factor.log_density, z)
    actual = call(lambda: eta.dot(eta.statistics(z)) + log_scale)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def test_constant():
    factor, *_ = case(ConstantFactor)
    eta, log_scale = factor.message()
    assert eta is None
    np.testing.assert_array_equal(log_scale, factor.log_density())


def test_transition(x64):
    """The joint factor: table and density agree for every pair of classes."""
    factor, *_ = case(CategoricalTransition)
    eta, log_scale = factor.message()
    n, rows, columns = factor.log_table.shape
    z, out = (jnp.broadcast_to(k.reshape(-1, 1), (rows * columns, n)) for k in jnp.indices((rows, columns)))
    table = np.asarray(factor.log_table).transpose(1, 2, 0).reshape(-1, n)
    np.testing.assert_array_equal(factor.log_density((z, out)), table)
    np.testing.assert_array_equal(eta.eta1 + log_scale[:, None, None], factor.log_table)
    mean, variance = factor.moments((z, out))
    expected = np.exp(np.asarray(factor.log_table))[np.arange(n), np.asarray(z)]
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(variance, expected * (1 - expected), rtol=1e-5)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_log_message(cls, j, x64):
    """The exact log-message with its constant, at the marginal's centre and far in its tails."""
    factor, cavities, marginals = case(cls)
    z, log_mass = grid(marginals[j], 801)
    inside = np.argsort(-log_mass, axis=0)[:: 40 if x64 else 60][:6]
    z = np.take_along_axis(z, inside.reshape(inside.shape + (1,) * (z.ndim - 2)), 0)
    expected = brute_log_message(factor, j, cavities, z)
    tol = tolerance(x64, 1e-7, 1e-4)
    z = jnp.asarray(z, jnp.result_type(float) if z.dtype.kind == "f" else int)
    actual = call(lambda z: factor.log_message(j, cavities)(z), z)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_project(cls, j, x64):
    """project() is the gradient of E_q[l] in mean coordinates; expected_log_message is E_q[l]."""
    factor, cavities, marginals = case(cls)
    q = marginals[j]
    z, log_mass = grid(q, 40001 if cls is LaplaceNoise else 801)  # which has a kink
    values = brute_log_message(factor, j, cavities, z)
    expected = brute_projection(q, values, z, log_mass)
    eta = call(factor.project, j, q, cavities, RULE)
    assert type(eta) is type(q) and eta.batch_shape == q.batch_shape
    tol = tolerance(x64, 1e-6, 2e-3)
    blocks = [np.reshape(x, (x.shape[0], -1)) for x in eta.natural]
    np.testing.assert_allclose(np.concatenate(blocks, -1), expected, rtol=tol, atol=0.1 * tol)
    mean = call(factor.expected_log_message, j, q, cavities, RULE)
    np.testing.assert_allclose(mean, np.sum(np.exp(log_mass) * values, 0), rtol=tol, atol=0.1 * tol)


@pytest.mark.parametrize("cls", [c for c in PROJECTED if (c, 1) in EDGES], ids=_name)
def test_log_evidence(cls, x64):
    factor, cavities, _ = case(cls)
    z, log_mass = grid(cavities[0])
    expected = sp.logsumexp(brute_log_message(factor, 0, cavities, z) + log_mass, axis=0)
    np.testing.assert_allclose(call(factor.log_evidence, cavities, RULE), expected, rtol=tolerance(x64, 1e-7, 1e-4))


@pytest.mark.parametrize("cls", [c for c in FACTORS if MOMENTS.get(c)], ids=_name)
def test_moments(cls, x64):
    factor, _, marginals = case(cls)
    z = draws(marginals, 5)
    expected = MOMENTS[cls](double(factor), *map(double, z))
    for value, reference in zip(call(factor.moments, *z), expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=tolerance(x64, 1e-10, 1e-4))


@pytest.mark.parametrize("cls", list(FACTORS), ids=_name)
def test_checks(cls):
    """Sound factors pass every check; each spoilt field is flagged at the factor that is wrong."""
    factor, *_ = case(cls)
    assert all(bool(jnp.all(ok)) for ok in factor.checks().values())
    for field, values in BAD[cls].items():
        for bad in values:
            array = np.array(getattr(factor, field))
            array[0] = bad
            checks = dataclasses.replace(factor, **{field: jnp.asarray(array)}).checks()
            flagged = [np.atleast_1d(~np.asarray(ok)) for ok in checks.values()]
            assert any(f[0] for f in flagged), (field, bad)
            if array.shape[0] > 1:
                assert not any(f[1:].any() for f in flagged), (field, bad)


@pytest.mark.parametrize(
    "cls", [NoisePrecision, NoiseVariance, NoiseWishart, LatentProbs, Gated, SwitchedNoise, *LEARNED], ids=_name
)
def test_mean_field_projection(cls, x64):
    """Closed forms of VMP: `eta_j . T(z_j)` is the expected log-factor up to a constant, by samples of the others."""
    factor, _, marginals = case(cls)
    size, tol = 7, tolerance(x64, 1e-9, 2e-4)
    for j, q in enumerate(marginals):
        (z,) = draws([q], size)
        eta = call(factor.mean_field_projection, j, marginals, RULE)
        assert type(eta) is type(q) and eta.batch_shape == q.batch_shape
        actual = call(lambda eta=eta, z=z: eta.dot(eta.statistics(z)))
        expected = call(lambda z, j=j: factor.mean_field_message(j, marginals, RULE)(z), z)
        gap = np.asarray(actual) - np.asarray(expected)
        np.testing.assert_allclose(gap, np.broadcast_to(gap[:1], gap.shape), rtol=tol, atol=tol * 10)


def test_wishart_expectations(x64):
    """The expected log-factor and the predictive density of a residual under a Wishart, by Monte Carlo."""
    factor, _, (r, w) = case(NoiseWishart)
    rng = np.random.default_rng(3)
    energy, density = call(lambda: (factor.expected_log_density((r, w), RULE), factor.predictive_log_density((r, w))))
    for i in range(4):
        wishart = st.wishart(float(w.df[i]), np.asarray(w.scale[i], float)).rvs(40_000, rng)
        mean, covariance = np.asarray(r.mean[i], float), np.asarray(r.covariance[i], float)
        draws_r = rng.multivariate_normal(mean, covariance, 40_000)
        logs = 0.5 * np.linalg.slogdet(wishart)[1] - np.log(2 * np.pi)
        logs -= 0.5 * np.einsum("ni,nij,nj->n", draws_r, wishart, draws_r)
        np.testing.assert_allclose(energy[i], logs.mean(), atol=5 * logs.std() / 200)
        # r is integrated in closed form, so only W is sampled
        total = covariance + np.linalg.inv(wishart)
        logs = -0.5 * np.linalg.slogdet(total)[1] - np.log(2 * np.pi)
        logs -= 0.5 * np.einsum("i,nij,j->n", mean, np.linalg.inv(total), mean)
        values = np.exp(logs)
        np.testing.assert_allclose(np.exp(density[i]), values.mean(), atol=5 * values.std() / 200)


@pytest.mark.core32
@pytest.mark.parametrize(("cls", "j"), SCALAR_EDGES, ids=_name)
def test_finite_far_away(cls, j):
    """No infinity or NaN in values and derivatives, however far the argument."""
    factor, cavities, marginals = case(cls)
    if isinstance(marginals[j], (families.Gamma, families.InverseGamma)):
        z = jnp.array([1e-25, 1e-8, 1e8, 1e15])
    else:
        z = jnp.array([-1e4, -60.0, 0.0, 60.0, 1e4])
    z = jnp.broadcast_to(z[:, None], (len(z), 4))
    if cls is GenericFactor:
        z = jnp.clip(z, -60.0, 60.0) if j == 0 else jnp.clip(z, 1e-8, 1e8)
    message = factor.log_message(j, cavities)
    value, slope = call(lambda z: jax.jvp(message, (z,), (jnp.ones_like(z),)), z)
    assert jnp.all(jnp.isfinite(value))
    assert jnp.all(jnp.isfinite(slope))


@pytest.mark.parametrize(("cls", "j"), EDGES, ids=_name)
def test_gradients_finite(cls, j):
    """Gradients of the projection with respect to parameters, cavities and marginal are finite."""
    factor, cavities, marginals = case(cls)

    def total(factor, cavities, q):
        eta = factor.project(j, q, cavities, RULE)
        return sum(jnp.sum(x) for x in eta.natural) + jnp.sum(factor.expected_log_message(j, q, cavities, RULE))

    arguments, static = eqx.partition((factor, cavities, marginals[j]), eqx.is_inexact_array)
    gradients = call(jax.grad(lambda a: total(*eqx.combine(a, static))), arguments)
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in jax.tree.leaves(gradients))


@pytest.mark.parametrize("cls", PROJECTED, ids=_name)
def test_initial(cls):
    """A starting marginal is proper, in the family of its interface, and of the size of the batch (or shared)."""
    factor, *_ = case(cls)
    start = factor.initial()
    assert len(start) == len(factor.interfaces)
    for q, family in zip(start, factor.families, strict=True):
        assert q is None or (type(q) is family and bool(jnp.all(q.is_proper())) and q.batch_shape in ((4,), (1,)))


@pytest.mark.parametrize("cls", list(FACTORS), ids=_name)
def test_jit_and_dtype(cls, x64):
    """Factors can be made and used under jit; float32 stays float32 with x64 on."""
    if not x64:
        pytest.skip("needs two precisions in one process")

    @jax.jit
    def run():
        factor, cavities, marginals = ORACLE[cls](jax.random.key(0), jnp.float32)
        if isinstance(factor, AbstractConjugate):
            return factor.message()
        if cls in MEAN_FIELD:
            return [factor.mean_field_projection(j, marginals, RULE) for j in range(len(marginals))]
        every = [(j, marginals[j], cavities, RULE) for j in range(len(marginals))]
        return [(factor.project(*args), factor.expected_log_message(*args)) for args in every]

    assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(run))} == {jnp.dtype("float32")}


def test_a_factor_that_only_states_its_density_has_messages():
    """Two interfaces and nothing but `log_density`: the default log-message is the nested quadrature."""

    class Plain(AbstractProjected):
        interfaces = ("r", "tau")
        families = (families.Gaussian, families.Gamma)

        def log_density(self, r, tau):
            return NoisePrecision().log_density(r, tau)

        def checks(self):
            return {}

        def moments(self, r, tau):
            return -r, 1 / tau

    r = families.Gaussian.from_mean_variance(jnp.array([0.3]), jnp.array([0.5]))
    tau = families.Gamma.from_concentration_rate(jnp.array([4.0]), jnp.array([3.0]))
    z = jnp.linspace(0.5, 2.0, 5)[:, None]
    expected = NoisePrecision().log_message(1, (r, tau))(z)
    np.testing.assert_allclose(Plain().log_message(1, (r, tau))(z), expected, rtol=1e-5)
