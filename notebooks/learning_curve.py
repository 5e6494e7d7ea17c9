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
def on_a_grid(log_density, z, first_mean, first_sd, step_sd):
    """Forward-backward on a grid of log-rates: exact up to its spacing. Means, deviations, log-evidence."""
    move = np.exp(-0.5 * ((z[:, None] - z[None]) / step_sd) ** 2)
    move *= (z[1] - z[0]) / (step_sd * np.sqrt(2 * np.pi))  # from column to row
    p = np.exp(-0.5 * ((z - first_mean) / first_sd) ** 2) / (first_sd * np.sqrt(2 * np.pi)) * (z[1] - z[0])
    forward, evidence, back = [], 0.0, [np.ones(len(z))]
    for row in log_density:
        p = (move @ p) * np.exp(row - row.max())
        evidence += np.log(p.sum()) + row.max()
        forward.append(p := p / p.sum())
    for row in log_density[:0:-1]:
        b = move.T @ (np.exp(row - row.max()) * back[-1])
        back.append(b / b.max())
    q = np.array(forward) * np.array(back[::-1])
    q /= q.sum(1, keepdims=True)
    mean = q @ z
    return mean, np.sqrt(q @ z**2 - mean**2), evidence


z = np.linspace(-9.0, 11.0, 301 if SMALL else 2001)
log_density = y[:, None] * z - np.logaddexp(0.0, z)
mean, sd, evidence = on_a_grid(log_density, z, 0.0, 1.0, 0.3)
sure = lambda q: np.asarray(q.quantile(0.05)) > 0
off, ratio = np.abs(np.asarray(post["x"].mean) - mean) / sd, np.asarray(post["x"].std) / sd
print(
    f"means off by at most {off.max():.3f} sd; deviations between {ratio.min():.3f} and {ratio.max():.3f} of the exact"
)
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
