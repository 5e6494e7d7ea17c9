"""Exact answers for `speed.py`, in numpy and double precision, and the error of an answer against them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

MOMENTS = "largest error of a mean or standard deviation, in exact standard deviations"


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


class Truth(NamedTuple):
    """Exact means and standard deviations."""

    mean: np.ndarray
    std: np.ndarray

    def error(self, answer: dict[str, Any]) -> float:
        return self._error(*moments(answer))

    def first_error(self, answer: dict[str, Any]) -> float:
        """The same for the first of a batch."""
        mean, variance = moments(answer)
        return self._error(mean[0], variance[0])

    def _error(self, mean: np.ndarray, variance: np.ndarray) -> float:
        return float(max(np.abs((mean - self.mean) / self.std).max(), np.abs(np.sqrt(variance) / self.std - 1).max()))


class Scored(NamedTuple):
    """An error of another kind."""

    error: Callable[[dict[str, Any]], float]


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

    def error(answer: dict[str, Any]) -> float:
        return float(np.abs(probabilities(answer) - truth).max())

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

    def error(answer: dict[str, Any]) -> float:
        m, v, a, b = (float(np.asarray(z)) for z in mean_and_precision(answer))
        return truth.error({"mean": np.array([m, a / b]), "variance": np.array([v, a / b**2])})

    return Scored(error)


def fixed_point(phi: np.ndarray, psi: np.ndarray, y: np.ndarray) -> Truth:
    """The log-precisions at the converged fixed point, by the hand-lowered map in many sweeps."""
    import jax.numpy as jnp
    from hand_lowered.heteroscedastic import heteroscedastic

    found = heteroscedastic(*map(jnp.asarray, (phi, psi, y)), 25.0, 0.5, 200)
    return Truth(np.asarray(found[2], float), np.sqrt(np.asarray(found[3], float)))
