"""Learning by gradient descent through compiled programs: small functions for `optax` loops, and a plain loop.

A loss is any function of parameters that calls a program; its gradient is implicit, at the fixed point. The examples of
`notebooks/learning.py` are made of these, and the tests run them at small sizes.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, Normal, Poisson, dot, exp


def descend(
    loss: Callable[[Any], tuple[Array, Any]], start: Any, steps: int, optimiser: optax.GradientTransformation
) -> tuple[Any, Float[np.ndarray, " steps"]]:
    """Minimise `loss(parameters) -> (value, aux)` and return the parameters and the value of every step.

    A gradient that is not finite (a run inside the loss has not converged) leaves the parameters as they are.
    """
    guarded = optax.apply_if_finite(optimiser, max_consecutive_errors=20)

    @eqx.filter_jit
    def step(parameters: Any, state: Any) -> tuple[Any, Any, Array]:
        (value, _), slope = eqx.filter_value_and_grad(loss, has_aux=True)(parameters)
        updates, state = guarded.update(slope, state, eqx.filter(parameters, eqx.is_inexact_array))
        return eqx.apply_updates(parameters, updates), state, value

    parameters, state, values = start, guarded.init(eqx.filter(start, eqx.is_inexact_array)), []
    for _ in range(steps):
        parameters, state, value = step(parameters, state)
        values.append(value)
    return parameters, np.asarray(values)


def poisson_walk(y: Any, mask: Any = None, sigma2: float = 0.1, prior_variance: float = 10.0) -> None:
    r"""`poisson_chain` with an initial variance of its own: $z_0 \sim N(0, V)$. `z0` () and `z` (n,), Gaussian."""
    z0 = ngmp.sample("z0", Normal(0.0, variance=prior_variance))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


# -- Gaussian processes in state-space form ---------------------------------------------------------------------------


def matern32_steps(
    gaps: Float[Array, " n"], lengthscale: Any, variance: Any
) -> tuple[Float[Array, "n 2 2"], Float[Array, "n 2 2"], Float[Array, "2 2"]]:
    r"""Transitions, their covariances and the stationary covariance of the Matern-3/2 process.

    With $\lambda = \sqrt3/\ell$ the state $(f, f')$ has $P = \mathrm{diag}(v, \lambda^2 v)$ and, over a gap d,

    $$ A = e^{-\lambda d} \begin{pmatrix} 1 + \lambda d & d \\ -\lambda^2 d & 1 - \lambda d \end{pmatrix}, \qquad
       Q = P - A P A^\top. $$

    References:
        J. Hartikainen, S. Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
        regression models, MLSP.
    """
    rate = jnp.sqrt(3.0) / lengthscale
    d = gaps * rate
    decay = jnp.exp(-d)
    # The state is (f, f'/rate): its entries are of one size whatever the lengthscale.
    a = decay[:, None, None] * jnp.stack([jnp.stack([1 + d, d], -1), jnp.stack([-d, 1 - d], -1)], -2)
    p = variance * jnp.eye(2)
    return a, p - a @ p @ jnp.swapaxes(a, -1, -2), p


def matern_process(
    gaps: Float[Array, " n"],
    y: Any,
    mask: Any = None,
    lengthscale: float = 1.0,
    variance: float = 1.0,
    mean: float = 0.0,
    likelihood: str = "poisson",
) -> None:
    """Counts or coins whose log-rate or log-odds is a Matern-3/2 process: `x0` () and `x` (n,), vectors of two.

    Args:
        gaps: time since the point before, positive; the first is since `x0`, and of no consequence.
        y: counts, or zeros and ones.
        mask: True where y is seen.
        lengthscale, variance, mean: of the process.
        likelihood: "poisson" or "bernoulli".
    """
    a, q, p = matern32_steps(jnp.asarray(gaps), lengthscale, variance)
    x0 = ngmp.sample("x0", MvNormal(jnp.zeros(2, p.dtype), covariance=p))
    first = jnp.array([1.0, 0.0], p.dtype)

    def step(x, inputs):
        a_k, q_k, y_k, seen = inputs
        x = ngmp.sample("x", MvNormal(a_k @ x, covariance=q_k))
        f = dot(first, x) + mean
        outcome = Poisson(exp(f)) if likelihood == "poisson" else Bernoulli(logits=f)
        ngmp.sample("y", outcome, obs=y_k, mask=seen)
        return x, None

    ngmp.scan(step, x0, (a, q, y, mask))


# -- a structured variational autoencoder -----------------------------------------------------------------------------


def pseudo_observed_chain(
    target: Float[Array, " n"], precision: Float[Array, " n"], decay: float = 0.9, noise: float = 0.19
) -> None:
    r"""A linear-Gaussian chain seen through pseudo-observations, the outputs of an encoder: `z0` () and `z` (n,).

    $$ z_k \mid z_{k-1} \sim N(\rho z_{k-1}, \sigma^2), \qquad \tilde y_k \mid z_k \sim N(z_k, 1/\tilde\tau_k) $$
    """
    z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

    def step(z, x):
        y_k, tau_k = x
        z = ngmp.sample("z", Normal(decay * z, variance=noise))
        ngmp.sample("y", Normal(z, precision=tau_k), obs=y_k)
        return z, None

    ngmp.scan(step, z0, (target, precision))


class Autoencoder(eqx.Module):
    r"""Encoder $x_k \mapsto (\tilde y_k, \log\tilde\tau_k)$, decoder $z_k \mapsto E[x_k]$, and the chain in between."""

    encoder: eqx.nn.MLP
    decoder: eqx.nn.MLP
    log_std: Float[Array, ""]
    logit_decay: Float[Array, ""]

    def __init__(self, size: int, width: int, key: Array):
        one, two = jax.random.split(key)
        self.encoder = eqx.nn.MLP(size, 2, width, 1, jnp.tanh, key=one)
        self.decoder = eqx.nn.MLP(1, size, width, 1, jnp.tanh, key=two)
        self.log_std, self.logit_decay = jnp.zeros(()), jnp.asarray(2.0)

    def encode(self, x: Float[Array, "n d"], seen: Bool[Array, " n"]) -> tuple[Array, Array]:
        """Pseudo-observations and their precisions; rows that are not seen have no say."""
        out = jax.vmap(self.encoder)(x)
        return out[:, 0], jnp.where(seen, jnp.exp(jnp.clip(out[:, 1], -8.0, 8.0)), 1e-6)

    def bound(
        self, program: ngmp.Program, x: Float[Array, "n d"], seen: Bool[Array, " n"], key: Array, draws: int = 8
    ) -> tuple[Array, Array]:
        r"""Minus the evidence lower bound of what is seen, and minus the log-density of a row that is not, on average.

        $KL[q \| p] = E_q[\sum_k \log N(\tilde y_k; z_k, 1/\tilde\tau_k)] - \log Z$, where q is the chain's posterior
        and $-\log Z$ its free energy, which is exact.
        """
        target, precision = self.encode(x, seen)
        decay = jax.nn.sigmoid(self.logit_decay)
        post = program(target=target, precision=precision, decay=decay, noise=1 - decay**2)
        q: Any = post["z"]
        square = (target - q.mean) ** 2 + q.variance
        pseudo = jnp.sum(0.5 * jnp.log(precision / (2 * jnp.pi)) - 0.5 * precision * square)
        divergence = pseudo + post.free_energy
        z = q.mean + jnp.sqrt(q.variance) * jax.random.normal(key, (draws, *q.mean.shape))
        mean = jax.vmap(jax.vmap(self.decoder))(z[..., None])
        log_x = jnp.sum(-0.5 * ((x - mean) / jnp.exp(self.log_std)) ** 2 - self.log_std - 0.919, -1)
        expected = jnp.mean(jnp.sum(jnp.where(seen, log_x, 0.0), 1))
        unseen = jax.nn.logsumexp(log_x, axis=0) - jnp.log(draws)  # by Monte Carlo, over the marginal of z
        return divergence - expected, -jnp.sum(jnp.where(seen, 0.0, unseen)) / jnp.maximum(jnp.sum(~seen), 1)


# -- amortised starts -------------------------------------------------------------------------------------------------


def windows(y: Any, reach: int) -> Float[Array, "n f"]:
    """Features of every count of a series: the logs of it and of its neighbours, `reach` on either side."""
    padded = jnp.pad(jnp.log(jnp.asarray(y) + 0.5), reach, mode="edge")
    return jnp.stack([padded[i : i + len(y)] for i in range(2 * reach + 1)], -1)


def warm_start(network: Any, y: Any, features: Float[Array, "n f"], state: ngmp.State) -> ngmp.State:
    r"""A state for counts y whose leaves are those at the marginals that a network expects.

    The network gives the mean m and log-variance of every $z_k$ from its features. At the marginal N(m, v) the
    projected message of Poisson(exp z) has precision $r = e^{m + v/2}$ and mean $m + (y - r)/r$.

    Args:
        network: from the features of a count to two numbers.
        y, features: the counts and their features, such as `windows(y, 8)`.
        state: `program.init(...)`, for its structure.
    """
    out = jax.vmap(network)(features)
    rate = jnp.exp(out[:, 0] + 0.5 * jnp.exp(out[:, 1]))
    (key,) = state.leaves
    leaf = ngmp.families.Gaussian.from_information(rate * out[:, 0] + y - rate, rate)
    return eqx.tree_at(lambda s: s.leaves, state, {key: leaf})
