"""Peers of `speed.py` from the registry: each function takes data and returns a function that answers.

Each imports its own library, so that where one is not installed only its own rows are missing (the caller says so).
Everything an answer needs is inside one `jax.jit`, data are arguments of it, and what is not asked for (the pair
marginals that dynamax computes, say) is not returned, so that XLA can leave it out.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Call = Callable[[], dict[str, Any]]


# -- dynamax -----------------------------------------------------------------------------------------------------------


def dynamax_linear_gaussian(y: Any, A: Any, Q: Any, C: Any, R: Any, P0: Any) -> Call:
    """The Kalman smoother; it starts at the first observation."""
    from dynamax.linear_gaussian_ssm import lgssm_smoother
    from dynamax.linear_gaussian_ssm.inference import make_lgssm_params

    params = make_lgssm_params(jnp.zeros(A.shape[0], y.dtype), A @ P0 @ A.T + Q, A, Q, C, R)

    @jax.jit
    def smooth(params: Any, y: Any) -> dict[str, Any]:
        post = lgssm_smoother(params, y)
        spread = post.smoothed_covariances
        return {"mean": post.smoothed_means, "variance": spread, "free_energy": -post.marginal_loglik}

    return lambda: smooth(params, y)


def dynamax_hidden_markov(y: Any, initial: Any, transition: Any, emission: Any) -> Call:
    """The forward-backward pass; it starts at the first observation."""
    from dynamax.hidden_markov_model import hmm_smoother

    @jax.jit
    def smooth(y: Any, initial: Any, transition: Any, emission: Any) -> dict[str, Any]:
        post = hmm_smoother(initial @ transition, transition, jnp.log(emission).T[y])
        return {"probs": post.smoothed_probs, "free_energy": -post.marginal_loglik}

    return lambda: smooth(y, initial, transition, emission)


def dynamax_poisson_chain(y: Any, sigma2: Any, kind: str, iterations: int = 1) -> Call:
    """The conditional-moments smoother with the integrals of `kind`, "EKF" or "UKF"; one pass, no fixed point.

    With more `iterations` its filter conditions on an observation again from the posterior that it just computed.
    """
    from dynamax import generalized_gaussian_ssm as ssm

    integrals = {"EKF": ssm.EKFIntegrals, "UKF": ssm.UKFIntegrals}[kind]()

    @jax.jit
    def smooth(y: Any, sigma2: Any) -> dict[str, Any]:
        params = ssm.ParamsGGSSM(
            jnp.zeros(1, y.dtype), jnp.full((1, 1), 10.0, y.dtype) + sigma2, lambda z: z, sigma2[None, None],
            lambda z: jnp.exp(z), lambda z: jnp.exp(z)[:, None],
        )  # fmt: skip
        filtered = ssm.conditional_moments_gaussian_filter(params, integrals, y[:, None], num_iter=iterations)
        post = ssm.conditional_moments_gaussian_smoother(params, integrals, y[:, None], filtered)
        return {"mean": post.smoothed_means[:, 0], "variance": post.smoothed_covariances[:, 0, 0]}

    return lambda: smooth(y, sigma2)


# -- cuthbert ----------------------------------------------------------------------------------------------------------


def cuthbert_linear_gaussian(y: Any, A: Any, Q: Any, C: Any, R: Any, P0: Any) -> Call:
    """The Kalman smoother, with square roots of covariances, in sequence."""
    from cuthbert import filter, smoother
    from cuthbert.gaussian import kalman

    @jax.jit
    def smooth(y: Any, A: Any, Q: Any, C: Any, R: Any, P0: Any) -> dict[str, Any]:
        chol_Q, chol_R, chol_P0 = (jnp.linalg.cholesky(x) for x in (Q, R, P0))
        zero = jnp.zeros(A.shape[0], y.dtype)

        def dynamics(_: Any) -> Any:
            return A, zero, chol_Q

        def observation(y_k: Any) -> Any:
            return C, jnp.zeros_like(y_k), chol_R, y_k

        forward = kalman.build_filter(zero, chol_P0, dynamics, observation)
        states = filter(forward, y, forward.init_prepare())
        post = smoother(kalman.build_smoother(dynamics), states)
        root = post.chol_cov[1:]
        return {"mean": post.mean[1:], "variance": root @ root.mT,
                "free_energy": -states.log_normalizing_constant[-1]}  # fmt: skip

    return lambda: smooth(y, A, Q, C, R, P0)


def cuthbert_hidden_markov(y: Any, initial: Any, transition: Any, emission: Any) -> Call:
    """The forward-backward pass, in sequence."""
    from cuthbert import discrete, filter, smoother

    @jax.jit
    def smooth(y: Any, initial: Any, transition: Any, emission: Any) -> dict[str, Any]:
        forward = discrete.build_filter(initial, lambda _: transition, lambda log_f: log_f)
        states = filter(forward, jnp.log(emission).T[y], forward.init_prepare())
        post = smoother(discrete.build_smoother(lambda _: transition), states)
        return {"probs": post.dist[1:], "free_energy": -states.log_normalizing_constant[-1]}

    return lambda: smooth(y, initial, transition, emission)


def cuthbert_poisson_moments(y: Any, sigma2: Any) -> Call:
    """The smoother that linearises conditional means about the prediction: an EKF in square-root form, one pass."""
    from cuthbert import filter, smoother
    from cuthbert.gaussian import moments

    @jax.jit
    def smooth(y: Any, sigma2: Any) -> dict[str, Any]:
        sigma = jnp.sqrt(sigma2)[None, None]

        def dynamics(state: Any, _: Any) -> Any:
            return lambda z: (z, sigma), state.mean

        def observation(state: Any, y_k: Any) -> Any:
            return lambda z: (jnp.exp(z), jnp.exp(0.5 * z)[:, None]), state.mean, y_k

        start = jnp.zeros(1, y.dtype), jnp.full((1, 1), jnp.sqrt(10.0), y.dtype)
        forward = moments.build_filter(*start, dynamics, observation)
        states = filter(forward, y[:, None], forward.init_prepare())
        return _scalars(smoother(moments.build_smoother(dynamics), states))

    return lambda: smooth(y, sigma2)


def cuthbert_poisson_taylor(y: Any, sigma2: Any, passes: int) -> Call:
    """Smoothing with second-order expansions of the log-likelihoods.

    The first pass expands about `log(y + 1/2)`, each of the following ones about the means of the one before: Newton's
    method, whose limit is Laplace's approximation.
    """
    from cuthbert import filter, smoother
    from cuthbert.gaussian import taylor

    @jax.jit
    def smooth(y: Any, sigma2: Any) -> dict[str, Any]:
        zero = jnp.zeros(1, y.dtype)

        def walk(before: Any, z: Any) -> Any:
            return -0.5 * jnp.sum((z - before) ** 2) / sigma2

        def dynamics(_: Any, inputs: Any) -> Any:
            return walk, zero, zero

        def observation(_: Any, inputs: Any) -> Any:
            y_k, point = inputs
            return lambda z: jnp.sum(y_k * z - jnp.exp(z)), point

        def one(point: Any, _: Any) -> Any:
            forward = taylor.build_filter(lambda z: -0.5 * jnp.sum(z**2) / 10.0, zero, dynamics, observation)
            states = filter(forward, (y[:, None], point), forward.init_prepare())
            post = smoother(taylor.build_smoother(dynamics), states)
            return post.mean[1:], (post.mean, post.chol_cov)

        point = jnp.log(y + 0.5)[:, None]
        _, (means, roots) = jax.lax.scan(one, point, None, length=passes)
        return {"mean": means[-1, 1:, 0], "variance": roots[-1, 1:, 0, 0] ** 2}

    return lambda: smooth(y, sigma2)


def _scalars(post: Any) -> dict[str, Any]:
    """Means and variances of the scalars at the observations."""
    return {"mean": post.mean[1:, 0], "variance": post.chol_cov[1:, 0, 0] ** 2}
