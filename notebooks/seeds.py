# %% [markdown] field="Hierarchies" picture=2 summary="Which seeds germinate, and do plates differ?"
# # Seeds
#
# Seeds of two species of *Orobanche* lay on 21 plates, with extracts of bean or cucumber (Crowder, 1978); $r_i$ of
# $n_i$ germinated. Plates differ by more than chance, by an effect of unknown scale:
#
# $$ r_i \sim \mathrm{Bin}(n_i, \mathrm{logit}^{-1}(x_i^\top w + u_i)), \qquad u_i \sim N(0, \sigma^2) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, HalfNormal, MvNormal, Normal
from ngmp_models.demo import timed
from ngmp_models.references import compare, nuts

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
r = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3])
n = np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7])
seed = np.repeat([0.0, 1.0], [11, 10])  # O. aegyptiaca 75 and 73
extract = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5])  # bean and cucumber
X = np.stack([np.ones(21), seed, extract, seed * extract], axis=1)


def germination(X, n, r):
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    w = ngmp.sample("w", MvNormal(np.zeros(4), covariance=9.0))
    u = ngmp.sample("u", Normal(np.zeros(len(r)), std=sd))
    ngmp.sample("r", Binomial(n, logits=X @ w + u), obs=r)


program = ngmp.compile(germination, integrate=("sd",))
inputs = {"X": X, "n": n, "r": r}
program.lower(**inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(**inputs), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")
print(f"converged: {bool(post.converged)}, {post.nodes.weights.size} nodes")
print(post.summary(most=4))

# %% [markdown]
# ## Check: NUTS on the same model


# %%
def theirs(X, n, r):
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(4), 3.0).to_event(1))
    u = numpyro.sample("u", dist.Normal(jnp.zeros(21), sd).to_event(1))
    numpyro.sample("r", dist.Binomial(n, logits=X @ w + u), obs=r)


truth = nuts(theirs, X, n, r, small=SMALL, names=["sd", "w", "u"])
compare(post, truth, "NUTS")

draws = post.sample(jax.random.key(0), (4000,))
logits = np.asarray(draws["w"]) @ X.T + np.asarray(draws["u"])
rate = 1 / (1 + np.exp(-logits))
low, high = np.quantile(rate, [0.05, 0.95], axis=0)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
place = np.arange(21)
for kind, colour in enumerate(("#0072B2", "#D55E00")):
    own = extract == kind
    ax.vlines(place[own], low[own], high[own], color=colour, lw=3, alpha=0.6, label=("bean", "cucumber")[kind])
ax.plot(place, r / n, "x", color="0.2", label="share that germinated")
ax.axvline(10.5, color="0.7", lw=1)
ax.set(xlabel="plate (O. aegyptiaca 75 to the left, 73 to the right)", ylabel="germination rate")
_ = ax.legend(frameon=False, fontsize=8, ncols=3)

# %% [markdown]
# ## What was learned
#
# Cucumber extract helps, less so for the second species: the interaction is negative. A plate with four seeds of
# which none germinated says little, and is drawn to its group.
