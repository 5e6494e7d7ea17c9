r"""A hidden Markov model by hand: the scaled forward-backward recursion, two `lax.scan`s of matrix-vector products."""

import jax
import jax.numpy as jnp


@jax.jit
def hmm(y, initial, transition, emission):
    """Marginals (K, S) of the states at the observations, and minus the log-evidence."""
    likelihood = emission.T[y]

    def forward(past, seen):
        joint = (past @ transition) * seen
        scale = 1 / jnp.sum(joint)
        return scale * joint, (scale * joint, scale)

    _, (filtered, scale) = jax.lax.scan(forward, initial, likelihood)

    def backward(future, seen):
        now = transition @ (seen * future)
        return now, now

    one = jnp.ones_like(initial)
    _, smooth = jax.lax.scan(backward, one, (scale[:, None] * likelihood)[1:], reverse=True)
    return filtered * jnp.concatenate([smooth, one[None]]), jnp.sum(jnp.log(scale))
