# %% [markdown] field="Neuroscience" picture=2 summary="On which trial did the animal start to know?"
# # A learning curve from right and wrong answers
#
# An animal's answers, right (1) or wrong (0), trial by trial (drawn here from a logistic curve). When is it
# better than chance? A state-space model of learning: the log-odds $x_k$ walk, and answers are Bernoulli. The
# state on trial $k$ given all answers.
#
# $$ x_k \sim N(x_{k-1}, 0.3^2), \qquad y_k \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(x_k)) $$

# %%
import os

import jax
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal
from ngmp_models.demo import timed
from ngmp_models.references import compare, on_a_grid

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
trials = 80
truth = -0.2 + 3.0 / (1 + np.exp(-(np.arange(trials) - 40) / 6))
y = (np.random.default_rng(5).random(trials) < 1 / (1 + np.exp(-truth))).astype(int)


def learning(y):
    def step(x, y_k):
        x = ngmp.sample("x", Normal(x, std=0.3))
        ngmp.sample("y", Bernoulli(logits=x), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), y)


program = ngmp.compile(learning)
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: forward-backward on a grid

# %%
z = np.linspace(-9.0, 11.0, 301 if SMALL else 2001)
log_density = y[:, None] * z - np.logaddexp(0.0, z)
mean, sd, evidence = on_a_grid(log_density, z, 0.0, 1.0, 0.3)
sure = lambda q: np.asarray(q.quantile(0.05)) > 0
compare(post, {"x": (mean, sd)})
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")
better = sure(post["x"])
print("better than chance with 95 % from trial", int(np.argmax([better[k:].all() for k in range(trials)])) + 1, "on")

logistic = lambda v: 1 / (1 + np.exp(-v))
ax = ngmp.plot.trajectory(post, "x", data=y, transform=logistic, x=np.arange(1, trials + 1))
ax.plot(np.arange(1, trials + 1), logistic(truth), "--", color="#009E73", label="truth")
ax.axhline(0.5, color="#666666", lw=0.8, ls=":")
ax.set(xlabel="trial", ylabel="probability of a right answer")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Each answer says little, and yet the smoothed curve has a definite trial from which the animal knows. Under NGMP
# the leaf of a Bernoulli factor is the best Gaussian in KL[q||p], so deviations are a little small;
# `method=ngmp.EP()` moves them the other way. A whole session of animals is a `vmap`.
