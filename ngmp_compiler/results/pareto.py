"""Importance weights with their tail smoothed: a generalised Pareto distribution fitted to the largest of them.

The shape k of its tail tells what the weights can be used for: below 0.5 their variance is finite, up to 0.7 means
weighted by them still converge at a useful rate, beyond that they do not (Vehtari and others, 2024).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Smoothed(NamedTuple):
    """Normalised log-weights, k-hat, and the effective number of draws."""

    log_weights: np.ndarray
    khat: float
    ess: float


def smooth(log_ratios: np.ndarray) -> Smoothed:
    """Log-ratios of target and proposal, of any scale, as smoothed and normalised weights."""
    x = log_ratios - log_ratios.max()
    tail = int(np.ceil(min(0.2 * x.size, 3 * np.sqrt(x.size))))
    order = np.argsort(x)
    last, cut = order[-tail:], x[order[-tail - 1]]
    excess = np.exp(x[last]) - np.exp(cut)
    khat = float("inf")
    if tail > 4 and excess[-1] > 1e-12:
        khat, scale = fit(np.maximum(excess, 1e-300))
        if np.isfinite(khat):
            p = (np.arange(tail) + 0.5) / tail
            quantiles = -np.log1p(-p) if abs(khat) < 1e-9 else np.expm1(-khat * np.log1p(-p)) / khat
            x = x.copy()
            x[last] = np.minimum(np.log(np.exp(cut) + scale * quantiles), 0.0)
    elif tail > 4:
        khat = -float("inf")  # all weights are equal
    x = x - logsumexp(x)
    return Smoothed(x, khat, float(np.exp(-logsumexp(2 * x))))


def fit(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution, of sorted excesses: the mean of its profile likelihood
    (Zhang and Stephens, 2009), the shape drawn to one half as by ten further observations."""
    n = excess.size
    m = 30 + int(np.sqrt(n))
    theta = 1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))
    theta = 1 / excess[-1] + theta / (3 * excess[int(n / 4 + 0.5) - 1])
    k = np.mean(np.log1p(-theta[:, None] * excess), 1)
    profile = n * (np.log(-theta / k) - k - 1)
    weights = 1 / np.sum(np.exp(profile - profile[:, None]), 1)
    best = np.sum(theta * weights) / np.sum(weights)
    k = np.mean(np.log1p(-best * excess))
    scale = -k / best
    return float((n * k + 5) / (n + 10)), float(scale)
