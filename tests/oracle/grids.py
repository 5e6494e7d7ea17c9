"""Scalar exponential families on dense trapezoidal grids: integrals and projections by brute force.

A member is its vector of natural parameters: Gaussian (xi, -Lambda/2), Gamma (a - 1, -b), Beta (a - 1, b - 1),
Bernoulli (logit), Categorical (logits), MvGaussian (xi, then the rows of -Lambda/2). The trapezoidal rule on an
analytic integrand that vanishes at both ends
converges exponentially, so a few hundred points give every digit of float64.
"""

import numpy as np
from scipy.special import betaln, digamma, expit, gammaln, logsumexp

TAIL = 45.0  # nats below the mode at which a grid ends


def proper(family: str, eta: np.ndarray) -> bool:
    """Whether the natural parameters are those of a density."""
    if not np.isfinite(eta).all():
        return False
    if family == "Gaussian":
        return bool(eta[1] < 0)
    if family == "MvGaussian":
        return bool((np.linalg.eigvalsh(_vector(eta)[1]) > 0).all())
    if family == "Gamma":
        return bool(eta[0] > -1 and eta[1] < 0)
    return bool((eta > -1).all()) if family in ("Beta", "Dirichlet") else True


def log_partition(family: str, eta: np.ndarray) -> float:
    """`log` of the integral of `exp(eta . T)`."""
    if family == "Gaussian":
        return float(-(eta[0] ** 2) / (4 * eta[1]) + 0.5 * np.log(np.pi / -eta[1]))
    if family == "Gamma":
        return float(gammaln(eta[0] + 1) - (eta[0] + 1) * np.log(-eta[1]))
    if family == "Beta":
        return float(betaln(eta[0] + 1, eta[1] + 1))
    if family == "Dirichlet":
        return float(gammaln(eta + 1).sum() - gammaln((eta + 1).sum()))
    return float(np.logaddexp(0, eta[0]) if family == "Bernoulli" else logsumexp(eta))


def mean_parameters(family: str, eta: np.ndarray) -> np.ndarray:
    """`E[T]`."""
    if family == "Gaussian":
        mean, variance = -0.5 * eta[0] / eta[1], -0.5 / eta[1]
        return np.array([mean, variance + mean**2])
    if family == "MvGaussian":
        mean, precision = _vector(eta)
        return np.append(mean, np.linalg.inv(precision) + np.outer(mean, mean))
    if family == "Gamma":
        return np.array([digamma(eta[0] + 1) - np.log(-eta[1]), -(eta[0] + 1) / eta[1]])
    if family in ("Beta", "Dirichlet"):
        return digamma(eta + 1) - digamma((eta + 1).sum())
    return expit(eta) if family == "Bernoulli" else np.exp(eta - logsumexp(eta))


def grid(family: str, eta: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights, which sum to one, of expectations under a member; classes of discrete families."""
    if family == "Bernoulli":
        return np.array([0.0, 1.0]), np.array([expit(-eta[0]), expit(eta[0])])
    if family == "Categorical":
        return np.arange(len(eta)), np.exp(eta - logsumexp(eta))
    if family == "MvGaussian":  # 29 points an axis, half a standard deviation apart
        mean, precision = _vector(eta)
        u = np.stack(np.meshgrid(*(np.linspace(-7.0, 7.0, 29),) * len(mean)), -1).reshape(-1, len(mean))
        w = np.exp(-0.5 * (u**2).sum(1))
        return mean + np.linalg.solve(np.linalg.cholesky(precision).T, u.T).T, w / w.sum()
    if family == "Gaussian":
        mean, std = -0.5 * eta[0] / eta[1], np.sqrt(-0.5 / eta[1])
        u = np.linspace(-np.sqrt(2 * TAIL), np.sqrt(2 * TAIL), n)
        z, log_w = mean + std * u, -0.5 * u**2
    elif family == "Gamma":  # in x = log(tau / mean) the log-density is -a (e^x - 1 - x)
        a = eta[0] + 1
        x = np.linspace(*_ends(lambda x: a * (np.expm1(x) - x)), n)
        z, log_w = a / -eta[1] * np.exp(x), -a * (np.expm1(x) - x)
    elif family == "Beta":  # in the logit
        a, b = eta + 1

        def drop(x):
            return a * np.logaddexp(0, -x) + b * np.logaddexp(0, x)

        mode = np.log(a / b)
        x = np.linspace(*_ends(lambda x: drop(mode + x) - drop(mode)), n) + mode
        z, log_w = expit(x), -drop(x)
    else:
        raise ValueError(f"no grid on {family}")
    w = np.exp(log_w - log_w.max())
    return z, w / w.sum()


def _vector(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of a vector of k entries, from k + k^2 natural parameters."""
    k = int(np.sqrt(len(eta)))
    precision = -2 * eta[k:].reshape(k, k)
    return np.linalg.solve(precision, eta[:k]), precision


def few_points(family: str, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with fewer points, for expectations of polynomials: up to degree seven, under a Gaussian."""
    if family != "Gaussian":
        return grid(family, eta, 101)
    u, w = np.polynomial.hermite_e.hermegauss(4)
    return -0.5 * eta[0] / eta[1] + np.sqrt(-0.5 / eta[1]) * u, w / w.sum()


def _ends(drop) -> tuple[float, float]:
    """Where a convex function that vanishes at zero reaches `TAIL`, on either side, by bisection."""
    ends = []
    for sign in (-1.0, 1.0):
        far = 1.0
        while drop(sign * far) < TAIL:
            far *= 2
        near = 0.0
        for _ in range(40):
            middle = 0.5 * (near + far)
            near, far = (middle, far) if drop(sign * middle) < TAIL else (near, middle)
        ends.append(sign * far)
    return ends[0], ends[1]


def project(family: str, z: np.ndarray, w: np.ndarray, log_message: np.ndarray) -> np.ndarray:
    """`F^{-1} Cov_q[T, l]` on the grid (z, w) of the receiving marginal q."""
    if family == "Bernoulli":
        return np.array([log_message[1] - log_message[0]])
    if family == "Categorical":
        return log_message - log_message.mean()
    mean = w @ z
    if family == "MvGaussian":  # T = (u, u_i u_j for i <= j), in deviations u from the mean
        u, (i, j) = z - mean, np.triu_indices(len(mean))
        found = _regress(w, np.concatenate([u.T, u.T[i] * u.T[j]]), log_message)
        slope, eta2 = found[: len(mean)], np.zeros((len(mean), len(mean)))
        eta2[i, j] = found[len(mean) :]
        eta2 = 0.5 * (eta2 + eta2.T)
        return np.append(slope - 2 * eta2 @ mean, eta2)
    if family == "Gaussian":  # T = (z, z^2) in the standardised coordinate, mapped back at the end
        std = np.sqrt(w @ (z - mean) ** 2)
        u = (z - mean) / std
        b1, b2 = _regress(w, np.stack([u, u**2]), log_message)
        return np.array([b1 / std - 2 * mean * b2 / std**2, b2 / std**2])
    if family == "Gamma":
        b1, b2 = _regress(w, np.stack([np.log(z / mean), z / mean]), log_message)
        return np.array([b1, b2 / mean])
    return _regress(w, np.stack([np.log(z), np.log1p(-z)]), log_message)


def _regress(w: np.ndarray, statistics: np.ndarray, values: np.ndarray) -> np.ndarray:
    centred = statistics - (statistics @ w)[:, None]
    values = values - w @ values
    fisher = (centred * w) @ centred.T
    scale = np.sqrt(np.diagonal(fisher))
    return np.linalg.solve(fisher / np.outer(scale, scale), (centred * w) @ values / scale) / scale
