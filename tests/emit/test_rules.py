"""Message rules: the identities between them, against closed forms and brute force written here in numpy.

References never call our quadratures or projections. Everything is compiled at the lowest optimisation level: most of
the time of these tests would otherwise be spent optimising programs that run once.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special as sp
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Categorical, Gamma, Normal, Poisson, dot, exp, take
from ngmp_kernels import (
    ORACLE,
    AbstractLearnedTable,
    AbstractProjected,
    Quadrature,
    SplitFactor,
    SplitTable,
    registered_factors,
    tilted_match,
)
from ngmp_kernels.factors.categorical import CategoricalTransition
from ngmp_kernels.factors.generic import GenericFactor
from ngmp_kernels.factors.normal import NormalNoise
from ngmp_kernels.factors.normal_noise import NoiseLogPrecision, NoisePrecision
from ngmp_kernels.factors.poisson import PoissonLog
from ngmp_kernels.families import Categorical as CategoricalFamily
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian

FAST = {"xla_backend_optimization_level": 0}
RULE = Quadrature()
NOISE = [NoisePrecision, NoiseLogPrecision]
PROJECTED = dict.fromkeys([c for c in registered_factors() if issubclass(c, AbstractProjected)] + [GenericFactor])
Y = np.array([1.3, -0.2, 0.9, 2.1, 0.4])
EFFECTS = np.array([[0.3, 0.9], [-1.0, -0.4], [2.0, 1.1]])


def run(function, *arguments):
    """Trace and compile as a whole, hardly optimised, and run once."""
    return jax.jit(function, compiler_options=FAST)(*arguments)


def solve(model, method=None, tol=1e-12, **given):
    """The posterior of a model at inputs `given`; options of `compile` are taken out of them."""
    names = ("rules", "factorise", "schedule", "solver", "max_sweeps")
    options = {k: given.pop(k) for k in names if k in given}
    program = ngmp.compile(model, method=method, tol=tol, **{"max_sweeps": 2000, **options})
    post = run(lambda inputs: program(**inputs), given)
    assert jnp.all(post.converged), (method, post.residual, post.sweeps)
    return post


@functools.cache
def trajectory(model, schedule):
    """Posteriors along undamped sweeps of VMP from the automatic start: arrays with a leading axis of sweeps + 1."""
    program = ngmp.compile(model, method=ngmp.VMP(), schedule=list(schedule), solver=optax.sgd(1.0))

    def walk(y):
        def sweep(state, _):
            return program.step(state, y=y), program.posterior(state, y=y)

        return jax.lax.scan(sweep, program.init(y=y), None, 16)[1]

    return run(walk, EFFECTS if model is random_effects else Y)


def close(actual, expected, tol=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def close_families(actual, expected, tol=1e-10):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        close(a, b, tol)


@functools.cache
def case(cls):
    return ORACLE[cls](jax.random.key(5), jnp.float64)


# -- models -----------------------------------------------------------------------------------------------------------


def mean_precision(y, v=25.0):
    x = ngmp.sample("x", Normal(0.0, variance=v))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def conjugate_chain(y):
    z0 = ngmp.sample("z0", Normal(0.5, variance=2.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(0.9 * z, variance=0.3))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def random_walk(y):
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=tau))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def random_effects(y):
    mu = ngmp.sample("mu", Normal(0.0, variance=4.0))
    kappa = ngmp.sample("kappa", Gamma(2.0, rate=1.0))
    tau = ngmp.sample("tau", Gamma(3.0, rate=1.0))
    m = ngmp.sample("m", Normal(mu + jnp.zeros(3), precision=kappa))
    ngmp.sample("y", Normal(m[:, None], precision=tau), obs=y)


def one_count(y, v):
    z = ngmp.sample("z", Normal(0.3, variance=v))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def one_coin(y, v):
    z = ngmp.sample("z", Normal(0.3, variance=v))
    ngmp.sample("y", Bernoulli(logits=z), obs=y)


def hidden_markov(start, table, emission, y):
    z0 = ngmp.sample("z0", Categorical(probs=start))

    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=take(table, z)))
        ngmp.sample("y", Categorical(probs=take(emission, z)), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


# -- brute force ------------------------------------------------------------------------------------------------------


def grid(q, points=1201):
    """Nodes (G, n) and log(q x spacing) by scipy alone."""
    u = np.linspace(-1.0, 1.0, points)[:, None]
    if isinstance(q, Gaussian):
        m, s = np.asarray(q.mean), np.asarray(q.std)
        z = m + 13.0 * s * u
        return z, st.norm(m, s).logpdf(z) + np.log(13.0 * s * (u[1] - u[0]))
    a, b = np.asarray(q.concentration), np.asarray(q.rate)
    low, high = sp.digamma(a) - np.log(b) - 45.0 / a, np.log((a + 60.0 + 12.0 * np.sqrt(a)) / b)
    s = 0.5 * (low + high) + 0.5 * (high - low) * u
    return np.exp(s), st.gamma(a, scale=1 / b).logpdf(np.exp(s)) + s + np.log(0.5 * (high - low) * (u[1] - u[0]))


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


# -- conjugate graphs -------------------------------------------------------------------------------------------------


def exact_chain(y):
    """Means, variances, minus log-evidence of `conjugate_chain`, from its joint Gaussian."""
    n = len(y)
    lower = np.tril(0.9 ** np.abs(np.subtract.outer(np.arange(n + 1), np.arange(n + 1))))
    noise = np.diag([2.0] + [0.3] * n)
    prior, mean = lower @ noise @ lower.T, 0.5 * 0.9 ** np.arange(n + 1)
    h = np.eye(n + 1)[1:]
    s = h @ prior @ h.T + 0.5 * np.eye(n)
    gain = prior @ h.T @ np.linalg.inv(s)
    evidence = st.multivariate_normal(h @ mean, s).logpdf(y)
    return mean + gain @ (y - h @ mean), np.diagonal(prior - gain @ h @ prior), -evidence


@pytest.mark.parametrize("method", [ngmp.BP(), ngmp.NGMP(), ngmp.EP(), ngmp.EP(power=0.5)], ids=repr)
def test_conjugate_graph_is_exact(method):
    """NGMP = BP = EP = exact; the free energy is minus the log-evidence."""
    post = solve(conjugate_chain, method, y=Y)
    mean, variance, energy = exact_chain(Y)
    close(np.concatenate([post["z0"].mean[None], post["z"].mean]), mean)
    close(np.concatenate([post["z0"].variance[None], post["z"].variance]), variance)
    close(post.free_energy, energy)


def test_structured_clusters_of_a_conjugate_chain_are_exact():
    """One cluster of everything: VMP is exact. Alone, every variable keeps its conditional precision."""
    mean, variance, energy = exact_chain(Y)
    post = solve(conjugate_chain, ngmp.VMP(), factorise=[(("z0", "z"),)], y=Y)
    close(post["z"].mean, mean[1:])
    close(post["z"].variance, variance[1:])
    close(post.free_energy, energy)
    apart = solve(conjugate_chain, ngmp.VMP(), y=Y, tol=1e-13)
    close(apart["z"].mean, mean[1:])  # of a Gaussian, mean field gets the means right
    close(1 / apart["z"].variance, 1 / 0.3 + 1 / 0.5 + np.array([0.81 / 0.3] * 4 + [0.0]))
    assert apart.free_energy > energy


# -- unary factors: conjugate-computation variational inference -------------------------------------------------------

UNARY = [c for c in PROJECTED if len(case(c).marginals) == 1]


def expected(factor, mu):
    """`E_q[log f]` as a function of the mean parameters of a Gaussian q, on a grid."""
    mean, variance = mu[0], mu[1] - mu[0] ** 2
    u = jnp.linspace(-13.0, 13.0, 3001)[:, None]
    w = jnp.exp(-0.5 * u**2) * (u[1] - u[0]) / jnp.sqrt(2 * jnp.pi)
    return jnp.sum(w * factor.log_density(mean + jnp.sqrt(variance) * u), 0)


@pytest.mark.parametrize("cls", UNARY, ids=lambda c: c.__name__)
def test_unary_target_is_the_natural_gradient(cls):
    """NGMP (any power) and NCVMP send `grad_mu E_q[log f]`: the step of CVI."""
    factor, _, (q,) = case(cls)
    q = Gaussian.from_mean_variance(q.mean, 0.3 * q.variance)  # so that 32 nodes suffice for every factor
    flat = Gaussian.flat(q.batch_shape, (), q.dtype)

    def both(q):
        gradient = jax.grad(lambda mu: jnp.sum(expected(factor, mu)))(q.to_mean())
        methods = [ngmp.NGMP(), ngmp.NGMP(power=0.5), ngmp.NCVMP()]
        found = [m.target(factor, 0, (q,), (flat,))[0] for m in methods]
        return Gaussian(*gradient), found, [m.evidence(factor, (q,), (flat,)) for m in methods]

    gradient, found, evidence = run(both, q)
    # The exact natural gradient at accuracy of the nodes: 1e-10 for entire factors and for those with distant poles.
    for eta in found:
        close_families(eta, gradient, 1e-10 if cls.__name__ != "StudentTNoise" else 1e-6)
    for value in evidence:
        close(value, expected(factor, q.to_mean()), 1e-10 if cls.__name__ != "StudentTNoise" else 1e-8)


def test_sweep_is_a_step_of_cvi():
    """A sweep with rate rho moves lambda to (1 - rho) lambda + rho (prior + grad_mu E_q[log f])."""
    y, rho, prior = np.array([2.0, 0.0, 5.0]), 0.4, Gaussian.from_mean_variance(0.3, 0.8)
    program = ngmp.compile(one_count, solver=optax.sgd(rho))

    def walk(y):
        return jax.lax.scan(
            lambda s, _: (program.step(s, y=y, v=0.8), program.posterior(s, y=y, v=0.8)["z"]),
            program.init(y=y, v=0.8), None, 6,
        )[1]  # fmt: skip

    q = run(walk, y)
    factor = PoissonLog(jnp.asarray(y))
    for k in range(1, 5):
        now = jax.tree.map(lambda x, k=k: x[k], q)
        gradient = Gaussian(*jax.grad(lambda mu: jnp.sum(expected(factor, mu)))(now.to_mean()))
        step = (1 - rho) * now + rho * (prior + gradient)
        close_families(jax.tree.map(lambda x, k=k: x[k + 1], q), step)


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
OTHERS = [c for c in PROJECTED if not {f.__name__ for f in case(c).factor.families} <= {"Gaussian", "Gamma"}]


@pytest.mark.parametrize("cls", [c for c in PROJECTED if c not in (*UNARY, *ROWS, *OTHERS)], ids=lambda c: c.__name__)
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
        return [(small.target(factor, j, q, flat)[0], ngmp.NCVMP().target(factor, j, q, flat)[0]) for j in (0, 1)]

    for one, other in run(targets, marginals):
        close_families(one, other)


# -- mean field against textbook coordinate updates -------------------------------------------------------------------


def normal_gamma(y, v=25.0):
    """Coordinate updates of the Gaussian-Gamma model and its evidence lower bound, in closed form."""
    n, mean, variance = len(y), 0.0, 1.0
    a = 2.0 + 0.5 * n
    for _ in range(500):
        b = 1.0 + 0.5 * np.sum((y - mean) ** 2 + variance)
        variance = 1 / (1 / v + n * a / b)
        mean = variance * a / b * np.sum(y)
    b = 1.0 + 0.5 * np.sum((y - mean) ** 2 + variance)
    log_tau = sp.digamma(a) - np.log(b)
    elbo = 0.5 * n * (log_tau - np.log(2 * np.pi)) - 0.5 * a / b * np.sum((y - mean) ** 2 + variance)
    elbo += -0.5 * np.log(2 * np.pi * v) - 0.5 * (mean**2 + variance) / v + 0.5 * np.log(2 * np.pi * np.e * variance)
    elbo += 2.0 * np.log(1.0) - sp.gammaln(2.0) + (2.0 - 1) * log_tau - a / b  # E log Gamma(tau; 2, 1)
    elbo += a - np.log(b) + sp.gammaln(a) + (1 - a) * sp.digamma(a)
    return mean, variance, a, b, elbo


@pytest.mark.parametrize("method", [ngmp.VMP(), ngmp.NCVMP(), ngmp.PVMP(tol=1e-13)], ids=lambda m: type(m).__name__)
def test_mean_field_is_the_textbook(method):
    """Normal-Gamma: all three mean-field rules give the closed-form updates, and F is minus the lower bound."""
    post = solve(mean_precision, method, y=Y, tol=1e-13)
    x, tau = post["x"], post["tau"]
    close((x.mean, x.variance, tau.concentration, tau.rate, -post.free_energy), normal_gamma(Y))


def walk_updates(y, joint):
    """Coordinate ascent on the random walk: tau, then the states, one by one or as a chain."""
    n = len(y)
    d = np.diff(np.eye(n + 1), axis=0)
    base = np.diag([0.1] + [2.0] * n)
    data = np.concatenate([[0.0], 2.0 * y])
    mean, cov, a = np.zeros(n + 1), np.eye(n + 1), 2.0 + 0.5 * n
    for _ in range(3000):
        b = 1.0 + 0.5 * (np.sum((d @ mean) ** 2) + np.trace(d @ cov @ d.T))
        precision = base + a / b * d.T @ d
        if joint:
            cov = np.linalg.inv(precision)
            mean = cov @ data
        else:
            cov = np.diag(1 / np.diagonal(precision))
            for t in range(n + 1):
                mean[t] += (data[t] - precision[t] @ mean) / precision[t, t]
    return mean, np.diagonal(cov), a, b


@pytest.mark.parametrize("joint", [False, True])
def test_random_walk_of_unknown_precision(joint):
    """Full mean field, and structured: the chain stays a chain with E[tau]."""
    post = solve(random_walk, ngmp.VMP(), factorise=[(("z0", "z"),)] if joint else None, y=Y, tol=1e-13)
    mean, variance, a, b = walk_updates(Y, joint)
    close(np.concatenate([post["z0"].mean[None], post["z"].mean]), mean)
    close(np.concatenate([post["z0"].variance[None], post["z"].variance]), variance)
    close((post["tau"].concentration, post["tau"].rate), (a, b))


def test_hidden_markov_mean_field():
    start, emission = np.array([0.5, 0.3, 0.2]), np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]])
    table = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])
    y = np.array([0, 1, 1, 0])
    post = solve(hidden_markov, ngmp.VMP(), start=start, table=table, emission=emission, y=y, tol=1e-13)
    log_a = np.log(table)
    unary = np.vstack([np.log(start), np.log(emission).T[y]])
    q = np.full((5, 3), 1 / 3)
    for _ in range(500):
        for t in range(5):
            logits = unary[t].copy()
            logits += q[t - 1] @ log_a if t > 0 else 0
            logits += log_a @ q[t + 1] if t < 4 else 0
            q[t] = sp.softmax(logits)
    close(np.vstack([post["z0"].probs, post["z"].probs]), q)
    elbo = np.sum(q * unary) + np.einsum("ti,ij,tj->", q[:-1], log_a, q[1:]) - np.sum(q * np.log(q))
    close(-post.free_energy, elbo)
    inputs = {"start": start, "table": table, "emission": emission, "y": y}
    chain = solve(hidden_markov, ngmp.VMP(), factorise=[(("z0", "z"),)], **inputs)
    assert -chain.free_energy > elbo  # one cluster is exact


def heteroscedastic(phi, y):
    v = ngmp.sample("v", Normal(0.0, variance=2.0))
    w = ngmp.sample("w", Normal(0.2, variance=0.5))
    ngmp.sample("y", Normal(phi * v, precision=exp(phi * w)), obs=y)


def test_projective_and_non_conjugate_share_fixed_points():
    """NCVMP projects once a sweep, PVMP to convergence on the edge: one fixed point, that of the gradient of F."""
    phi = np.linspace(0.5, 1.5, 5)
    once = solve(heteroscedastic, ngmp.NCVMP(), phi=phi, y=Y, tol=1e-13)
    inner = solve(heteroscedastic, ngmp.PVMP(tol=1e-13), phi=phi, y=Y, tol=1e-12)
    close_families(once.marginals, inner.marginals)
    close(once.free_energy, inner.free_energy)

    def energy(mu):  # written out: E[-log p] - entropy, with all expectations of exp(s) in closed form
        (mv, sv), (mw, sw) = ((m[0], m[1] - m[0] ** 2) for m in mu)
        square = (Y - phi * mv) ** 2 + phi**2 * sv
        data = 0.5 * (phi * mw - jnp.log(2 * jnp.pi) - square * jnp.exp(phi * mw + 0.5 * phi**2 * sw))
        prior = -0.5 * (jnp.log(2 * jnp.pi * 2.0) + (mv**2 + sv) / 2.0)
        prior += -0.5 * (jnp.log(2 * jnp.pi * 0.5) + ((mw - 0.2) ** 2 + sw) / 0.5)
        return -jnp.sum(data) - prior - 0.5 * jnp.log(2 * jnp.pi * jnp.e * sv) - 0.5 * jnp.log(2 * jnp.pi * jnp.e * sw)

    mu = [once[k].to_mean() for k in ("v", "w")]
    close(once.free_energy, energy(mu))
    for slope in jax.tree.leaves(jax.grad(energy)(mu)):
        assert abs(slope) < 1e-9


def test_projective_target_is_the_iterated_projection():
    """PVMP's message is the limit of NCVMP projections on the edge, at a fixed cavity, also where that is flat."""
    factor, cavities, (r, _) = case(NoiseLogPrecision)
    flat = Gaussian.flat(r.batch_shape, (), r.dtype)
    leaf = Gaussian(flat.eta1 + 0.2, flat.eta2 - 0.3)
    rule = ngmp.PVMP(tol=1e-14)

    def iterated(r, cavity):
        def body(_, eta):
            return 0.5 * eta + 0.5 * ngmp.NCVMP().target(factor, 1, (r, cavity + eta), (flat, eta))[0]

        return jax.lax.fori_loop(0, 150, body, leaf), rule.target(factor, 1, (r, cavity + leaf), (flat, leaf))[0]

    close_families(*run(iterated, r, cavities[1]))
    by_steps, solved = run(iterated, r, flat)
    close_families(by_steps, solved)
    # q(s) nearest to exp(s/2 - E[r^2] e^s/2): E[e^s] E[r^2] = 1 and precision 1/2.
    close(solved.variance, np.full(4, 2.0))
    close(solved.mean, -np.log(np.asarray(r.mean**2 + r.variance)) - 1.0)


# -- limits: vanishing uncertainty, small powers ----------------------------------------------------------------------


def test_ngmp_is_vmp_where_uncertainty_vanishes():
    """As the prior of x narrows, the cavities of r become points, and integrating f or log f is the same."""
    variances = jnp.array([1e-1, 1e-3, 1e-5, 1e-12])

    def both(v):
        programs = [ngmp.compile(mean_precision, method=m, tol=1e-13) for m in (ngmp.NGMP(), ngmp.VMP())]
        return [jax.vmap(lambda v, p=p: p(y=Y, v=v)["tau"])(v) for p in programs]

    one, other = run(both, variances)
    gap = np.abs(np.asarray(one.eta2 / other.eta2) - 1)
    assert gap[0] > 10 * gap[1] > 100 * gap[2]
    assert gap[3] < 1e-10 and abs(one.eta1[3] - other.eta1[3]) < 1e-10


def test_small_power_is_vmp():
    """NGMP and EP of a vanishing fraction are VMP; the distance is of the order of the fraction."""
    vmp = np.array(normal_gamma(Y)[:4])

    def found(method, tol):
        post = solve(mean_precision, method, y=Y, tol=tol)
        return np.array([post["x"].mean, post["x"].variance, post["tau"].concentration, post["tau"].rate])

    close(found(ngmp.NGMP(power=1e-11), 1e-12), vmp)
    # Dividing by the fraction multiplies rounding errors: EP cannot go as far.
    gaps = [np.abs(found(ngmp.EP(power=p), 1e-9) / vmp - 1).max() for p in (1e-2, 1e-3)]
    assert 9 < gaps[0] / gaps[1] < 11


@pytest.mark.parametrize("cls", NOISE, ids=lambda c: c.__name__)
def test_power_one_is_the_plain_rule(cls):
    """The fractional formulas at p = 1 (up to a rounding unit) against the plain ones, by interface too."""
    factor, _, marginals = case(cls)
    leaves = (0.1 * marginals[0], 0.2 * marginals[1])
    last = factor.interfaces[1]
    almost = 1 - 1e-15

    def targets(q):
        pairs = [(kind(), kind(power=almost), kind(power={last: almost})) for kind in (ngmp.NGMP, ngmp.EP)]
        found = [[[r.target(factor, j, q, leaves)[0] for r in rules] for j in (0, 1)] for rules in pairs]
        return found, [[r.evidence(factor, q, leaves) for r in rules] for rules in pairs]

    found, evidence = run(targets, marginals)
    tol = 1e-10 if cls is NoisePrecision else 1e-6  # toward r, the fraction uses plainer nodes
    for plain, *others in found[0] + found[1]:
        for eta in others:
            close_families(eta, plain, tol)
    for plain, *others in evidence:
        for value in others:
            close(value, plain, 1e-9)


def test_power_by_interface():
    """`power={"tau": p}`: p toward tau, 1 toward r, each with its own cavities."""
    factor, _, marginals = case(NoisePrecision)
    leaves = (0.1 * marginals[0], 0.2 * marginals[1])
    for kind in (ngmp.NGMP, ngmp.EP):

        def targets(q, kind=kind):
            rules = kind(power={"tau": 0.5}), kind(), kind(power=0.5)
            return [[r.target(factor, j, q, leaves)[0] for r in rules] for j in (0, 1)]

        (r, plain, _), (tau, _, half) = run(targets, marginals)
        close_families(r, plain, 1e-14)
        close_families(tau, half, 1e-14)


# -- expectation propagation ------------------------------------------------------------------------------------------

PRIORS = np.array([0.5, 2.0, 20.0])


@pytest.mark.parametrize("model, outcomes", [(one_count, [0.0, 3.0, 40.0]), (one_coin, [0.0, 1.0, 1.0])])
def test_ep_with_one_site_is_exact(model, outcomes):
    """One site: the marginal has the moments of the posterior, and F is minus the log-evidence."""
    program = ngmp.compile(model, method=ngmp.EP(), tol=1e-12)
    post = run(jax.vmap(lambda y, v: program(y=y, v=v)), np.asarray(outcomes), PRIORS)
    assert post.converged.all()
    for k, (y, v) in enumerate(zip(outcomes, PRIORS, strict=True)):
        z = np.linspace(-60, 60, 200001)
        like = st.poisson(np.exp(np.minimum(z, 30))).logpmf(y) if model is one_count else sp.log_expit((2 * y - 1) * z)
        mass = np.exp(like + st.norm(0.3, v**0.5).logpdf(z)) * (z[1] - z[0])
        total = mass.sum()
        mean = mass @ z / total
        close(post["z"].mean[k], mean)
        close(post["z"].variance[k], mass @ (z - mean) ** 2 / total)
        close(post.free_energy[k], -np.log(total))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_ep_certificate(power):
    """At a fixed point every tilted distribution has the moments of the marginals, by brute force in two dimensions."""
    post = solve(mean_precision, ngmp.EP(power=power), y=Y, tol=1e-13)
    x, tau, leaves = post["x"], post["tau"], post.state.leaves
    one = jnp.ones(len(Y))
    r = Gaussian.from_mean_variance(jnp.asarray(Y) - x.mean, x.variance * one)
    q = GammaFamily(tau.eta1 * one, tau.eta2 * one)
    cavities = (r - power * leaves["y.r"], q - power * leaves["y.tau"])
    (z, w), (t, u) = (grid(c, 701) for c in cavities)
    log_f = 0.5 * np.log(t[None]) - 0.5 * np.log(2 * np.pi) - 0.5 * t[None] * z[:, None] ** 2
    mass = np.exp(w[:, None] + u[None] + power * log_f)
    mass /= mass.sum((0, 1))
    over_r, over_tau = mass.sum(1), mass.sum(0)
    close((over_r * z).sum(0), r.mean, 1e-9)
    close((over_r * z**2).sum(0), r.mean**2 + r.variance, 1e-9)
    close((over_tau * np.log(t)).sum(0), q.to_mean()[0], 1e-9)
    close((over_tau * t).sum(0), q.mean, 1e-9)


def test_tilted_match_of_every_family():
    """A message in the family: cavity times message comes back."""
    gamma = GammaFamily.from_concentration_rate(jnp.array([3.0, 5.0]), jnp.array([2.0, 6.0]))
    normal = Gaussian.from_mean_variance(jnp.array([0.3, 2.0]), jnp.array([0.5, 0.1]))
    classes = CategoricalFamily(jnp.array([[0.1, 0.5, -1.0]]))
    for q in (gamma, normal, classes):
        cavity, message = q - 0.3 * q, 0.3 * q
        found = run(lambda q, c, m: tilted_match(q, c, lambda z: jax.vmap(lambda t: m.dot(m.statistics(t)))(z), RULE),
                    q, cavity, message)  # fmt: skip
        close_families(found.to_mean(), q.to_mean())


# -- free energy, mixed rules, schedules ------------------------------------------------------------------------------

COORDINATES = [
    (mean_precision, ("y.r",)),  # what is not named comes last
    (mean_precision, ("y.tau", "y.r")),
    # m has two messages, which are one coordinate only if they move together
    (random_effects, (("m.r1", "y.r"), "m.r2", ("m.tau", "y.tau"))),
]


@pytest.mark.parametrize("model, schedule", COORDINATES, ids=["x-tau", "tau-x", "effects"])
def test_free_energy_decreases(model, schedule):
    """Undamped block sweeps of VMP are coordinate descent on F."""
    energy = np.asarray(trajectory(model, schedule).free_energy)
    steps = np.diff(energy)
    assert (steps <= 1e-12).all()
    assert steps.min() < -1e-2 and steps[-1] > -1e-3


def test_schedule_order():
    """Blocks move in the order given, each at what the one before left; what is not named comes last."""
    x_first, tau_first = (trajectory(*c) for c in COORDINATES[:2])
    m, v = tau_first["x"].mean[0], tau_first["x"].variance[0]  # the start: E[tau] = 2
    close(v, 1 / (1 / 25 + 2.0 * len(Y)))
    # A sweep leaves the step of its last block pending: after one, only the first block has moved.
    close(tau_first["tau"].rate[1], 1.0 + 0.5 * np.sum((Y - m) ** 2 + v))
    close(tau_first["x"].mean[1], m)
    close(x_first["tau"].rate[1], 1.0)
    mean = v * 2.0 * Y.sum()
    close(x_first["x"].mean[1], mean)
    close(x_first["tau"].rate[2], 1.0 + 0.5 * np.sum((Y - mean) ** 2 + v))


def test_schedules_share_fixed_points():
    """Jacobi and block Gauss-Seidel, by interface."""
    jacobi = solve(mean_precision, ngmp.NGMP(), y=Y)
    blocks = solve(mean_precision, ngmp.NGMP(), y=Y, schedule=["y.r", "y.tau"])
    close_families(jacobi.marginals, blocks.marginals)
    close(jacobi.free_energy, blocks.free_energy)


def test_mixed_rules():
    """VMP on one site, NGMP on a unary one: together the full variational bound, here by hand."""

    def mixed(y, c):
        x = ngmp.sample("x", Normal(0.0, variance=4.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)
        ngmp.sample("c", Poisson(exp(x)), obs=c)

    post = solve(mixed, ngmp.NGMP(), rules={"y": ngmp.VMP()}, y=Y, c=np.array([2.0]), tol=1e-13)
    a, eta1, eta2 = 2.0 + 0.5 * len(Y), 0.0, -1.0
    for _ in range(2000):
        m, v = -0.5 * eta1 / eta2, -0.5 / eta2
        b = 1.0 + 0.5 * np.sum((Y - m) ** 2 + v)
        rho = np.exp(m + 0.5 * v)
        target = a / b * Y.sum() + 2.0 + (m - 1) * rho, -0.5 * (0.25 + a / b * len(Y) + rho)
        eta1, eta2 = 0.5 * (eta1 + target[0]), 0.5 * (eta2 + target[1])
    close((post["x"].mean, post["x"].variance, post["tau"].concentration, post["tau"].rate), (m, v, a, b))
    log_tau = sp.digamma(a) - np.log(b)
    elbo = 0.5 * len(Y) * (log_tau - np.log(2 * np.pi)) - 0.5 * a / b * np.sum((Y - m) ** 2 + v)
    elbo += 2.0 * m - rho - np.log(2.0) - 0.5 * np.log(2 * np.pi * 4.0) - 0.5 * (m**2 + v) / 4.0
    elbo += 0.5 * np.log(2 * np.pi * np.e * v) + log_tau - a / b
    elbo += a - np.log(b) + sp.gammaln(a) + (1 - a) * sp.digamma(a)
    close(-post.free_energy, elbo)


def test_random_effects_structured():
    """Means and their mean in one cluster: the core keeps the star, both precisions get joint expectations."""
    post = solve(random_effects, ngmp.VMP(), factorise=[(("mu", "m"),)], y=EFFECTS, tol=1e-13)
    d = np.hstack([-np.ones((3, 1)), np.eye(3)])  # m - mu
    pick = np.repeat(np.eye(4)[1:], 2, 0)
    y, mean, cov = EFFECTS.reshape(-1), np.zeros(4), np.eye(4)
    for _ in range(3000):
        kappa = (2.0 + 1.5) / (1.0 + 0.5 * (np.sum((d @ mean) ** 2) + np.trace(d @ cov @ d.T)))
        tau = (3.0 + 3.0) / (1.0 + 0.5 * (np.sum((y - pick @ mean) ** 2) + np.trace(pick @ cov @ pick.T)))
        cov = np.linalg.inv(np.diag([0.25, 0, 0, 0]) + kappa * d.T @ d + tau * pick.T @ pick)
        mean = cov @ pick.T @ y * tau
    close((post["kappa"].mean, post["tau"].mean), (kappa, tau))
    close(np.concatenate([post["mu"].mean[None], post["m"].mean]), mean)
    close(np.concatenate([post["mu"].variance[None], post["m"].variance]), np.diagonal(cov))


def test_dot_is_one_variable():
    """The weights of a regression are one vector: mean field does not take a linear functional of them apart."""
    features = np.array([[1.0, 0.2], [1.0, -0.5], [1.0, 1.5], [1.0, 0.7], [1.0, -1.1]])

    def regression(phi, y):
        w = ngmp.sample("w", ngmp.MvNormal(jnp.zeros(2), covariance=4.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(dot(phi, w), precision=tau), obs=y)

    post = solve(regression, ngmp.VMP(), phi=features, y=Y, tol=1e-13)
    mean, cov, a = np.zeros(2), np.eye(2), 2.0 + 2.5
    for _ in range(500):
        b = 1.0 + 0.5 * (np.sum((Y - features @ mean) ** 2) + np.trace(features @ cov @ features.T))
        cov = np.linalg.inv(np.eye(2) / 4.0 + a / b * features.T @ features)
        mean = cov @ features.T @ Y * a / b
    close(post["w"].mean, mean)
    close(post["w"].covariance, cov)
    close((post["tau"].concentration, post["tau"].rate), (a, b))


def test_ngmp_between_clusters_is_mean_field():
    readings = np.array([0.3, 1.1, -0.4, 2.0])

    def mean_precision(y):
        x = ngmp.sample("x", Normal(0.0, variance=25.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)

    apart = ngmp.compile(mean_precision, factorise=[("x", "tau")], tol=1e-12)(y=readings)
    vmp = ngmp.compile(mean_precision, method=ngmp.VMP(), tol=1e-12)(y=readings)
    np.testing.assert_allclose(apart["tau"].rate, vmp["tau"].rate, rtol=1e-10)
    np.testing.assert_allclose(apart["x"].variance, vmp["x"].variance, rtol=1e-10)
