# %% [markdown] field="Time series" picture=2 summary="When did the Nile fall, and how wild is it?"
# # The Nile: a local level with two unknown variances
#
# The yearly flow of the Nile at Aswan, 1871 to 1970, in $10^8$ cubic metres: the local level model of every book
# on state space models. Both standard deviations are unknown.
#
# $$ x_k \sim N(x_{k-1}, s^2), \quad y_k \sim N(x_k, r^2), \quad s \sim \mathrm{HalfNormal}(100), \quad r \sim \mathrm{HalfNormal}(200) $$

# %%
import os

import jax
import numpy as np
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
y = sm.datasets.nile.load_pandas().data["volume"].to_numpy()
years = np.arange(1871, 1971)


def level(y):
    s = ngmp.sample("s", HalfNormal(std=100.0))
    r = ngmp.sample("r", HalfNormal(std=200.0))

    def step(x, y_k):
        x = ngmp.sample("x", Normal(x, std=s))
        ngmp.sample("y", Normal(x, std=r), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", Normal(1000.0, std=300.0)), y)


program = ngmp.compile(level, integrate=("s", "r"))
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms for {post.nodes.weights.size} smoothers")
print(f"converged: {bool(post.converged)}")
print(post.summary("s", "r"))

# %% [markdown]
# ## Check: dense linear algebra on a fine grid of both

# %%
n = len(y)
walk = np.minimum(np.arange(1, n + 1)[:, None], np.arange(1, n + 1))
s, r = np.linspace(2.0, 130.0, 17 if SMALL else 61), np.linspace(80.0, 170.0, 15 if SMALL else 51)
log_p, means, squares = np.empty((len(s), len(r))), np.empty((len(s), len(r), n)), np.empty((len(s), len(r), n))
for i, j in np.ndindex(len(s), len(r)):
    prior = 300.0**2 + s[i] ** 2 * walk
    inverse = np.linalg.inv(prior + r[j] ** 2 * np.eye(n))
    residual = y - 1000.0
    log_p[i, j] = 0.5 * (np.linalg.slogdet(inverse)[1] - residual @ inverse @ residual - n * np.log(2 * np.pi))
    log_p[i, j] -= s[i] ** 2 / 2e4 + r[j] ** 2 / 8e4
    means[i, j] = 1000.0 + prior @ inverse @ residual
    squares[i, j] = means[i, j] ** 2 + np.diag(prior - prior @ inverse @ prior)
p = np.exp(log_p - log_p.max())
p /= p.sum()
mean = np.tensordot(p, means, 2)
sd = np.sqrt(np.tensordot(p, squares, 2) - mean**2)
off, ratio = np.abs(np.asarray(post["x"].mean) - mean) / sd, np.asarray(post["x"].std) / sd
print(
    f"levels: means off by at most {off.max():.1e} sd; deviations between {ratio.min():.4f} and {ratio.max():.4f} of the exact"
)
for name, v, w in (("s", s, p.sum(1)), ("r", r, p.sum(0))):
    exact = w @ v, np.sqrt(w @ v**2 - (w @ v) ** 2)
    print(
        f"{name}: {float(post[name].mean):.2f} +- {float(post[name].std):.2f}, on the grid {exact[0]:.2f} +- {exact[1]:.2f}"
    )

ax = ngmp.plot.trajectory(post, "x", data=y, x=years)
_ = ax.set(xlabel="", ylabel="flow")

# %% [markdown]
# ## The years to come

# %%
ahead = program.forecast(post, 10)
print(
    "expected flow:",
    np.asarray(ahead.mean).round(0)[[0, 9]],
    "with standard deviations",
    np.asarray(ahead.std).round(0)[[0, 9]],
)

# %% [markdown]
# ## What was learned
#
# The level falls around 1899, when the dam at Aswan was begun. Hundreds of smoothers, one for every node of the
# two standard deviations, run in one batch in milliseconds, and agree with dense algebra; a change point at an
# unknown year is the [other question](change_point.md) to ask of such data.
