r"""The convolutional variational autoencoder that makes a context of ETTh windows. `python benchmarks/etth_context.py`

Encoder: convolutions 7 -> 64 -> 64 over 96 hours (kernel 7, ReLU), dense 6144 -> 128 (ReLU), heads for mean and
log-variance of 64 numbers; decoder: dense 64 -> 128 -> 6144, the convolutions backwards. As in the study the decoder is
fed the mean, the loss is $\mathrm{MSE} + 10^{-3}\, \mathrm{KL}$ (a sum over the 64 numbers), AdamW at 1e-3, batches of
128, the best epoch by the loss on later windows. Ours sees every third window of the first 60 % (neighbours differ by
an hour), has 30 epochs, one network for each data set; the study had 50 epochs. Weights are not those of the study,
which are not public.

The checkpoint is kept in NGMP_CACHE (default ~/.cache/ngmp_compiler), by data set and recipe; it is trained where it is
missing, in some minutes on one core.
"""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ngmp_models import etth

LATENT, HIDDEN, CHANNELS, BETA = 64, 128, 64, 1e-3


class Recipe(NamedTuple):
    """What a checkpoint is known by."""

    seed: int = 20260726
    epochs: int = 30
    every: int = 3  # of the training windows
    batch: int = 128
    rate: float = 1e-3

    def name(self, dataset: str) -> str:
        return f"etth_vae_{dataset}_" + "_".join(str(x) for x in self) + ".eqx"


class Encoder(eqx.Module):
    first: eqx.nn.Conv1d
    second: eqx.nn.Conv1d
    dense: eqx.nn.Linear
    mean: eqx.nn.Linear
    log_variance: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k = jax.random.split(key, 5)
        wide = CHANNELS * etth.WINDOW
        self.first = eqx.nn.Conv1d(len(etth.VARIABLES), CHANNELS, 7, padding=3, dtype=jnp.float32, key=k[0])
        self.second = eqx.nn.Conv1d(CHANNELS, CHANNELS, 7, padding=3, dtype=jnp.float32, key=k[1])
        self.dense = eqx.nn.Linear(wide, HIDDEN, dtype=jnp.float32, key=k[2])
        self.mean, self.log_variance = (eqx.nn.Linear(HIDDEN, LATENT, dtype=jnp.float32, key=k[i]) for i in (3, 4))

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A window (7, 96)."""
        x = jax.nn.relu(self.second(jax.nn.relu(self.first(x))))
        x = jax.nn.relu(self.dense(x.reshape(-1)))
        return self.mean(x), self.log_variance(x)


class Decoder(eqx.Module):
    dense: eqx.nn.Linear
    wide: eqx.nn.Linear
    first: eqx.nn.Conv1d
    second: eqx.nn.Conv1d

    def __init__(self, key: jax.Array):
        k = jax.random.split(key, 4)
        self.dense = eqx.nn.Linear(LATENT, HIDDEN, dtype=jnp.float32, key=k[0])
        self.wide = eqx.nn.Linear(HIDDEN, CHANNELS * etth.WINDOW, dtype=jnp.float32, key=k[1])
        self.first = eqx.nn.Conv1d(CHANNELS, CHANNELS, 7, padding=3, dtype=jnp.float32, key=k[2])
        self.second = eqx.nn.Conv1d(CHANNELS, len(etth.VARIABLES), 7, padding=3, dtype=jnp.float32, key=k[3])

    def __call__(self, z: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.wide(jax.nn.relu(self.dense(z)))).reshape(CHANNELS, -1)
        return self.second(jax.nn.relu(self.first(x)))


def loss(net: tuple[Encoder, Decoder], x: jax.Array) -> jax.Array:
    """Of a batch (b, 7, 96)."""
    mean, log_variance = jax.vmap(net[0])(x)
    kl = 0.5 * jnp.sum(jnp.exp(log_variance) + mean**2 - 1.0 - log_variance, axis=1)
    return jnp.mean((jax.vmap(net[1])(mean) - x) ** 2) + BETA * jnp.mean(kl)


def train(windows: np.ndarray, later: np.ndarray, recipe: Recipe) -> tuple[Encoder, list[float]]:
    """The encoder of the epoch with the least loss on later windows, and that loss after every epoch."""
    start, order = jax.random.split(jax.random.key(recipe.seed))
    net = (Encoder(jax.random.fold_in(start, 0)), Decoder(jax.random.fold_in(start, 1)))
    adam: Any = optax.adamw(recipe.rate)
    params, static = eqx.partition(net, eqx.is_array)
    state = adam.init(params)

    @jax.jit
    def step(params, state, x):
        gradient = jax.grad(lambda p: loss(eqx.combine(p, static), x))(params)
        updates, state = adam.update(gradient, state, params)
        return eqx.apply_updates(params, updates), state

    judge = jax.jit(lambda p, x: loss(eqx.combine(p, static), x))
    best, kept, trace = np.inf, params, []
    for epoch in range(recipe.epochs):
        rows = np.asarray(jax.random.permutation(jax.random.fold_in(order, epoch), len(windows)))
        for batch in rows[: len(rows) // recipe.batch * recipe.batch].reshape(-1, recipe.batch):
            params, state = step(params, state, windows[batch])
        trace.append(float(judge(params, later)))
        if trace[-1] < best:
            best, kept = trace[-1], params
    return eqx.combine(kept, static)[0], trace


def encoder(dataset: str, recipe: Recipe = Recipe()) -> Encoder:  # noqa: B008
    """From its checkpoint, or trained."""
    folder = Path(os.environ.get("NGMP_CACHE", Path.home() / ".cache" / "ngmp_compiler"))
    path = folder / recipe.name(dataset)
    if path.exists():
        return eqx.tree_deserialise_leaves(path, Encoder(jax.random.key(0)))
    task = etth.cell(dataset, etth.HORIZONS[0])
    n = task.start[0]  # training windows; a tenth as many of the validation part judge
    first, later = np.arange(0, n, recipe.every), n + np.arange(0, task.fitted, 10)
    parts = [task.windows(rows).transpose(0, 2, 1).astype(np.float32) for rows in (first, later)]
    began = time.perf_counter()
    made, trace = train(*parts, recipe)
    print(f"{dataset}: loss on later windows {[round(x, 4) for x in trace]}, {time.perf_counter() - began:.0f} s")
    folder.mkdir(parents=True, exist_ok=True)
    eqx.tree_serialise_leaves(path, made)
    return made


def autoencoded(task: etth.Cell, recipe: Recipe = Recipe()) -> np.ndarray:  # noqa: B008
    """Means (n, 64) of the windows of a cell."""
    net = encoder(task.dataset, recipe)
    windows = task.windows(task.start).transpose(0, 2, 1).astype(np.float32)
    run = jax.jit(jax.vmap(lambda x: net(x)[0]))
    return np.concatenate([np.asarray(run(w), float) for w in np.array_split(windows, 8)])


if __name__ == "__main__":
    for name in etth.DATASETS:
        encoder(name)
