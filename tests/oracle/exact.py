"""Textbook algorithms with exact answers: Kalman smoother, forward-backward, conjugate regressions, log evidences."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

LOG_2PI = np.log(2 * np.pi)


class Smoothed(NamedTuple):
    """Marginals of a state-space model (time first) and the log evidence."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


def kalman_smoother(
    y: np.ndarray,
    seen: np.ndarray,
    transition: np.ndarray,
    process: np.ndarray,
    emission: np.ndarray,
    noise: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
) -> Smoothed:
    """Filter forward, smooth backward (Rauch, Tung and Striebel).

    x_0 ~ N(mean, covariance); x_k = transition x_{k-1} + N(0, process); y_k = emission x_k + N(0, noise) where seen.

    Args:
        y: (n, m); seen: (n,) booleans; transition, process: (d, d); emission: (m, d); noise: (m, m).

    Returns:
        Marginals of x_0 ... x_n, leading axis n + 1.
    """
    means, covariances, predicted, total = [mean], [covariance], [], 0.0
    for k in range(len(y)):
        m, p = transition @ means[-1], transition @ covariances[-1] @ transition.T + process
        predicted.append((m, p))
        if seen[k]:
            innovation, spread = y[k] - emission @ m, emission @ p @ emission.T + noise
            gain = np.linalg.solve(spread, emission @ p).T
            total += -0.5 * (innovation @ np.linalg.solve(spread, innovation) + np.linalg.slogdet(spread)[1])
            total -= 0.5 * len(innovation) * LOG_2PI
            m, p = m + gain @ innovation, p - gain @ spread @ gain.T
        means.append(m)
        covariances.append(p)
    for k in range(len(y) - 1, -1, -1):
        m, p = predicted[k]
        gain = np.linalg.solve(p, transition @ covariances[k]).T
        means[k] = means[k] + gain @ (means[k + 1] - m)
        covariances[k] = covariances[k] + gain @ (covariances[k + 1] - p) @ gain.T
    return Smoothed(np.stack(means), np.stack(covariances), float(total))


def forward_backward(
    y: np.ndarray, seen: np.ndarray, initial: np.ndarray, transition: np.ndarray, emission: np.ndarray
) -> tuple[np.ndarray, float]:
    """Probabilities of z_0 ... z_n, (n + 1, k), and the log evidence; plain probabilities, for short series."""
    n = len(y)
    likelihood = [np.ones(len(initial))] + [emission[:, y[k]] if seen[k] else np.ones(len(initial)) for k in range(n)]
    alpha, beta = [initial * likelihood[0]], [np.ones(len(initial))]
    for k in range(1, n + 1):
        alpha.append(alpha[-1] @ transition * likelihood[k])
        beta.append(transition @ (beta[-1] * likelihood[n + 1 - k]))
    joint = np.stack(alpha) * np.stack(beta[::-1])
    return joint / joint.sum(1, keepdims=True), float(np.log(joint[-1].sum()))


def enumerate_hmm(
    y: np.ndarray, seen: np.ndarray, initial: np.ndarray, transition: np.ndarray, emission: np.ndarray
) -> tuple[np.ndarray, float]:
    """The same by adding up every path."""
    n, states = len(y), len(initial)
    paths, logs = [], []
    for path in itertools.product(range(states), repeat=n + 1):
        log_p = np.log(initial[path[0]])
        for k in range(n):
            log_p += np.log(transition[path[k], path[k + 1]])
            log_p += np.log(emission[path[k + 1], y[k]]) if seen[k] else 0.0
        paths.append(path)
        logs.append(log_p)
    evidence = logsumexp(logs)
    weights = np.exp(np.asarray(logs) - evidence)
    return np.stack([[weights @ (np.asarray(paths)[:, k] == s) for s in range(states)] for k in range(n + 1)]), evidence


def linear_regression(
    features: np.ndarray, y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, noise: np.ndarray
) -> Smoothed:
    """y ~ N(features w, noise), w ~ N(mean, covariance): the posterior of w, and the evidence in the space of y."""
    precision = np.linalg.inv(covariance) + features.T @ np.linalg.solve(noise, features)
    posterior = np.linalg.inv(precision)
    linear = np.linalg.solve(covariance, mean) + features.T @ np.linalg.solve(noise, y)
    return Smoothed(
        posterior @ linear,
        posterior,
        normal_log_density(y, features @ mean, features @ covariance @ features.T + noise),
    )


def normal_log_density(y: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    r = y - mean
    return float(-0.5 * (r @ np.linalg.solve(covariance, r) + np.linalg.slogdet(covariance)[1] + len(r) * LOG_2PI))
