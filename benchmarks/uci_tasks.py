r"""What the UCI study fixes before inference: settings, standardised data, feature maps, priors.

The layers of the published model are random Fourier features. The mean of the tuned one is a Gaussian process with the
kernel

$$ k(x, x') = a\, e^{-r^2/2} + b\, (1 + \sqrt3 r/\rho)\, e^{-\sqrt3 r/\rho} + \tfrac1{10} x^\top x' + 1, \qquad
   r^2 = \sum_i (x_i - x'_i)^2 / \ell_i^2, $$

smooth, rough, linear and constant, with a, b, rho, every l_i and a constant noise by the evidence of (at most 600 of)
the training rows. As a regression on features its stationary part is $\varphi(x) = L^{-1} k(Z, x)$ with $k(Z, Z) =
L L^\top$ and the training rows, or 1000 of them, as the centres Z: the Gaussian process itself at the centres. What
the centres do not tell of f(x), $a + b - |\varphi(x)|^2$, is added to the variance of predictions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ngmp_models import data, fourier_features, fourier_map, matern32

ROWS = 600  # for the evidence
CENTRES = 1500  # all rows are centres of the kernel if they are no more; otherwise 1000 of them


class Settings(NamedTuple):
    """What an arm fixes."""

    features: int = 1000  # of every layer that has random ones
    levels: int = 2  # of log-precision
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    lengthscales: tuple[float, ...] = (1.5, 1.5 / 2**0.5, 0.75)  # of the mean and of every level
    kernel: bool = False  # a learned kernel for the mean, whose lengthscales those of the levels then multiply
    log: bool = False  # with a kernel: model the logarithm of the target
    c_top: float = 25.0  # precision of the top level; a small one gives the noise heavy tails
    mean_field: bool = False
    student: bool = True  # integrate the predictive over s1; otherwise a Gaussian of the expected variance


class Task(NamedTuple):
    """One split, ready for inference: inputs of the model, and the same features at the held-out rows."""

    inputs: dict[str, Any]
    held: tuple[jax.Array, ...]
    missing: jax.Array  # variance of the mean at the held-out rows that its features lack
    y: np.ndarray  # held out, standardised
    mean: float  # y * sd + mean is the target, or its logarithm
    sd: float


def standardised(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns less their training mean over their training sd; the mean and the sd."""
    mean, sd = x[rows].mean(0), x[rows].std(0, ddof=1)
    sd = np.where(sd <= 1e-8, 1.0, sd)
    return (x - mean) / sd, mean, sd


# -- a kernel by evidence ---------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """Logarithms of the parameters in the module docstring."""

    lengthscales: jax.Array
    smooth: jax.Array
    rough: jax.Array
    ratio: jax.Array
    noise: jax.Array

    def __call__(self, x: Any, z: Any) -> jax.Array:
        """The stationary part, (n, m)."""
        x, z = x * jnp.exp(-self.lengthscales), z * jnp.exp(-self.lengthscales)
        square = jnp.maximum(jnp.sum(x**2, 1)[:, None] + jnp.sum(z**2, 1)[None] - 2 * x @ z.T, 1e-12)
        r = jnp.sqrt(3 * square) * jnp.exp(-self.ratio)
        return jnp.exp(self.smooth - 0.5 * square) + jnp.exp(self.rough - r) * (1 + r)


@jax.jit
def evidence_kernel(x: jax.Array, y: jax.Array) -> Kernel:
    """120 Adam steps on the evidence of a Gaussian process.

    The gradient of -log N(y; 0, K) is that of tr(W K)/2 with W = K^-1 - K^-1 y y^T K^-1 held fixed.
    """
    eye = jnp.eye(len(y))

    def covariance(p: Kernel) -> jax.Array:
        return p(x, x) + 1.0 + 0.1 * x @ x.T + (jnp.exp(p.noise) + 1e-6) * eye

    def loss(p: Kernel, w: jax.Array) -> jax.Array:
        # A weak prior keeps inputs that do not matter from running off.
        prior = jnp.sum((p.lengthscales - 1) ** 2) + p.smooth**2 + (p.rough + 2) ** 2 + (p.noise + 2) ** 2
        return 0.5 * jnp.sum(w * covariance(p)) + 0.05 * prior + 0.5 * (p.ratio + 1.5) ** 2

    def step(carry, _):
        p, state = carry
        inverse = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(covariance(p)), True), eye)
        alpha = inverse @ y
        updates, state = adam.update(jax.grad(loss)(p, inverse - jnp.outer(alpha, alpha)), state)
        return (jax.tree.map(jnp.add, p, updates), state), None

    adam: Any = optax.adam(optax.cosine_decay_schedule(0.15, 120))
    start = Kernel(jnp.full(x.shape[1], 1.0), *(jnp.asarray(c) for c in (0.0, -2.0, -1.5, -2.0)))
    return jax.lax.scan(step, (start, adam.init(start)), None, length=120)[0][0]


def dequantised(whole: data.Regression, split: int, rows: np.ndarray, log: bool) -> np.ndarray:
    """The target with uniform noise of one step of its recording on the training rows; its logarithm if so asked.

    Copies of a row with the same rounded target (a quarter of the wine) would otherwise prove that there is no noise.
    """
    step = np.min(np.diff(np.unique(whole.y[rows])))
    y = whole.y.copy()
    y[rows] += step * np.random.default_rng(split).uniform(-0.5, 0.5, len(rows))
    return np.log(y) if log else y


@functools.cache
def learned(name: str, split: int, validate: bool, log: bool) -> Kernel:
    """`evidence_kernel` of a split; the same for all settings."""
    whole = data.uci(name)
    train, _ = whole.rows(split, validate)
    part = np.random.default_rng(split).permutation(train)[:ROWS]
    x, _, _ = standardised(whole.x, train)
    y, _, _ = standardised(dequantised(whole, split, train, log), train)
    return evidence_kernel(jnp.asarray(x[part]), jnp.asarray(y[part]))


def kernel_features(kernel: Kernel, z: np.ndarray, *places: np.ndarray) -> list[tuple[jax.Array, jax.Array]]:
    """Features at some places, with inputs and constant; and the variance there that the centres z do not tell."""
    total = jnp.exp(kernel.smooth) + jnp.exp(kernel.rough)
    chol = jnp.linalg.cholesky(kernel(z, z) + 1e-8 * total * jnp.eye(len(z)))
    found = []
    for x in places:
        phi = jax.scipy.linalg.solve_triangular(chol, kernel(z, x), lower=True).T
        missing = jnp.maximum(total - jnp.sum(phi**2, 1), 0.0)
        found.append((jnp.concatenate([phi, x, jnp.ones((len(x), 1))], axis=1), missing))
    return found


# -- the published start ----------------------------------------------------------------------------------------------


@jax.jit
def residual_variance(phi: jax.Array, y: jax.Array) -> jax.Array:
    """The noise variance of a homoscedastic fit, v ~ N(0, 1), precision ~ Gamma(2, rate 2/25): 20 sweeps of VMP."""
    inside = phi.shape[0] < phi.shape[1]
    spectrum, basis = jnp.linalg.eigh(phi @ phi.T if inside else phi.T @ phi)
    spectrum = jnp.maximum(spectrum, 0.0)
    power = (basis.T @ y) ** 2 if inside else (basis.T @ (phi.T @ y)) ** 2 / jnp.maximum(spectrum, 1e-12)
    rest = jnp.maximum(y @ y - jnp.sum(power), 0.0)  # outside the span of the features
    shape = 2 + len(y) / 2

    def sweep(_, precision):
        shrink = 1 / (1 + precision * spectrum)
        rate = 2 / 25 + 0.5 * (jnp.sum(power * shrink**2) + rest + jnp.sum(spectrum * shrink))
        return shape / rate

    precision = jax.lax.fori_loop(0, 20, sweep, jnp.asarray(25.0))
    return shape / precision / (shape - 1)


# -- one split --------------------------------------------------------------------------------------------------------


def prepare(name: str, split: int, settings: Settings, validate: bool) -> Task:
    """Standardise, make the features of every layer, fix the priors."""
    whole = data.uci(name)
    train, held = whole.rows(split, validate)
    x, _, _ = standardised(whole.x, train)
    y, mean, sd = standardised(dequantised(whole, split, train, settings.log) if settings.kernel else whole.y, train)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(10_000), split), settings.levels + 1)

    def random(layer: int, lengthscales: Any) -> list[jax.Array]:
        scale = settings.lengthscales[layer] * lengthscales
        drawn = fourier_map(
            keys[layer], x.shape[1], settings.features, kernel=matern32, scales=settings.scales, lengthscale=scale
        )
        return [fourier_features(drawn, jnp.asarray(x[rows]), inputs=True, constant=True) for rows in (train, held)]

    if settings.kernel:
        kernel = learned(name, split, validate, settings.log)
        centres = np.unique(x[train], axis=0)
        if len(centres) > CENTRES:
            centres = np.random.default_rng(split).permutation(centres)[:1000]
        (seen, _), (new, missing) = kernel_features(kernel, centres, x[train], x[held])
        each, first, noise = np.exp(kernel.lengthscales), [seen, new], np.exp(kernel.noise) + 1e-6
        v_variance = jnp.ones(seen.shape[1]).at[len(centres) : -1].set(0.1)
    else:
        each, first, missing, v_variance = np.ones(x.shape[1]), random(0, 1.0), jnp.zeros(len(held)), 1.0
        noise = np.clip(residual_variance(first[0], y[train]), 1e-3, 1e3)
    layers = [first, *(random(k, each) for k in range(1, settings.levels + 1))]
    anchors = [-np.log(noise)] + [np.log(settings.c_top)] * (settings.levels - 1)
    width = layers[1][0].shape[1]
    inputs = {
        "features": tuple(layer[0] for layer in layers),
        "y": jnp.asarray(y[train]),
        "v_variance": v_variance,
        "w_mean": tuple(jnp.zeros(width).at[-1].set(a) for a in anchors),
        "w_variance": jnp.full(width, 0.16).at[-1].set(1.0),
        "c_top": settings.c_top,
    }
    return Task(inputs, tuple(layer[1] for layer in layers), missing, y[held], float(mean), float(sd))
