r"""The gamma function and its kin for positive arguments, and combinations of them that cancel at large argument.

The asymptotic (Bernoulli-number) series is used beyond `_SWITCH`, and smaller arguments are shifted past it by the
recurrence $\Gamma(a + 1) = a \Gamma(a)$, with all its reciprocals over one denominator. That is as accurate as the
functions of `jax.scipy.special` and an order of magnitude less code: on a CPU XLA makes a kernel of its own of almost
every quotient and logarithm in them, and compiles each for ten milliseconds.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_SWITCH = 8.0
_STEPS = 8
# B_{2k} / (2k), k = 1..8: digamma(a) ~ log a - 1/(2a) - sum_k B_{2k} / (2k a^{2k}).
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
# B_{2k}, k = 1..10: trigamma(a) ~ 1/a + 1/(2a^2) + sum_k B_{2k} / a^{2k+1}.
_TRIGAMMA = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip
# B_{2k} / (2k (2k-1)), k = 1..8: log-gamma(a) ~ (a-1/2) log a - a + log(2 pi)/2 + sum_k .../a^{2k-1}.
_LOGGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
# Gamma(a + 1/2) / Gamma(a) ~ sqrt(w) (1 + sum_k c_k / w^{2k}), w = a - 1/4.
_HALF = (
    1 / 2**6, -19 / 2**13, 631 / 2**19, -174317 / 2**27, 20491783 / 2**33, -7334801895 / 2**40,
    1858590154455 / 2**46, -5067741081768765 / 2**55,
)  # fmt: skip


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner sum of c_1 x + c_2 x^2 + ..."""
    *rest, last = coefficients
    total = last * x
    for c in reversed(rest):
        total = (total + c) * x
    return total


def _shift(a: Float[Array, "*b"]) -> tuple[Bool[Array, "*b"], Array, Array]:
    """Where a is small, an argument past the switch, and a itself up to there, so that products and gradients of what
    is not used are finite."""
    low = a < _SWITCH
    return low, jnp.where(low, a + _STEPS, a), jnp.minimum(a, _SWITCH)


def _pairs(a: Array) -> tuple[Array, ...]:
    """`(a + k)(a + 7 - k)`, k = 0..3: the factors of `a (a + 1) ... (a + 7)`."""
    u = a * (a + 7)
    return u, u + 6, u + 10, u + 12


def _rising(a: Array) -> Array:
    """`a (a + 1) ... (a + 7)`."""
    u0, u1, u2, u3 = _pairs(a)
    return u0 * u1 * (u2 * u3)


def _reciprocals(a: Array) -> tuple[Array, Array]:
    r"""$1/x$ past the switch, and $\sum_k 1/(a + k)$ where a was shifted, from one quotient.

    $1/(a + k) + 1/(a + 7 - k) = (2a + 7) / u_k$ with the pairs u.
    """
    low, x, small = _shift(a)
    u0, u1, u2, u3 = _pairs(small)
    first, second = u0 * u1, u2 * u3
    denominator = jnp.where(low, first * second, 1)
    numerator = jnp.where(low, (2 * small + 7) * ((u0 + u1) * second + (u2 + u3) * first), 0)
    quotient = 1 / (x * denominator)
    return denominator * quotient, numerator * x * quotient


@jax.jit
def gammaln(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log\Gamma(a)$, a > 0."""
    low, x, small = _shift(a)
    inverse = 1 / x
    scale = math.sqrt(2 * math.pi) * _excess(low, small)
    return (a - 0.5) * jnp.log(x) + jnp.log(scale) - x + _series(_LOGGAMMA, inverse * inverse) * x


def _excess(low: Array, small: Array) -> Array:
    r"""$(a + 8)^8 / (a \cdots (a + 7))$ where a was shifted, 1 elsewhere."""
    return jnp.where(low, (small + _STEPS) ** _STEPS / _rising(small), 1)


@jax.jit
def digamma(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\psi(a)$, a > 0."""
    inverse, steps = _reciprocals(a)
    return jnp.log(_shift(a)[1]) - 0.5 * inverse - _series(_DIGAMMA, inverse * inverse) - steps


@jax.jit
def trigamma(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\psi_1(a)$, a > 0."""
    return 1 / a + trigamma_minus_inverse(a)


@jax.jit
def log_minus_digamma(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log a - \psi(a)$, about $1/(2a)$."""
    inverse, steps = _reciprocals(a)
    ratio = jnp.where(a < _SWITCH, a * inverse, 1)
    return jnp.log(ratio) + 0.5 * inverse + _series(_DIGAMMA, inverse * inverse) + steps


@jax.jit
def trigamma_minus_inverse(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\psi_1(a) - 1/a$, about $1/(2a^2)$.

    The recurrence adds $\sum_{k<8} 1/(a + k)^2 - 8/(a (a + 8))$, and by pairs u of its factors
    $1/(a + k)^2 + 1/(a + 7 - k)^2 = ((2a + 7)^2 - 2 u_k) / u_k^2$.
    """
    low, x, small = _shift(a)
    u0, u1, u2, u3 = _pairs(small)
    first, second, square = (u0 * u1) ** 2, (u2 * u3) ** 2, (2 * small + 7) ** 2
    left = (square - 2 * u0) * u1**2 + (square - 2 * u1) * u0**2
    right = (square - 2 * u2) * u3**2 + (square - 2 * u3) * u2**2
    numerator = (left * second + right * first) * (small + _STEPS) - _STEPS * (small + 7) * u0 * u1**2 * second
    denominator = jnp.where(low, first * second, 1)
    quotient = 1 / (x * denominator)
    inverse = denominator * quotient
    series = 0.5 * inverse**2 + _series(_TRIGAMMA, inverse**2) * inverse
    return jnp.where(low, numerator * quotient, 0) + series


@jax.jit
def stirling_error(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log\Gamma(a) - a \log a + a$, about $\frac12 \log(2\pi/a)$."""
    low, x, small = _shift(a)
    inverse = 1 / x
    shift = a * jnp.log(jnp.where(low, x / a, 1)) - jnp.where(low, _STEPS, 0)
    scale = jnp.sqrt(2 * math.pi * inverse) * _excess(low, small)
    return jnp.log(scale) + shift + _series(_LOGGAMMA, inverse * inverse) * x


@jax.jit
def log_half_ratio(a: Float[Array, "*b"], b: Float[Array, "*b"] | float = 1.0) -> Float[Array, "*b"]:
    r"""$\log\{\Gamma(a + 1/2) / (\Gamma(a) \sqrt b)\}$, the constant of Student's t, as one logarithm."""
    low, x, small = _shift(a)
    w = x - 0.25
    steps = jnp.where(low, _rising(small) / _rising(small + 0.5), 1)
    return jnp.log(steps * jnp.sqrt(w / b) * (1 + _series(_HALF, 1 / (w * w))))


@jax.jit
def log_gamma_ratio(a: Float[Array, "*b"], d: Float[Array, "*b"] | float) -> Float[Array, "*b"]:
    r"""$\log\Gamma(a + d) - \log\Gamma(a)$ for $a > 0$, $d \ge 0$, without the cancellation of the two terms.

    With x past the switch and $\log\Gamma(x) = (x - 1/2) \log x - x + \log(2\pi)/2 + c(x)$:
    $(x - 1/2) \log(1 + d/x) + d \log(x + d) - d + c(x + d) - c(x)$, less the steps of the recurrence.
    """
    low, x, small = _shift(a)
    y = x + d
    main = (x - 0.5) * jnp.log1p(d / x) + d * (jnp.log(y) - 1)
    series = _series(_LOGGAMMA, 1 / (y * y)) * y - _series(_LOGGAMMA, 1 / (x * x)) * x
    # In two parts: in single precision the product of all would overflow from d = 1e5.
    (u0, u1, u2, u3), (v0, v1, v2, v3) = _pairs(small), _pairs(small + d)
    first, second = jnp.where(low, v0 * v1 / (u0 * u1), 1), jnp.where(low, v2 * v3 / (u2 * u3), 1)
    return main + series - jnp.log(first) - jnp.log(second)


@jax.jit
def inverse_digamma(y: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""The $a > 0$ with $\psi(a) = y$: Minka's starting value and five Newton steps (enough for 1e-15)."""
    euler = 0.5772156649015329
    a = jnp.where(y >= -2.22, jnp.exp(jnp.maximum(y, -2.22)) + 0.5, -1 / (jnp.minimum(y, -2.22) + euler))
    return jax.lax.fori_loop(0, 5, lambda _, a: a - (digamma(a) - y) / trigamma(a), a)


def log_ratio(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log x$, through log1p near 1 so that `x - 1 - log_ratio(x)` keeps its digits there, and safe for tiny x."""
    near = jnp.abs(x - 1) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, x - 1, 0)), jnp.log(jnp.where(near, 1, x)))


def log_ratio_excess(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$x - 1 - \log x \ge 0$, the Bregman divergence of $-\log$ from 1."""
    return (x - 1) - log_ratio(x)
