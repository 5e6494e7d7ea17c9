# %% [markdown] field="Discrete" picture=2 summary="Was the Earth restless or calm?"
# # Earthquakes: decoding a hidden Markov model
#
# Major earthquakes (magnitude 7 and more) per year, 1900 to 2006, as in Zucchini and MacDonald's book. Three
# hidden states with the rates and transitions that they estimate by maximum likelihood; which state was each year
# in?
#
# $$ s_k \sim P_{s_{k-1}}, \qquad y_k \sim \mathrm{Poisson}(\lambda_{s_k}) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Poisson, take
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
y = np.array([
    13, 14, 8, 10, 16, 26, 32, 27, 18, 32, 36, 24, 22, 23, 22, 18, 25, 21, 21, 14, 8, 11, 14, 23, 18, 17, 19, 20, 22, 19, 13,
    26, 13, 14, 22, 24, 21, 22, 26, 21, 23, 24, 27, 41, 31, 27, 35, 26, 28, 36, 39, 21, 17, 22, 17, 19, 15, 34, 10, 15, 22, 18,
    15, 20, 15, 22, 19, 16, 30, 27, 29, 23, 20, 16, 21, 21, 25, 16, 18, 15, 18, 14, 10, 15, 8, 15, 6, 11, 8, 7, 18, 16, 13, 12,
    13, 20, 15, 16, 12, 18, 15, 16, 13, 15, 16, 11, 11,
])  # fmt: skip
rates = np.array([13.1, 19.7, 29.7])
move = np.array([[0.955, 0.024, 0.021], [0.050, 0.899, 0.051], [0.000, 0.197, 0.803]])
move = np.maximum(move, 1e-6) / np.maximum(move, 1e-6).sum(1, keepdims=True)


def states(y, rates, move):
    def step(s, y_k):
        s = ngmp.sample("s", Categorical(probs=take(move, s)))
        ngmp.sample("y", Poisson(take(rates, s)), obs=y_k)
        return s, None

    ngmp.scan(step, ngmp.sample("s0", Categorical(probs=np.ones(3) / 3)), y)


program = ngmp.compile(states)
program.lower(y=y, rates=rates, move=move).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y, rates=rates, move=move), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms; exact: {bool(post.exact)}")
print(f"converged: {bool(post.converged)}")

# %% [markdown]
# ## Check: forward-backward, in ten lines of NumPy

# %%
likelihood = np.exp(y[:, None] * np.log(rates) - rates - gammaln(y + 1)[:, None])
forward, scales, p = [], [], np.ones(3) / 3
for row in likelihood:
    p = (p @ move) * row
    scales.append(p.sum())
    forward.append(p := p / p.sum())
back = [np.ones(3)]
for row in likelihood[:0:-1]:
    b = move @ (row * back[-1])
    back.append(b / b.sum())
exact = np.array(forward) * np.array(back[::-1])
exact /= exact.sum(1, keepdims=True)
print(f"probabilities off by at most {np.abs(np.asarray(post['s'].probs) - exact).max():.1e}")
print(f"log-likelihood {-float(post.free_energy):.6f}, exact {np.log(scales).sum():.6f}")

figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
years = np.arange(1900, 1900 + len(y))
top.plot(years, y, ".-", color="#666666", lw=0.6)
top.plot(years, exact @ rates, color="#D55E00", lw=2)
top.set_ylabel("earthquakes")
ngmp.plot.states(post, "s", x=np.append(years, years[-1] + 1), ax=low)
_ = low.set_xlabel("")

# %% [markdown]
# ## How good are these rates? Their gradient says

# %%
slope = jax.grad(lambda v: program(y=y, rates=v, move=move).free_energy)(rates)
print("slope of minus the log-likelihood in the rates:", np.asarray(slope).round(3))

# %% [markdown]
# ## What was learned
#
# The years from 1905 to 1912 and the forties were restless. Discrete variables are summed out exactly, by the
# same scan as in NumPy, and the likelihood comes with gradients: the slope is nearly zero, as it should be at a
# maximum. With Dirichlet and Gamma priors in place of the numbers the tables are learned as well:
# `ngmp_models.learned_hmm`.
