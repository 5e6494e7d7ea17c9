# %% [markdown] field="Inside JAX" summary="Declare, look, run, batch, predict, differentiate"
# # A tour of ngmp_compiler
#
# Declare a model as a Python function, look at what it is compiled to, run it, batch it, predict with it.

# %%
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import Gamma, Normal, Poisson, exp  # noqa: E402
from ngmp_models import coal_disasters  # noqa: E402

# %% [markdown]
# ## A chain with Poisson counts
#
# The random walk is conjugate and stays in the exact core; every Poisson factor becomes a Gaussian surrogate leaf.


# %%
def chain(y, mask=None, sigma2=0.02):
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, x):
        count, seen = x
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=count, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


counts = coal_disasters().counts
program = ngmp.compile(chain)
print(program.lower(y=counts).describe())

# %%
post = program(y=counts)
print("converged:", bool(post.converged), "after", int(post.sweeps), "sweeps; free energy", float(post.free_energy))
print("rate in the first and last year:", np.exp(np.asarray(post["z"].mean))[[0, -1]])

# %% [markdown]
# ## Missing years, twenty ways at once
#
# A mask is a runtime array, so `vmap` over masks compiles once. Held-out years are predicted with everything that is
# latent integrated out.

# %%
masks = np.random.default_rng(0).random((20, len(counts))) < 0.8


def held_out(mask):
    fit = program(y=counts, mask=mask)
    score = program.predict(fit, "y", y=counts, mask=mask).log_density
    return jnp.sum(jnp.where(mask, 0.0, score)) / jnp.sum(~mask)


scores = jax.jit(jax.vmap(held_out))(masks)
print("held-out log-density per year:", float(scores.mean()), "+-", float(scores.std() / np.sqrt(20)))

# %% [markdown]
# ## Learn the step size
#
# The gradient of the free energy goes through the fixed point by implicit differentiation.

# %%
slope = jax.grad(lambda s: program(y=counts, sigma2=s).free_energy)
print("slope of the free energy at sigma2 = 0.005, 0.02, 0.1:", [round(float(slope(s)), 2) for s in (0.005, 0.02, 0.1)])

# %% [markdown]
# ## Two interfaces, several rules
#
# A Normal with unknown mean and precision: one factor per reading, each with two projected interfaces. Any message rule
# runs on the same declared graph.


# %%
def mean_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


readings = 3.0 + 0.5 * np.random.default_rng(1).standard_normal(16)
for rule in (ngmp.NGMP(), ngmp.NGMP(power=0.5), ngmp.EP(), ngmp.VMP()):
    fit = ngmp.compile(mean_precision, method=rule)(y=readings)
    print(f"{type(rule).__name__:5s} x = {float(fit['x'].mean):.4f} +- {float(fit['x'].std):.4f}, "
          f"tau = {float(fit['tau'].mean):.4f}, free energy {float(fit.free_energy):.4f}")  # fmt: skip
