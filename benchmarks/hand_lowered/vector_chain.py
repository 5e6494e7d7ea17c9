r"""A linear Gaussian chain of vectors by hand: Kalman filter and RTS smoother with Cholesky factors, two `lax.scan`s.

$x_0 \sim N(0, P_0)$, $x_k \sim N(A x_{k-1}, Q)$, $y_k \sim N(C x_k, R)$ for k = 1 ... K. What does not depend on the
smoothed state of the next step (the gains, $x_k \mid x_{k+1}, y_{1:k}$) is computed for all steps at once.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular


@jax.jit
def vector_chain(y, A, Q, C, R, P0):
    """Smoothed means (K, d) and covariances (K, d, d), and minus the log-evidence."""
    d = A.shape[0]

    def forward(carry, y):
        m, p = carry
        m_pred, p_pred = A @ m, A @ p @ A.T + Q
        seen = C @ p_pred
        chol = jnp.linalg.cholesky(seen @ C.T + R)
        white = solve_triangular(chol, jnp.column_stack([seen, y - C @ m_pred]), lower=True)
        gain, error = white[:, :d], white[:, d]
        m, p = m_pred + gain.T @ error, p_pred - gain.T @ gain
        return (m, p), (m, p, m_pred, p_pred, error, jnp.diagonal(chol))

    start = jnp.zeros(d, y.dtype), P0
    end, (m, p, m_pred, p_pred, error, scale) = jax.lax.scan(forward, start, y)
    energy = jnp.sum(0.5 * error**2 + jnp.log(scale)) + 0.5 * y.size * jnp.log(2 * jnp.pi)

    # x_k given x_{k+1} = x: mean a + G x, covariance S.
    m, p, m_pred, p_pred = m[:-1], p[:-1], m_pred[1:], p_pred[1:]
    G = jax.vmap(lambda chol, x: cho_solve((chol, True), x))(jnp.linalg.cholesky(p_pred), A @ p).mT
    a, S = m - jnp.einsum("kij,kj->ki", G, m_pred), p - G @ p_pred @ G.mT

    def backward(carry, step):
        m, p = carry
        a, G, S = step
        state = a + G @ m, S + G @ p @ G.T
        return state, state

    _, (ms, ps) = jax.lax.scan(backward, end, (a, G, S), reverse=True)
    return jnp.concatenate([ms, end[0][None]]), jnp.concatenate([ps, end[1][None]]), energy
