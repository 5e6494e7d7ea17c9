# %% [markdown] field="Ecology and genetics" picture=2 summary="How closely are two genes linked?"
# # Genetic linkage, from four counts
#
# 197 animals fall into four kinds with probabilities $(2 + \theta)/4,\ (1 - \theta)/4,\ (1 - \theta)/4,\
# \theta/4$, where $\theta$ says how closely two genes are linked (Rao, 1965). Seen: 125, 18, 20, 34.
#
# $$ \theta \sim \mathrm{Uniform}(0, 1), \qquad y \sim \mathrm{Multinomial}(p(\theta)) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Multinomial, Uniform
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
y = np.array([125, 18, 20, 34])


def linkage(y):
    theta = ngmp.sample("theta", Uniform(0.0, 1.0))
    theta = jnp.asarray(theta)
    probs = jnp.stack([2 + theta, 1 - theta, 1 - theta, theta]) / 4
    ngmp.sample("y", Multinomial(probs=probs), obs=y)


program = ngmp.compile(linkage, integrate=("theta",))
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}")

# %% [markdown]
# ## Check: the posterior is a polynomial

# %%
t = np.linspace(0.0, 1.0, 10001)[1:-1]
p = np.exp(125 * np.log(2 + t) + 38 * np.log(1 - t) + 34 * np.log(t) - 130.0)
p /= p.sum() * (t[1] - t[0])
mean = (p * t).sum() * (t[1] - t[0])
sd = np.sqrt((p * t**2).sum() * (t[1] - t[0]) - mean**2)
q = post["theta"]
print(f"theta {float(q.mean):.5f} +- {float(q.std):.5f}, exact {mean:.5f} +- {sd:.5f}")
tail = t[np.searchsorted(np.cumsum(p) * (t[1] - t[0]), 0.95)]
print(f"95 % point {float(q.quantile(0.95)):.4f}, exact {tail:.4f}")

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.plot(t, p, color="black", lw=3, alpha=0.3, label="exact")
ax.plot(t[::20], np.asarray(q.density(t[::20])), color="#0072B2", label="ngmp_compiler")
ax.set(xlabel="theta", xlim=(0.35, 0.85), ylim=(0, None))
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# A model with nothing but an unusual likelihood of one number is its own integral: the number stands in the model
# as such, any function of `jax.numpy` may be taken of it, and the compiler does the rest. The recombination
# fraction is $1 - \sqrt\theta$: draws of `post.sample` give its posterior.
