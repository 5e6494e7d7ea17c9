# %% [markdown] field="Learning" summary="Variances by gradients, an autoencoder, a Gaussian process, amortised starts"
# # Learning through compiled programs
#
# A program is a function among others: gradients go through its fixed point, so `optax` on a loss is all that learning
# takes. Four examples, each against a stated baseline on held-out data. `NGMP_SMALL=1` runs them at the size of a test.

# %%
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_models import learning  # noqa: E402

SMALL = os.environ.get("NGMP_SMALL") == "1"
rng = np.random.default_rng(0)
began = time.perf_counter()


def finish(name, score, baselines):
    """Print held-out scores (smaller is better), and insist that every baseline is beaten."""
    text = ", ".join(f"{what} {value:.3f}" for what, value in baselines.items())
    print(f"{name}: held out {score:.3f}; {text}; {time.perf_counter() - began:.0f} s so far")
    assert score < min(baselines.values()), name


def held_out(program, seen, **inputs):
    """Minus the predictive log-density of an element that was not seen, on average; and the posterior."""
    post = program(mask=seen, **inputs)
    score = program.predict(post, "y", mask=seen, **inputs).log_density
    return float(-jnp.sum(jnp.where(seen, 0.0, score)) / np.sum(~seen)), post


# %% [markdown]
# ## 1. The variances of a Poisson chain, by free-energy descent
#
# The free energy bounds minus the log-evidence, and its gradient at the fixed point needs no linear system at all (the
# envelope theorem: every factor has one projected interface). Sunspots of fifty years, or the coal-mining disasters
# where the file is not at hand. Baselines: the variances the search starts from, and a constant rate.

# %%
counts = ngmp_models.sunspots()[-600:] if os.environ.get("NGMP_DATA") else ngmp_models.coal_disasters().counts
counts = counts[-150:] if SMALL else counts
seen = rng.random(len(counts)) < 0.8
walk = ngmp.compile(learning.poisson_walk, tol=1e-6)


def chain_loss(p):
    post = walk(y=counts, mask=seen, sigma2=jnp.exp(p["sigma2"]), prior_variance=jnp.exp(p["prior"]))
    return post.free_energy / len(counts), post.converged


def chain_score(p):
    return held_out(walk, seen, y=counts, sigma2=jnp.exp(p["sigma2"]), prior_variance=jnp.exp(p["prior"]))


def constant_rate(y, seen):
    """Minus the log-density of held-out counts at the mean of the others."""
    rate = y[seen].mean()
    terms = y * np.log(rate) - rate - np.array([np.sum(np.log(np.arange(1, k + 1))) for k in y])
    return -terms[~seen].mean()


start = {"sigma2": jnp.log(1.0), "prior": jnp.log(1.0)}
found, energies = learning.descend(chain_loss, start, 30 if SMALL else 80, optax.adam(0.1))
score, post = chain_score(found)
print("converged:", bool(post.converged), {k: round(float(np.exp(v)), 3) for k, v in found.items()})
baselines = {"variances of 1": chain_score(start)[0], "constant rate": constant_rate(counts, seen)}
finish("Poisson chain", score, baselines)

# %% [markdown]
# ## 2. A structured variational autoencoder
#
# Rows of three numbers move along a curve whose position is an autoregressive process. An encoder turns each row into a
# pseudo-observation of the position, the compiled chain combines them (exactly, in one sweep), and a decoder maps draws
# of the position back. A quarter of the rows are missing; baselines for them: the rows around, interpolated, with the
# noise that interpolation has on the training sequences, and one Gaussian for all rows.

# %%
sequences, length = (32, 20) if SMALL else (64, 30)
z = np.zeros((2 * sequences, length))
steps = rng.normal(size=z.shape)
z[:, 0] = steps[:, 0]
for k in range(1, length):
    z[:, k] = 0.9 * z[:, k - 1] + np.sqrt(1 - 0.9**2) * steps[:, k]
x = np.stack([np.sin(2 * z), np.cos(2 * z), np.tanh(z)], -1) + 0.2 * rng.normal(size=(*z.shape, 3))
present = rng.random(z.shape) < 0.75
chain = ngmp.compile(learning.pseudo_observed_chain)


def bounds(model, rows, key, draws):
    keys = jax.random.split(key, sequences)
    given = jnp.asarray(x)[rows], jnp.asarray(present)[rows], keys
    return jax.vmap(lambda x, seen, key: model.bound(chain, x, seen, key, draws))(*given)


def autoencoder_loss(model):
    bound, unseen = bounds(model, slice(0, sequences), jax.random.key(1), 8)
    return jnp.mean(bound) / length, jnp.mean(unseen)


def interpolated():
    at, residuals = np.arange(length), []
    for row, ok in zip(x, present, strict=True):
        guess = np.stack([np.interp(at, at[ok], row[ok, j]) for j in range(3)], -1)
        residuals.append(np.where(ok[:, None], np.nan, row - guess))
    std = np.nanstd(residuals[:sequences], axis=(0, 1))
    scores = 0.5 * (np.array(residuals[sequences:]) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    return np.nanmean(np.sum(scores, -1))


def one_gaussian():
    known = x[:sequences][present[:sequences]]
    mean, std = known.mean(0), known.std(0)
    scores = 0.5 * ((x[sequences:] - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    return scores.sum(-1)[~present[sequences:]].mean()


model = learning.Autoencoder(3, 16, jax.random.key(0))
model, _ = learning.descend(autoencoder_loss, model, 200 if SMALL else 400, optax.adam(1e-2))
_, unseen = bounds(model, slice(sequences, None), jax.random.key(2), 64)
finish("autoencoder", float(jnp.mean(unseen)), {"interpolated": interpolated(), "one Gaussian": one_gaussian()})

# %% [markdown]
# ## 3. A Gaussian process with Poisson counts, in state-space form
#
# A Matern-3/2 process at irregular times is a chain of vectors of two; lengthscale, variance and mean are learned. The
# same model takes `likelihood="bernoulli"`. Baselines: the hyperparameters at the start, and a constant rate.

# %%
size = 80 if SMALL else 200
times = np.sort(rng.uniform(0, 10 * size / 200, size))
y = rng.poisson(np.exp(1.5 * np.sin(2 * times) + 0.5))
gaps, seen = np.diff(times, prepend=times[0] - 1.0), rng.random(size) < 0.8
process = ngmp.compile(learning.matern_process, tol=1e-6)


def as_inputs(p):
    return {"gaps": gaps, "y": y, "lengthscale": jnp.exp(p["l"]), "variance": jnp.exp(p["v"]), "mean": p["m"]}


def process_loss(p):
    post = process(mask=seen, **as_inputs(p))
    return post.free_energy / size, post.converged


start = {"l": jnp.log(0.1), "v": jnp.log(1.0), "m": jnp.asarray(0.0)}
found, _ = learning.descend(process_loss, start, 30 if SMALL else 60, optax.adam(0.1))
score, post = held_out(process, seen, **as_inputs(found))
print("converged:", bool(post.converged), {k: round(float(v), 3) for k, v in found.items()})
baselines = {"start": held_out(process, seen, **as_inputs(start))[0], "constant rate": constant_rate(y, seen)}
finish("Gaussian process", score, baselines)

# %% [markdown]
# ## 4. Amortised starts
#
# A network that has seen the posteriors of many series guesses the marginals of a new one from windows of its counts,
# and the run begins at the messages that belong to them. Baseline: the sweeps of the automatic start, on the same
# new series.

# %%
series = 48 if SMALL else 128
train = 3 * series // 4
rates = np.exp(np.clip(1.0 + np.cumsum(0.3 * rng.normal(size=(series, 100)), 1), -4, 5))
y = jnp.asarray(rng.poisson(rates))
poisson = ngmp.compile(ngmp_models.poisson_chain, tol=1e-4)
posts = jax.jit(jax.vmap(lambda y: poisson(y=y)))(y)
targets = jnp.stack([posts["z"].mean, jnp.log(posts["z"].variance)], -1)
features = jax.vmap(lambda y: learning.windows(y, 8))(y)


def guess_loss(network):
    return jnp.mean((jax.vmap(jax.vmap(network))(features[:train]) - targets[:train]) ** 2), None


network = eqx.nn.MLP(17, 2, 48, 1, jnp.tanh, key=jax.random.key(0))
count = 500 if SMALL else 1000
network, _ = learning.descend(guess_loss, network, count, optax.adam(optax.cosine_decay_schedule(1e-2, count)))


@jax.jit
@jax.vmap
def warm(y, features):
    return poisson(y=y, init=learning.warm_start(network, y, features, poisson.init(y=y))).sweeps


sweeps = warm(y[train:], features[train:])
finish("sweeps", float(sweeps.mean()), {"automatic start": float(posts.sweeps[train:].mean())})
