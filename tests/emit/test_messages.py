"""Messages of factors, whole or taken apart, against brute force written in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

import ngmp_compiler as ngmp
from ngmp_compiler.emit.rules import Incoming
from ngmp_kernels import (
    AbstractLearnedTable,
    SplitFactor,
    SplitTable,
)
from ngmp_kernels.factors.categorical import CategoricalTransition
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal import NormalNoise
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.factors.poisson import PoissonLog
from ngmp_kernels.families import Categorical as CategoricalFamily
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian
from tests.emit.rule_models import NOISE, PROJECTED, RULE, UNARY, case, close, close_families, grid, run


def density(factor, *z):
    return np.asarray(factor.log_density(*map(jnp.asarray, z)))


def points_of(q):
    """A few places (5, n) where a message toward q is compared."""
    z, log_mass = grid(q, 401)
    cumulative = np.cumsum(np.exp(log_mass), 0)
    rows = [np.argmax(cumulative > level, 0) for level in (0.01, 0.2, 0.5, 0.8, 0.99)]
    return np.stack([z[r, np.arange(z.shape[1])] for r in rows])


def brute(factor, j, others, reduce):
    """`reduce(log f, log mass)` over the other interface of a pair, at `points_of` the receiving marginal."""
    z = points_of(others[j])
    other, log_mass = grid(others[1 - j])
    arguments = (z[:, None], other[None]) if j == 0 else (other[None], z[:, None])
    return reduce(density(factor, *arguments), log_mass[None])


# -- kernels: messages against brute force ----------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.5, 0.2, 1.0])
@pytest.mark.parametrize("cls", NOISE, ids=lambda c: c.__name__)
def test_fractional_message(cls, power):
    """`(1/p) log ∫ f^p q`, constants included."""
    factor, cavities, _ = case(cls)
    for j in (0, 1):
        z = jnp.asarray(points_of(cavities[j]))
        actual = run(lambda c, z, j=j: factor.fractional_message(j, c, power, RULE)(z), cavities, z)
        wanted = brute(factor, j, cavities, lambda f, w: sp.logsumexp(power * f + w, axis=1) / power)
        close(actual, wanted, 1e-10 if cls is NoisePrecision or j == 1 else 1e-7)


ROWS = [c for c in PROJECTED if issubclass(c, AbstractLearnedTable)]  # test_learned_tables.py

# Families without a grid here: tests/kernels/factors/test_oracle.py.
TOGETHER = [c for c in PROJECTED if c.joins == "always"]  # mean field is refused there
OTHERS = [c for c in PROJECTED if not {f.__name__ for f in case(c).factor.families} <= {"Gaussian", "Gamma"}]


LEFT = [c for c in PROJECTED if c not in (*UNARY, *ROWS, *OTHERS, *TOGETHER)]


@pytest.mark.parametrize("cls", LEFT, ids=lambda c: c.__name__)
def test_mean_field_message(cls):
    """`E[log f | z_j]` under the other marginal, and `E[log f]`, of every projected factor of two interfaces."""
    factor, _, marginals = case(cls)

    def messages(q, z):
        return [factor.mean_field_message(j, q, RULE)(z[j]) for j in (0, 1)], factor.expected_log_density(q, RULE)

    z = [jnp.asarray(points_of(q)) for q in marginals]
    found, energy = run(messages, marginals, z)
    for j in (0, 1):
        close(found[j], brute(factor, j, marginals, lambda f, w: np.sum(np.exp(w) * f, 1)))
    (z0, w0), (z1, w1) = (grid(q, 401) for q in marginals)
    close(energy, np.sum(np.exp(w0[:, None] + w1[None]) * density(factor, z0[:, None], z1[None]), (0, 1)))


def split_cases():
    def some(mean, variance):
        return Gaussian.from_mean_variance(jnp.array(mean), jnp.array(variance))

    a, b = some([0.3, -0.5], [0.2, 0.4]), some([1.0, 0.2], [0.5, 0.1])
    tau = GammaFamily.from_concentration_rate(jnp.array([3.0, 5.0]), jnp.array([2.0, 6.0]))
    return {
        "normal": (SplitFactor(base=NormalNoise(jnp.array([2.0])), parts=(2,)), (a, b)),
        "count": (SplitFactor(base=PoissonLog(jnp.array([2.0, 0.0])), parts=(2,)), (a, b)),
        "precision": (SplitFactor(base=NoisePrecision(), parts=(2, 1)), (a, b, tau)),
        "log-precision": (SplitFactor(base=NoiseLogPrecision(), parts=(1, 2)), (a, b, some([-0.2, 0.1], [0.3, 0.2]))),
    }


@pytest.mark.parametrize("name", split_cases())
def test_split_factor(name):
    """Every message of a factor taken apart is the brute-force expectation over all its other parts."""
    factor, marginals = split_cases()[name]
    d = len(marginals)
    assert len(factor.interfaces) == len(set(factor.interfaces)) == d
    assert len(factor.families) == len(factor.in_family()) == len(factor.initial()) == d
    grids = [grid(q, 121) for q in marginals]

    def at(i, axis_of):  # the nodes of interface i on axis axis_of[i] of a grid over the others
        shape = [1] * len(axis_of)
        shape[axis_of[i]] = -1
        return [x.reshape(*shape, x.shape[-1]) for x in grids[i]]

    z = [jnp.asarray(points_of(q)) for q in marginals]

    def all_messages(q, z):
        messages = [factor.mean_field_message(j, q, RULE)(z[j]) for j in range(d)]
        return messages, factor.expected_log_density(q, RULE)

    messages, energy = run(all_messages, marginals, z)
    for j in range(d):
        others = [i for i in range(d) if i != j]
        axis_of = {i: k for k, i in enumerate(others)}
        values = {i: at(i, axis_of)[0][None] for i in others}
        values[j] = np.asarray(z[j]).reshape(5, *[1] * len(others), -1)
        mass = sum(at(i, axis_of)[1] for i in others)
        log_f = density(factor, *(values[i] for i in range(d)))
        axes = tuple(range(1, d))
        wanted = np.sum(np.exp(mass)[None] * log_f, axes)
        close(messages[j], wanted)
        if j == 0:
            first, log_mass = grids[0]
            message = factor.mean_field_message(0, marginals, RULE)(jnp.asarray(first))
            close(energy, np.sum(np.exp(log_mass) * message, 0))


def test_split_pair():
    factor, *_ = case(CategoricalTransition)
    pair, table = SplitTable(base=factor), np.asarray(factor.log_table)
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(2), 4)
    marginals = (CategoricalFamily.from_probs(jnp.asarray(p)), CategoricalFamily.from_probs(jnp.asarray(q)))
    rows, columns = (jnp.arange(k)[:, None] * jnp.ones((1, 4), int) for k in (3, 2))
    close(pair.mean_field_message(0, marginals, RULE)(rows), np.einsum("nkl,nl->kn", table, q))
    close(pair.mean_field_message(1, marginals, RULE)(columns), np.einsum("nkl,nk->ln", table, p))
    close(pair.expected_log_density(marginals, RULE), np.einsum("nkl,nk,nl->n", table, p, q))


def test_mean_field_target_is_one_projection_of_ngmp():
    """With marginals for cavities *and* expectations for integrals; where the log commutes both are NCVMP's.

    NGMP integrates f, NCVMP log f: for f^p with p -> 0 they are the same, which is exact here to the order of p.
    """
    factor, _, marginals = case(NoisePrecision)
    flat = tuple(type(q).flat(q.batch_shape, (), q.dtype) for q in marginals)  # cavities are then the marginals

    def targets(q):
        small = ngmp.NGMP(power=1e-12)
        given = Incoming(q, flat)
        return [(small.target(factor, j, given)[0], ngmp.NCVMP().target(factor, j, given)[0]) for j in (0, 1)]

    for one, other in run(targets, marginals):
        close_families(one, other)
