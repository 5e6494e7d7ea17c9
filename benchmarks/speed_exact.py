"""Exact answers for `speed.py`, in numpy and double precision, and the error of an answer against them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

MOMENTS = "of means and standard deviations, in exact standard deviations"


def moments(answer: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (diagonals of covariances) of an answer, whoever gave it."""
    q = answer.get("q")
    if q is not None:
        spread = q.variance if hasattr(q, "variance") else q.covariance
        mean, spread = np.asarray(q.mean, float), np.asarray(spread, float)
    else:
        mean, spread = np.asarray(answer["mean"], float), np.asarray(answer["variance"], float)
    if spread.ndim > mean.ndim:
        spread = np.diagonal(spread, axis1=-2, axis2=-1)
    return mean, spread


def probabilities(answer: dict[str, Any]) -> np.ndarray:
    """Probabilities of classes, whoever gave them."""
    return np.asarray(answer["classes"].probs if "classes" in answer else answer["probs"], float)


def summary(answer: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """All of an answer that contestants can be compared by: moments, and the free energy where it is known."""
    if "x" in answer or "concentration" in answer:
        return tuple(np.asarray(v, float) for v in mean_and_precision(answer))
    return moments(answer)


def mean_and_precision(answer: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Mean and variance of x, concentration and rate of tau."""
    if "x" in answer:
        x, tau = answer["x"], answer["tau"]
        return x.mean, x.variance, tau.concentration, tau.rate
    return answer["mean"], answer["variance"], answer["concentration"], answer["rate"]


class Error(NamedTuple):
    """The largest error of an answer and the root of the mean square of all of them."""

    largest: float
    rms: float

    @classmethod
    def of(cls, *errors: np.ndarray) -> "Error":
        flat = np.concatenate([np.ravel(e) for e in errors])
        return cls(float(np.abs(flat).max()), float(np.sqrt(np.mean(flat**2))))


class Truth(NamedTuple):
    """Exact means and standard deviations."""

    mean: np.ndarray
    std: np.ndarray

    def error(self, answer: dict[str, Any]) -> Error:
        return self._error(*moments(answer))

    def first_error(self, answer: dict[str, Any]) -> Error:
        """The same for the first of a batch."""
        mean, variance = moments(answer)
        return self._error(mean[0], variance[0])

    def _error(self, mean: np.ndarray, variance: np.ndarray) -> Error:
        return Error.of((mean - self.mean) / self.std, np.sqrt(variance) / self.std - 1)


class Scored(NamedTuple):
    """An error of another kind."""

    error: Callable[[dict[str, Any]], Error]


def poisson_chain(y: np.ndarray, sigma2: float, seen: np.ndarray | None = None, points: int = 401) -> Truth:
    """Forward-backward on a grid of log-rates, many steps to a standard deviation of the random walk."""
    grid = np.linspace(-8.0, np.log(y.max() + 1) + 3.0, points)
    kernel = np.exp(-0.5 * (grid[:, None] - grid) ** 2 / sigma2)
    kernel /= kernel.sum(1, keepdims=True)
    log_f = y[:, None] * grid - np.exp(grid) - gammaln(y + 1)[:, None]
    f = np.exp(log_f - log_f.max(1, keepdims=True))
    f = f if seen is None else np.where(seen[:, None], f, 1.0)
    past, filtered = np.exp(-0.5 * grid**2 / 10.0), np.empty_like(f)
    for k in range(len(y)):
        past = (past @ kernel) * f[k]
        past /= past.sum()
        filtered[k] = past
    future, out = np.ones(points), np.empty_like(f)
    for k in range(len(y))[::-1]:
        out[k] = filtered[k] * future
        out[k] /= out[k].sum()
        future = kernel @ (f[k] * future)
        future /= future.max()
    mean = out @ grid
    return Truth(mean, np.sqrt(out @ grid**2 - mean**2))


def linear_gaussian(y, A, Q, C, R, P0) -> Truth:
    """The textbook smoother with explicit inverses."""
    m, p, filtered = np.zeros(len(A)), P0, []
    for y_k in y:
        mp, pp = A @ m, A @ p @ A.T + Q
        gain = pp @ C.T @ np.linalg.inv(C @ pp @ C.T + R)
        m, p = mp + gain @ (y_k - C @ mp), pp - gain @ C @ pp
        filtered.append((m, p, mp, pp))
    means, spreads = [m], [p]
    for (mf, pf, _, _), (_, _, mp, pp) in zip(filtered[-2::-1], filtered[:0:-1], strict=True):
        gain = pf @ A.T @ np.linalg.inv(pp)
        m, p = mf + gain @ (m - mp), pf + gain @ (p - pp) @ gain.T
        means.append(m)
        spreads.append(p)
    return Truth(np.stack(means[::-1]), np.sqrt(np.diagonal(np.stack(spreads[::-1]), axis1=1, axis2=2)))


def hidden_markov(y, initial, transition, emission) -> Scored:
    """Scaled forward-backward."""
    f = emission[:, y].T
    past, filtered = initial, []
    for row in f:
        past = (past @ transition) * row
        past = past / past.sum()
        filtered.append(past)
    future, out = np.ones(len(initial)), []
    for row, past in zip(f[::-1], filtered[::-1], strict=True):
        out.append(past * future / (past @ future))
        future = transition @ (row * future)
        future /= future.sum()
    truth = np.stack(out[::-1])

    def error(answer: dict[str, Any]) -> Error:
        return Error.of(probabilities(answer) - truth)

    return Scored(error)


def mean_precision(y: np.ndarray) -> Scored:
    """Moments of x and tau by quadrature over log tau; given tau, x is Gaussian."""
    n, total = len(y), y.sum()
    centre = np.log(1 / y.var())
    t = np.exp(centre + np.linspace(-14, 14, 4001) / np.sqrt(n))
    precision = 1 / 25.0 + n * t
    m = t * total / precision
    square = np.sum(y**2)
    log_p = (
        2 * np.log(t) - t + 0.5 * n * np.log(t) - 0.5 * t * square - 0.5 * np.log(precision) + 0.5 * precision * m**2
    )
    w = np.exp(log_p - log_p.max())
    w /= w.sum()
    mean = w @ m
    truth = Truth(np.array([mean, w @ t]), np.sqrt([w @ (1 / precision + m**2) - mean**2, w @ t**2 - (w @ t) ** 2]))

    def error(answer: dict[str, Any]) -> Error:
        m, v, a, b = (float(np.asarray(z)) for z in mean_and_precision(answer))
        return truth.error({"mean": np.array([m, a / b]), "variance": np.array([v, a / b**2])})

    return Scored(error)


def heteroscedastic(phi: np.ndarray, psi: np.ndarray, y: np.ndarray, c_top: float, draws: int = 4000) -> Truth:
    """Moments of the log-precisions s: a long chain of NUTS (BlackJAX) over both weights, s integrated by quadrature.

    Moments of s given the weights are averaged over draws, which leaves a Monte Carlo error of about 0.02.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    d, e = phi.shape[1], psi.shape[1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)

    def given(q):
        """Nodes of s and their log-weights times the likelihood, (n, 20), at weights q."""
        s = (psi @ q[d:])[:, None] + nodes / np.sqrt(c_top)
        return s, np.log(weights / weights.sum()) + 0.5 * s - 0.5 * (y - phi @ q[:d])[:, None] ** 2 * jnp.exp(s)

    def log_density(q):
        prior = jnp.sum(q[:d] ** 2) / 4.0 + jnp.sum(q[d:] ** 2) / 2.56
        return jnp.sum(jax.nn.logsumexp(given(q)[1], axis=1)) - 0.5 * prior

    @jax.jit
    def run(key):
        warm, draw = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = adaptation.run(warm, jnp.zeros(d + e), num_steps=500)
        step = blackjax.nuts(log_density, **parameters).step

        def one(state, key):
            state, _ = step(key, state)
            s, log_w = given(state.position)
            w = jax.nn.softmax(log_w, axis=1)
            return state, (jnp.sum(w * s, 1), jnp.sum(w * s * s, 1))

        return jax.tree.map(lambda x: jnp.mean(x, 0), jax.lax.scan(one, state, jax.random.split(draw, draws))[1])

    with jax.enable_x64(True):
        mean, square = (np.asarray(x) for x in run(jax.random.key(0)))
    return Truth(mean, np.sqrt(square - mean**2))


def fixed_point(phi: np.ndarray, psi: np.ndarray, y: np.ndarray) -> Truth:
    """The log-precisions at the converged fixed point, by the hand-lowered map in many sweeps."""
    import jax
    import jax.numpy as jnp
    from hand_lowered.heteroscedastic import heteroscedastic

    with jax.enable_x64(True):
        found = heteroscedastic(*map(jnp.asarray, (phi, psi, y)), 25.0, 0.5, 200)
    return Truth(np.asarray(found[2], float), np.sqrt(np.asarray(found[3], float)))
