"""The cases of `speed.py`: for every model its data, the contestants, and an exact answer to score them against.

A contestant is a function without arguments that returns arrays by name; the first is ours. Answers that must agree
(ours and the hand-lowered ones iterate the same map) are compared by the caller.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import speed_exact as exact
import speed_peers as smoothers
import speed_peers_ppl as general
from hand_lowered import c_chain
from hand_lowered.heteroscedastic import heteroscedastic as hand_heteroscedastic
from hand_lowered.hmm import hmm as hand_hmm
from hand_lowered.mean_precision import mean_precision as hand_mean_precision
from hand_lowered.poisson_chain import poisson_chain as hand_poisson_chain
from hand_lowered.vector_chain import vector_chain as hand_vector_chain

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import MvNormal

Answer = dict[str, Any]
ALPHA, SWEEPS = 0.5, 20


class Contestant(NamedTuple):
    """`call` answers once; `agrees` says that it iterates our map, so that the answers must be equal.

    A slow one (tenths of seconds a call) takes part in the first `rounds` rounds only, the others in all of them.
    """

    call: Callable[[], Answer]
    agrees: bool = False
    rounds: int | None = None


class Case(NamedTuple):
    title: str
    contestants: dict[str, Contestant]
    error: Callable[[Answer], exact.Error]  # against the exact answer
    error_of: str


def invite(
    contestants: dict[str, Contestant], peers: dict[str, Callable], *data: Any, rounds: int | None = None
) -> None:
    """Add the peers whose library is installed, each given the data."""
    for name, make in peers.items():
        try:
            contestants[name] = Contestant(make(*data), rounds=rounds)
        except ImportError as error:
            print(f"  {name} is left out: {error}")


def damped(model: Callable, **options: Any) -> ngmp.Program:
    """A program that runs `SWEEPS` sweeps of plain damping, whatever the residual: what is written by hand."""
    return ngmp.compile(model, solver=optax.sgd(ALPHA), max_sweeps=SWEEPS + 1, tol=1e-30, **options)


def counts(k: int) -> np.ndarray:
    """Counts whose log-rate is a stationary curve with steps of about the model's size."""
    rng = np.random.default_rng(0)
    z, path = 2.0, []
    for e in rng.standard_normal(k):
        z += 0.02 * (2.0 - z) + 0.25 * e
        path.append(z)
    return rng.poisson(np.exp(path)).astype(float)


def poisson(dtype: Any, k: int) -> Case:
    y, seen = jnp.asarray(counts(k), dtype), jnp.ones(k, bool)
    program, c_program = damped(ngmp_models.poisson_chain), c_chain.load()
    default = ngmp.compile(ngmp_models.poisson_chain, max_sweeps=SWEEPS + 1, tol=1e-30)
    sigma2 = np.asarray(0.1, dtype)

    def ours(program: ngmp.Program) -> Answer:
        post = program(y=y, mask=seen, sigma2=sigma2)
        return {"state": post.state, "free_energy": post.free_energy, "q": post["z"]}

    def named(found: Any) -> Answer:
        return dict(zip(("mean", "variance", "free_energy"), found, strict=True))

    contestants = {
        "ours": Contestant(lambda: ours(program), agrees=True),
        "ours, default solver": Contestant(lambda: ours(default)),
        "hand-lowered scan": Contestant(lambda: named(hand_poisson_chain(y, seen, sigma2, ALPHA, SWEEPS)), True),
    }
    if c_program is not None and dtype == np.float64:
        counted, mask = np.asarray(y), np.asarray(seen)
        contestants["C"] = Contestant(lambda: named(c_program(counted, mask, 0.1, ALPHA, SWEEPS)), True)
    invite(contestants, POISSON_SMOOTHERS, y, sigma2)
    truth = exact.poisson_chain(np.asarray(y, float), 0.1)
    return Case(f"Poisson chain, K = {k}, {SWEEPS} sweeps", contestants, truth.error, exact.MOMENTS)


def short_poisson(dtype: Any, k: int, quick: bool) -> Case:
    """Short enough for general methods; ours and the peers run until they are done, not a number of sweeps."""
    y, sigma2 = jnp.asarray(counts(k), dtype), jnp.asarray(0.1, dtype)
    program = ngmp.compile(ngmp_models.poisson_chain)
    contestants = {"ours": Contestant(lambda: {"q": program(y=y, sigma2=sigma2)["z"]})}
    invite(contestants, POISSON_SMOOTHERS, y, sigma2)
    if not quick:
        invite(contestants, POISSON_GENERAL, y, sigma2, rounds=3)
    truth = exact.poisson_chain(np.asarray(y, float), 0.1)
    return Case(f"Poisson chain, K = {k}", contestants, truth.error, exact.MOMENTS)


def poisson_masks(dtype: Any, k: int, masks: int) -> Case:
    y = jnp.asarray(counts(k), dtype)
    seen = jnp.asarray(np.random.default_rng(1).random((masks, k)) < 0.8)
    program, sigma2 = damped(ngmp_models.poisson_chain), np.asarray(0.1, dtype)

    def one(mask: Any) -> Answer:
        post = program(y=y, mask=mask, sigma2=sigma2)
        return {"q": post["z"], "free_energy": post.free_energy}

    def by_hand(mask: Any) -> Answer:
        found = hand_poisson_chain(y, mask, sigma2, ALPHA, SWEEPS, unroll=1)
        return dict(zip(("mean", "variance", "free_energy"), found, strict=True))

    ours, hand = jax.jit(jax.vmap(one)), jax.jit(jax.vmap(by_hand))
    contestants = {
        "ours": Contestant(lambda: ours(seen), True),
        "hand-lowered scan": Contestant(lambda: hand(seen), True),
    }
    truth = exact.poisson_chain(np.asarray(y, float), 0.1, np.asarray(seen[0]))
    return Case(f"Poisson chain, K = {k}, {masks} masks in one vmap", contestants, truth.first_error, exact.MOMENTS)


def lgssm(y: Any, A: Any, Q: Any, C: Any, R: Any, P0: Any) -> None:
    x0 = ngmp.sample("x0", MvNormal(jnp.zeros(A.shape[0], A.dtype), covariance=P0))

    def step(x, y_k):
        x = ngmp.sample("x", MvNormal(A @ x, covariance=Q))
        ngmp.sample("y", MvNormal(C @ x, covariance=R), obs=y_k)
        return x, None

    ngmp.scan(step, x0, y)


def linear_gaussian(dtype: Any, d: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    A = 0.95 * np.linalg.qr(rng.standard_normal((d, d)))[0]
    C, Q, R, P0 = rng.standard_normal((d // 2, d)), 0.1 * np.eye(d), 0.5 * np.eye(d // 2), np.eye(d)
    x, path = np.zeros(d), []
    for _ in range(k):
        x = A @ x + np.sqrt(0.1) * rng.standard_normal(d)
        path.append(C @ x + np.sqrt(0.5) * rng.standard_normal(d // 2))
    given = {name: jnp.asarray(v, dtype) for name, v in
             {"y": np.stack(path), "A": A, "Q": Q, "C": C, "R": R, "P0": P0}.items()}  # fmt: skip
    program = ngmp.compile(lgssm)

    def ours() -> Answer:
        post = program(**given)
        return {"q": post["x"], "free_energy": post.free_energy}

    def hand() -> Answer:
        return dict(zip(("mean", "variance", "free_energy"), hand_vector_chain(**given), strict=True))

    contestants = {"ours": Contestant(ours, True), "hand-lowered scan": Contestant(hand, True)}
    invite(contestants, LINEAR_SMOOTHERS, *given.values())
    truth = exact.linear_gaussian(*(np.asarray(v, float) for v in (np.stack(path), A, Q, C, R, P0)))
    return Case(f"linear Gaussian chain, d = {d}, K = {k}", contestants, truth.error, exact.MOMENTS)


def hidden_markov(dtype: Any, states: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    initial = np.full(states, 1 / states)
    transition = rng.dirichlet(np.full(states, 0.5), size=states) * 0.2 + 0.8 * np.eye(states)
    emission = rng.dirichlet(np.full(8, 0.5), size=states)
    z, path = 0, []
    for _ in range(k):
        z = rng.choice(states, p=transition[z])
        path.append(rng.choice(8, p=emission[z]))
    y = jnp.asarray(np.array(path))
    tables = {n: jnp.asarray(v, dtype) for n, v in
              {"initial": initial, "transition": transition, "emission": emission}.items()}  # fmt: skip
    program = ngmp.compile(ngmp_models.hmm)

    def ours() -> Answer:
        post = program(y=y, **tables)
        return {"classes": post["z"], "free_energy": post.free_energy}

    def hand() -> Answer:
        return dict(zip(("probs", "free_energy"), hand_hmm(y, **tables), strict=True))

    contestants = {"ours": Contestant(ours, True), "hand-lowered scan": Contestant(hand, True)}
    invite(contestants, MARKOV_SMOOTHERS, y, *tables.values())
    truth = exact.hidden_markov(np.array(path), initial, transition, emission)
    return Case(f"hidden Markov model, {states} states, K = {k}", contestants, truth.error, "of probabilities")


def mean_precision(dtype: Any, n: int, quick: bool = True) -> Case:
    y = jnp.asarray(np.random.default_rng(0).normal(1.5, 0.7, n), dtype)
    program = damped(ngmp_models.mean_precision)

    def hand() -> Answer:
        found = hand_mean_precision(y, ALPHA, SWEEPS)
        return dict(zip(("mean", "variance", "concentration", "rate"), found, strict=True))

    contestants = {"ours": Contestant(lambda: _x_and_tau(program, y), True), "hand-lowered": Contestant(hand, True)}
    if not quick:
        invite(contestants, {"NumPyro, SVI, AutoNormal": general.numpyro_mean_precision}, y, rounds=3)
    truth = exact.mean_precision(np.asarray(y, float))
    return Case(f"mean and precision, N = {n}, {SWEEPS} sweeps", contestants, truth.error, exact.MOMENTS)


def mean_field(dtype: Any, n: int) -> Case:
    """The same by VMP, q(x) q(tau), to convergence."""
    y = jnp.asarray(np.random.default_rng(0).normal(1.5, 0.7, n), dtype)
    program = ngmp.compile(ngmp_models.mean_precision, method=ngmp.VMP())
    contestants = {"ours": Contestant(lambda: _x_and_tau(program, y))}
    if dtype == np.float64:  # all that BayesPy knows
        invite(contestants, {"BayesPy": general.bayespy_mean_precision}, y)
    truth = exact.mean_precision(np.asarray(y, float))
    return Case(f"mean and precision, N = {n}, VMP", contestants, truth.error, exact.MOMENTS)


def _x_and_tau(program: ngmp.Program, y: Any) -> Answer:
    post = program(y=y)
    return {"x": post["x"], "tau": post["tau"]}


def heteroscedastic(dtype: Any, n: int, d: int, e: int, quick: bool = True) -> Case:
    rng = np.random.default_rng(0)
    phi, psi = rng.standard_normal((n, d)) / np.sqrt(d), rng.standard_normal((n, e)) / np.sqrt(e)
    v, w = 2 * rng.standard_normal(d), 1.6 * rng.standard_normal(e)
    y = phi @ v + np.exp(-0.5 * (psi @ w)) * rng.standard_normal(n)
    given = {name: jnp.asarray(x, dtype) for name, x in {"phi": phi, "psi": psi, "y": y}.items()}
    program, c_top = damped(ngmp_models.heteroscedastic), np.asarray(25.0, dtype)

    def ours() -> Answer:
        post = program(**given, c_top=c_top)
        return {"v": post["v"].mean, "w": post["w"].mean, "q": post["s"]}

    def hand() -> Answer:
        found = hand_heteroscedastic(**given, c_top=c_top, alpha=ALPHA, sweeps=SWEEPS)
        return dict(zip(("v", "w", "mean", "variance"), found, strict=True))

    contestants = {"ours": Contestant(ours, True), "hand-lowered": Contestant(hand, True)}
    if not quick:
        invite(
            contestants, {"NumPyro, SVI, AutoNormal": general.numpyro_heteroscedastic}, *given.values(), c_top, rounds=3
        )
    title = f"heteroscedastic regression, N = {n}, D = {d} + {e}, {SWEEPS} sweeps"
    try:
        truth = None if quick else exact.heteroscedastic(phi, psi, y, 25.0)
    except ImportError as error:
        print(f"  no exact answer for {title}: {error}")
        truth = None
    if truth is None:
        return Case(title, contestants, exact.fixed_point(phi, psi, y).error, "of s, to the converged fixed point")
    return Case(title, contestants, truth.error, "of s, to 4000 draws of NUTS, known to about 0.02")


POISSON_SMOOTHERS = {
    "dynamax, EKF": lambda *data: smoothers.dynamax_poisson_chain(*data, "EKF"),
    "dynamax, EKF, 2 iterations": lambda *data: smoothers.dynamax_poisson_chain(*data, "EKF", 2),
    "dynamax, UKF": lambda *data: smoothers.dynamax_poisson_chain(*data, "UKF"),
    "cuthbert, moments": smoothers.cuthbert_poisson_moments,
    "cuthbert, Taylor, 5 passes": lambda *data: smoothers.cuthbert_poisson_taylor(*data, 5),
}
POISSON_GENERAL = {
    "NumPyro, SVI, AutoNormal": lambda *data: general.numpyro_poisson_svi(*data, "AutoNormal"),
    "NumPyro, SVI, AutoMultivariateNormal": lambda *data: general.numpyro_poisson_svi(*data, "AutoMultivariateNormal"),
    "NumPyro, NUTS": general.numpyro_poisson_nuts,
    "BlackJAX, NUTS": general.blackjax_poisson_nuts,
}
LINEAR_SMOOTHERS = {
    "dynamax": smoothers.dynamax_linear_gaussian,
    "cuthbert": smoothers.cuthbert_linear_gaussian,
}
MARKOV_SMOOTHERS = {
    "dynamax": smoothers.dynamax_hidden_markov,
    "cuthbert": smoothers.cuthbert_hidden_markov,
}


def cases(dtype: Any, quick: bool) -> list[Callable[[], Case]]:
    """Every case, made when it is called; `quick` takes shorter chains for the slow ones."""
    k = 2000 if quick else 10_000
    return [
        lambda: poisson(dtype, 3288),
        lambda: poisson_masks(dtype, 3288, 20),
        lambda: short_poisson(dtype, 200, quick),
        lambda: linear_gaussian(dtype, 2, k),
        lambda: linear_gaussian(dtype, 6, k),
        lambda: hidden_markov(dtype, 4, k),
        lambda: hidden_markov(dtype, 32, k),
        lambda: mean_precision(dtype, 512, quick),
        lambda: mean_field(dtype, 512),
        lambda: heteroscedastic(dtype, 400, 129, 33, quick),
    ]
