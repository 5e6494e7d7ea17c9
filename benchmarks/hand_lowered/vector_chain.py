r"""A linear Gaussian chain of vectors by hand: Kalman filter and RTS smoother with Cholesky factors, two `lax.scan`s.

$x_0 \sim N(0, P_0)$, $x_k \sim N(A x_{k-1}, Q)$, $y_k \sim N(C x_k, R)$ for k = 1 ... K.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve


@jax.jit
def vector_chain(y, A, Q, C, R, P0):
    """Smoothed means (K, d) and covariances (K, d, d), and minus the log-evidence."""
    eye, log_2pi = jnp.eye(A.shape[0], dtype=y.dtype), jnp.log(2 * jnp.pi).astype(y.dtype)

    def forward(carry, y):
        m, p = carry
        m_pred, p_pred = A @ m, A @ p @ A.T + Q
        factor = cho_factor(C @ p_pred @ C.T + R, lower=True)
        error = y - C @ m_pred
        gain = cho_solve(factor, C @ p_pred).T
        m = m_pred + gain @ error
        rest = eye - gain @ C
        p = rest @ p_pred @ rest.T + gain @ R @ gain.T
        half_log_det = jnp.sum(jnp.log(jnp.diagonal(factor[0])))
        log_z = -0.5 * error @ cho_solve(factor, error) - half_log_det - 0.5 * y.shape[0] * log_2pi
        return (m, p), (m, p, m_pred, p_pred, log_z)

    start = jnp.zeros(A.shape[0], y.dtype), P0
    end, (m, p, m_pred, p_pred, log_z) = jax.lax.scan(forward, start, y)

    def backward(carry, step):
        ms, ps = carry
        m, p, m_pred, p_pred = step
        gain = cho_solve(cho_factor(p_pred, lower=True), A @ p).T
        state = m + gain @ (ms - m_pred), p + gain @ (ps - p_pred) @ gain.T
        return state, state

    _, (ms, ps) = jax.lax.scan(backward, end, (m[:-1], p[:-1], m_pred[1:], p_pred[1:]), reverse=True)
    return jnp.concatenate([ms, end[0][None]]), jnp.concatenate([ps, end[1][None]]), -jnp.sum(log_z)
