# %% [markdown] field="Survival" picture=2 summary="Does 6-mercaptopurine keep leukaemia away?"
# # Remission of leukaemia: censored times
#
# Weeks of remission of 42 children, half of them given 6-MP (Freireich and others, 1963; the data of every
# textbook since Gehan). For twelve of those treated the study ended before the remission did: their times are
# *censored*.
#
# $$ t_n \sim \mathrm{Exponential}(\text{rate } e^{-a - b x_n}), \quad a, b \sim N(0, 5^2) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Exponential, Normal, exp
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
treated = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
lost = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
t = np.array([*placebo, *treated], float)
x = np.repeat([0.0, 1.0], 21)
censored = np.array([*[0] * 21, *lost])


def remission(x, t, censored):
    a = ngmp.sample("a", Normal(0.0, std=5.0))
    b = ngmp.sample("b", Normal(0.0, std=5.0))
    ngmp.sample("t", Exponential(exp(-a - b * x)), obs=t, censored=censored)


program = ngmp.compile(remission)
program.lower(x=x, t=t, censored=censored).draw("graph.svg")
post, compiled, warm = timed(lambda: program(x=x, t=t, censored=censored), 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}")
print(post.summary())

# %% [markdown]
# ## Check: two unknowns, on a grid

# %%
n = 101 if SMALL else 601
a, b = np.meshgrid(np.linspace(0.5, 4.0, n), np.linspace(-1.0, 4.0, n), indexing="ij")
log_p = -(a**2) / 50 - b**2 / 50
for t_n, x_n, lost_n in zip(t, x, censored, strict=True):
    log_p += -t_n * np.exp(-a - b * x_n) - (0 if lost_n else a + b * x_n)
p = np.exp(log_p - log_p.max())
p /= p.sum()
for name, v in (("a", a), ("b", b)):
    mean = (p * v).sum()
    sd = np.sqrt((p * v**2).sum() - mean**2)
    print(f"{name}: {float(post[name].mean):.3f} +- {float(post[name].std):.3f}, exact {mean:.3f} +- {sd:.3f}")
longer = np.exp(np.asarray(post.sample(jax.random.key(0), (4000,))["b"]))
print(
    f"remissions last {np.median(longer):.1f} times as long, between {np.quantile(longer, 0.05):.1f} and {np.quantile(longer, 0.95):.1f}"
)

draws = {name: np.asarray(v)[:, None] for name, v in post.sample(jax.random.key(1), (1000,)).items()}
weeks = np.linspace(0.01, 40, 200)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for group, colour, label in ((0, "#D55E00", "placebo"), (1, "#0072B2", "6-MP")):
    stay = np.exp(-weeks * np.exp(-draws["a"] - draws["b"] * group))
    low, middle, high = np.quantile(stay, [0.05, 0.5, 0.95], axis=0)
    ax.fill_between(weeks, low, high, color=colour, alpha=0.2, lw=0)
    ax.plot(weeks, middle, color=colour, label=label)
    times, gone = t[x == group], censored[x == group] == 0
    at = np.unique(times[gone])
    product = np.cumprod([1 - ((times == u) & gone).sum() / (times >= u).sum() for u in at])
    ax.step(
        np.concatenate([[0], at, [40]]),
        np.concatenate([[1], product, product[-1:]]),
        where="post",
        color=colour,
        lw=0.8,
        ls="--",
    )
ax.set(xlabel="weeks", ylabel="share in remission", ylim=(0, 1))
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Treatment makes remissions several times as long. Censoring is one argument, `censored=`, with a flag for every row.
# Dashed are the Kaplan-Meier estimates, which assume no shape; with `Weibull(k, scale=...)` and `integrate=("k",)` the
# shape is an unknown too (`ngmp_models.weibull_survival`).
