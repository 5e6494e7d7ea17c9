# %% [markdown] field="Inside JAX" summary="A program as a likelihood inside NumPyro"
# # Hyperparameters, inside other people's code
#
# The free energy of a program is minus the log-evidence of the model at its inputs, and it has derivatives. So a
# program is a likelihood among others: `numpyro.factor` puts it into a NumPyro model, and NUTS samples the
# hyperparameters alone, with every latent variable integrated out. `NGMP_SMALL=1` runs this at the size of a test.

# %%
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import HalfNormal, Normal, Uniform  # noqa: E402

SMALL = os.environ.get("NGMP_SMALL") == "1"
STEPS, DRAWS = (40, 60) if SMALL else (1000, 500)
rng = np.random.default_rng(0)
x = np.zeros(STEPS)
for k in range(1, STEPS):
    x[k] = 0.9 * x[k - 1] + 0.5 * rng.normal()
y = x + 0.4 * rng.normal(size=STEPS)


# %% [markdown]
# The model at given hyperparameters: a chain that comes back to zero, seen through noise.


# %%
def chain(y, phi, sd, r):
    def step(x, y_k):
        x = ngmp.sample("x", Normal(phi * x, std=sd))
        ngmp.sample("y", Normal(x, std=r), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), y)


program = ngmp.compile(chain)


def priors():
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    return phi, numpyro.sample("sd", dist.HalfNormal(1.0)), numpyro.sample("r", dist.HalfNormal(1.0))


def marginal(y):
    """The chain is integrated out by the program."""
    phi, sd, r = priors()
    numpyro.factor("evidence", -program(y, phi, sd, r).free_energy)


def everything(y):
    """The same model with all of its variables, in the form that suits NUTS."""
    phi, sd, r = priors()
    x0 = numpyro.sample("x0", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([STEPS]))
    _, x = jax.lax.scan(lambda x, e: (phi * x + sd * e,) * 2, x0, z)
    numpyro.sample("y", dist.Normal(x, r), obs=y)


# %% [markdown]
# NUTS on either: seconds of processor time for a hundred effective draws of the slowest hyperparameter, compilation
# included.


# %%
def sampled(model):
    began = time.process_time()
    mcmc = MCMC(NUTS(model), num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.asarray(y))
    draws = {k: np.asarray(v) for k, v in mcmc.get_samples().items() if k in ("phi", "sd", "r")}
    took = time.process_time() - began
    return draws, took * 100 / min(float(effective_sample_size(v[None])) for v in draws.values())


short, fast = sampled(marginal)
print(f"hyperparameters alone: {fast:.2f} s of processor time for 100 effective draws")
if not SMALL:
    long, slow = sampled(everything)
    print(f"everything: {slow:.2f} s, {slow / fast:.1f} times as much")
    for name in short:
        print(f"{name}: {short[name].mean():.3f} +- {short[name].std():.3f}, everything "
              f"{long[name].mean():.3f} +- {long[name].std():.3f}")  # fmt: skip


# %% [markdown]
# Up to sixteen numbers need no sampler: `integrate=` sums over them in the same call, and everything else is a mixture.


# %%
def level(y):
    phi = ngmp.sample("phi", Uniform(-1.0, 1.0))
    sd, r = ngmp.sample("sd", HalfNormal(std=1.0)), ngmp.sample("r", HalfNormal(std=1.0))
    chain(y, phi, sd, r)


integrated = ngmp.compile(level, integrate=("phi", "sd", "r"))
post = integrated(y)
began = time.process_time()
post = jax.block_until_ready(integrated(y))
print(f"integrate=: {1e3 * (time.process_time() - began):.0f} ms of processor time, once compiled")
for name, draws in short.items():
    q = post[name]
    print(f"{name}: {float(q.mean):.3f} +- {float(q.std):.3f}, draws {draws.mean():.3f} +- {draws.std():.3f}")
    assert abs(float(q.mean) - draws.mean()) < 0.6 * float(q.std)
print(f"converged: {bool(post.converged)}")
