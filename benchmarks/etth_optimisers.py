r"""Gates of the ETTh study trained by gradients: networks from the context to log-precisions of experts.

Affine, or one hidden layer of 192 ReLU; the loss is the mean NLL of the product of experts, $g_i = e^{a_i}$, so unlike
the published gates (softmax weights of squared errors) theirs have a scale. Adam is that of optax, with decoupled
decay. IVON is Algorithm 1 of Shen et al. (2024, arXiv 2402.17641), a diagonal Gaussian over all parameters:

$$ \theta = m + \sigma \epsilon, \; \sigma^2 = 1 / \lambda (h + \delta), \quad \hat h = \hat g \epsilon / \sigma, \quad
   g \leftarrow \beta_1 g + (1 - \beta_1) \hat g, $$
$$ h \leftarrow \beta_2 h + (1 - \beta_2) \hat h + \tfrac12 (1 - \beta_2)^2 (h - \hat h)^2 / (h + \delta), \quad
   m \leftarrow m - \alpha (g / (1 - \beta_1^t) + \delta m) / (h + \delta); $$

its predictive is the equal mixture over draws of the parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from etth_arms import Fold, Forecast, gaussian
from jaxtyping import Array, Float

from ngmp_models.precision_gated import fuse

HIDDEN, BATCH, DRAWS, SEED = 192, 128, 200, 20260726
BETA1, BETA2, HESS = 0.9, 0.999, 0.1


class Setting(NamedTuple):
    """What is chosen on validation rows: learning rate, decay, epochs; IVON's are arXiv 2402.17641's names."""

    rate: float
    decay: float
    epochs: int = 20


GRID = [Setting(rate, decay) for rate in (1e-3, 1e-2) for decay in (1e-3, 1e-1)]
IVON_GRID = [Setting(rate, decay) for rate in (1e-2, 1e-1) for decay in (1e-3, 1e-1)]


def network(relu: bool, width: int, experts: int, key: Array) -> eqx.nn.MLP:
    """From a context to log-precisions; all begin at those of equal weights."""
    net = eqx.nn.MLP(width, experts, HIDDEN, 1 if relu else 0, key=key)
    return eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), net, replace_fn=jnp.zeros_like)


def precisions(net: Any, context: Float[Array, "n d"]) -> Float[Array, "n k"]:
    return jnp.exp(jnp.clip(jax.vmap(net)(context), -12.0, 12.0))


def loss(net: Any, context: Array, forecasts: Array, y: Array) -> Float[Array, ""]:
    """Mean NLL of the product."""
    fused = fuse(precisions(net, context), forecasts)
    return -jnp.mean(gaussian(y, fused.mean, fused.variance))


def _batches(fold: Fold, epochs: int, key: Array) -> Array:
    """Rows, one batch after the other."""
    n = len(fold.y)
    each = jax.vmap(lambda k: jax.random.permutation(k, n)[: n // BATCH * BATCH])(jax.random.split(key, epochs))
    return each.reshape(-1, BATCH)


def adam(fold: Fold, relu: bool, rate: Any, decay: Any, epochs: int) -> tuple[Array, Array, Array]:
    """Trained by Adam; log-density, mean and variance at the parameters it ends with."""
    first, order = jax.random.split(jax.random.key(SEED))
    net = network(relu, fold.context.shape[1], fold.forecasts.shape[1], first)
    params, static = eqx.partition(net, eqx.is_array)
    optimiser: Any = optax.adamw(rate, weight_decay=decay)

    def step(carry: Any, rows: Array) -> tuple[Any, None]:
        params, state = carry
        data = fold.context[rows], fold.forecasts[rows], fold.y[rows]
        gradient = jax.grad(lambda p: loss(eqx.combine(p, static), *data))(params)
        updates, state = optimiser.update(gradient, state, params)
        return (eqx.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), _batches(fold, epochs, order))
    fused = fuse(precisions(eqx.combine(params, static), fold.new_context), fold.new_forecasts)
    return gaussian(fold.new_y, fused.mean, fused.variance), fused.mean, fused.variance


def variational_newton(
    gradient: Callable[[Array, Any], Array], m: Array, batches: Any, key: Array, n: int, rate: Any, decay: Any
) -> tuple[Array, Array]:  # fmt: skip
    """IVON on a flat vector of parameters: mean and h, so that standard deviations are `(n (h + decay)) ** -0.5`."""

    def step(carry: Any, x: Any) -> tuple[Any, None]:
        m, g, h, t = carry
        batch, key = x
        noise, sigma = jax.random.normal(key, m.shape), jax.lax.rsqrt(n * (h + decay))
        seen = gradient(m + sigma * noise, batch)
        bend = seen * noise / sigma
        g = BETA1 * g + (1 - BETA1) * seen
        h = BETA2 * h + (1 - BETA2) * bend + 0.5 * (1 - BETA2) ** 2 * (h - bend) ** 2 / (h + decay)
        m = m - rate * (g / (1 - BETA1**t) + decay * m) / (h + decay)
        return (m, g, h, t + 1), None

    keys = jax.random.split(key, jax.tree.leaves(batches)[0].shape[0])
    (m, _, h, _), _ = jax.lax.scan(step, (m, jnp.zeros_like(m), jnp.full_like(m, HESS), jnp.ones(())), (batches, keys))
    return m, h


def ivon(fold: Fold, relu: bool, rate: Any, decay: Any, epochs: int) -> tuple[Array, Array, Array]:
    """Trained by IVON; the forecast is the mixture over draws of its posterior."""
    keys = jax.random.split(jax.random.key(SEED), 4)
    net = network(relu, fold.context.shape[1], fold.forecasts.shape[1], keys[0])
    params, static = eqx.partition(net, eqx.is_array)
    flat, shape = jax.flatten_util.ravel_pytree(params)
    at = lambda flat: eqx.combine(shape(flat), static)  # noqa: E731

    def gradient(flat: Array, rows: Array) -> Array:
        return jax.grad(lambda p: loss(at(p), fold.context[rows], fold.forecasts[rows], fold.y[rows]))(flat)

    n = len(fold.y)
    m, h = variational_newton(gradient, flat, _batches(fold, epochs, keys[1]), keys[2], n, rate, decay)

    def draw(key: Array) -> tuple[Array, Array, Array]:
        flat = m + jax.random.normal(key, m.shape) * jax.lax.rsqrt(n * (h + decay))
        fused = fuse(precisions(at(flat), fold.new_context), fold.new_forecasts)
        return gaussian(fold.new_y, fused.mean, fused.variance), fused.mean, fused.variance

    log_p, mean, variance = jax.lax.map(draw, jax.random.split(keys[3], DRAWS))
    middle = mean.mean(0)
    spread = jnp.mean(variance + (mean - middle) ** 2, 0)
    return jax.nn.logsumexp(log_p, axis=0) - jnp.log(DRAWS), middle, spread


_TRAIN = {"Adam": jax.jit(adam, static_argnums=(1, 4)), "IVON": jax.jit(ivon, static_argnums=(1, 4))}


def chosen(kind: str, relu: bool, whole: Fold, part: Fold) -> Forecast:
    """The setting with the least NLL on later validation rows, trained on all of them."""
    train, grid = _TRAIN[kind], IVON_GRID if kind == "IVON" else GRID
    scores = np.array([-float(jnp.mean(train(part, relu, s.rate, s.decay, s.epochs)[0])) for s in grid])
    best = grid[int(np.argmin(np.nan_to_num(scores, nan=np.inf)))]
    return Forecast(
        *train(whole, relu, best.rate, best.decay, best.epochs), f"rate {best.rate:g}, decay {best.decay:g}"
    )
