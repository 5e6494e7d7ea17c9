# %% [markdown] field="Psychometrics" picture=2 summary="Which team is the best, and how sure is that?"
# # Ratings from pairs: baseball, 1987
#
# How often seven teams of the American League's eastern division beat each other in 1987 (Agresti's *Categorical
# Data Analysis*). Strengths on one scale, a Bradley-Terry model:
#
# $$ s_i \sim N(0, 1), \qquad \mathrm{wins}_{ij} \sim \mathrm{Binomial}(13, \mathrm{logit}^{-1}(s_i - s_j)) $$

# %%
import os

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Normal
from ngmp_models.demo import timed
from ngmp_models.references import compare, nuts

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
teams = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
table = np.array([
    [0, 7, 9, 7, 7, 9, 11], [6, 0, 7, 5, 11, 9, 9], [4, 6, 0, 7, 7, 8, 12], [6, 8, 6, 0, 6, 7, 10],
    [6, 2, 6, 7, 0, 7, 12], [4, 4, 5, 6, 6, 0, 6], [2, 4, 1, 3, 1, 7, 0],
])  # fmt: skip
i, j = np.triu_indices(7, 1)
wins, games = table[i, j], table[i, j] + table[j, i]


def ratings(i, j, games, wins):
    s = ngmp.sample("s", Normal(np.zeros(7), std=1.0))
    ngmp.sample("wins", Binomial(games, logits=s[i] - s[j]), obs=wins)


inputs = dict(i=i, j=j, games=games, wins=wins)
program = ngmp.compile(ratings)
program.lower(**inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(**inputs), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: long chains of NUTS


# %%
def theirs(i, j, games, wins):
    s = numpyro.sample("s", dist.Normal(jnp.zeros(7), 1.0))
    numpyro.sample("wins", dist.Binomial(games, logits=s[i] - s[j]), obs=wins)


truth = nuts(theirs, i, j, games, wins, small=SMALL, names=["s"])
compare(post, truth, "NUTS")

ax = ngmp.plot.forest(post, "s")
ax.set_yticks(range(7), teams)
_ = ax.set_xlabel("strength")

# %% [markdown]
# ## Questions about several strengths at once need joint draws

# %%
draws = np.asarray(post.sample(jax.random.key(1), (10000,))["s"])
for k in np.argsort(-draws.mean(0)):
    print(
        f"{teams[k]:10s} is the best with probability {np.mean(draws.argmax(1) == k):.2f}, the last with {np.mean(draws.argmin(1) == k):.2f}"
    )

# %% [markdown]
# ## What was learned
#
# Milwaukee and Detroit are ahead, and 78 games between the best say little about which of them it is; that
# Baltimore is last is nearly certain. Strengths are tied to each other by every game: the posterior is one dense
# Gaussian, found in a few sweeps.
