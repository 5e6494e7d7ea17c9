"""Peers of `speed.py` from the registry; importing fails, and the caller says so, where they are not installed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from dynamax.hidden_markov_model import hmm_smoother
from dynamax.linear_gaussian_ssm import lgssm_smoother
from dynamax.linear_gaussian_ssm.inference import make_lgssm_params


def linear_gaussian(y: Any, A: Any, Q: Any, C: Any, R: Any, P0: Any) -> Callable[[], dict[str, Any]]:
    """dynamax's Kalman smoother; it starts at the first observation."""
    d = A.shape[0]
    params = make_lgssm_params(jnp.zeros(d, y.dtype), A @ P0 @ A.T + Q, A, Q, C, R)
    smooth = jax.jit(lgssm_smoother)

    def run() -> dict[str, Any]:
        post = smooth(params, y)
        return {
            "mean": post.smoothed_means,
            "variance": post.smoothed_covariances,
            "free_energy": -post.marginal_loglik,
        }

    return run


def hidden_markov(y: Any, initial: Any, transition: Any, emission: Any) -> Callable[[], dict[str, Any]]:
    """dynamax's forward-backward pass; it starts at the first observation."""
    smooth = jax.jit(hmm_smoother)

    def run() -> dict[str, Any]:
        post = smooth(initial @ transition, transition, jnp.log(emission).T[y])
        return {"probs": post.smoothed_probs, "free_energy": -post.marginal_loglik}

    return run
