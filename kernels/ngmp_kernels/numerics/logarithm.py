r"""Logarithms for values at quadrature nodes, of which a sweep takes millions.

In double precision XLA on a CPU calls the C library for every single element, three times as long as an exponential
takes. Here the logarithm is arithmetic that fills vector registers, and right to a unit in the last place: with
$x = 2^k (1 + f)$, $\sqrt{1/2} \le 1 + f < \sqrt 2$ and $s = f / (2 + f)$,
$$ \log x = k \log 2 + \log(1 + f), \qquad \log(1 + f) = 2 \operatorname{artanh} s = f - s (f - R), $$
where R is a polynomial in $s^2$ (fdlibm's, of degree seven). Other precisions are left to XLA, which does
the same, and so are few elements.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

# Of s^2, s^4, ..., s^14: nearly 2/3, 2/5, ..., 2/15.
_ARTANH = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_LOG_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # k times the first is exact
_HALF_ROOT = np.float64(np.sqrt(0.5)).view(np.int64)
_MANTISSA = np.int64(52)  # bits
FEW = 4096  # elements below which what is saved is not worth the time to compile it


@jax.custom_jvp
def log(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log(x)`; as `jnp.log` at zero, infinity and below zero."""
    x = jnp.asarray(x)
    return _log(x, jnp.zeros((), x.dtype)) if _pays(x) else jnp.log(x)


@jax.custom_jvp
def log1p(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log(1 + x)`, accurate for small x; as `jnp.log1p` at -1, infinity and below -1."""
    x = jnp.asarray(x)
    if not _pays(x):
        return jnp.log1p(x)
    total = 1.0 + x
    lost = jnp.minimum(x, 1.0) - (total - jnp.maximum(x, 1.0))  # what rounding took from the sum
    return _log(total, lost / total)


@jax.custom_jvp
def softplus(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log(1 + e^x)`."""
    return jnp.maximum(x, 0.0) + log1p(jnp.exp(-jnp.abs(x)))


log.defjvps(lambda dx, _, x: dx / x)
log1p.defjvps(lambda dx, _, x: dx / (1.0 + x))
softplus.defjvps(lambda dx, _, x: dx * jax.nn.sigmoid(x))


def _pays(x: Array) -> bool:
    return x.dtype == jnp.float64 and x.size >= FEW


def _log(x: Float[Array, "*b"], more: Float[Array, "*#b"]) -> Float[Array, "*b"]:
    """`log(x) + more` in double precision, `more` at most of the size of a rounding error where `log(x)` is not 0."""
    bits = lax.bitcast_convert_type(x, np.int64)
    k = lax.shift_right_arithmetic(bits - _HALF_ROOT, jnp.broadcast_to(_MANTISSA, x.shape))
    f = lax.bitcast_convert_type(bits - lax.shift_left(k, jnp.broadcast_to(_MANTISSA, x.shape)), np.float64) - 1.0
    s, half_square = f / (2.0 + f), 0.5 * f * f
    z = s * s
    # Even and odd powers of z apart, so that neither waits for the other.
    w = z * z
    even = z * (_ARTANH[0] + w * (_ARTANH[2] + w * (_ARTANH[4] + w * _ARTANH[6])))
    odd = w * (_ARTANH[1] + w * (_ARTANH[3] + w * _ARTANH[5]))
    whole = k.astype(np.float64)
    small = s * (half_square + even + odd) + (whole * _LOG_2[1] + more)
    value = whole * _LOG_2[0] - ((half_square - small) - f)
    normal = (x >= jnp.finfo(x.dtype).tiny) & (x < jnp.inf)
    beyond = jnp.where(x > 0.0, jnp.where(x < jnp.inf, -jnp.inf, jnp.inf), jnp.where(x == 0.0, -jnp.inf, jnp.nan))
    return jnp.where(normal, value, beyond)
