# %% [markdown] field="Hierarchies" picture=2 summary="Which pump should be replaced?"
# # Ten pumps of a power plant
#
# How often ten pumps failed in how many thousand hours (Gaver and O'Muircheartaigh, 1987). Rates differ; those of
# pumps that ran for short are hardly known, and are drawn towards the others.
#
# $$ \beta \sim \mathrm{Gamma}(2, 1), \quad \theta_n \sim \mathrm{Gamma}(1, \beta), \quad y_n \sim \mathrm{Poisson}(t_n \theta_n) $$

# %%
import os

import jax
import numpy as np
from scipy.special import gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Poisson
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
hours = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
y = np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])


def pumps(hours, y):
    beta = ngmp.sample("beta", Gamma(2.0, rate=1.0))
    theta = ngmp.sample("theta", Gamma(np.ones(len(y)), rate=beta))
    ngmp.sample("y", Poisson(hours * theta), obs=y)


program = ngmp.compile(pumps, integrate=("beta",))
program.lower(hours=hours, y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(hours=hours, y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}")
print(post.summary(most=10))

# %% [markdown]
# ## Check: given $\beta$ all is conjugate, and one dimension is left

# %%
b = np.exp(np.linspace(-4.0, 3.0, 401 if SMALL else 4001))
log_p = np.log(b) - b + np.log(b)  # the prior, on the grid of logarithms
log_p = log_p + (np.log(b)[:, None] - (1 + y) * np.log(b[:, None] + hours)).sum(1)
log_p += (gammaln(1 + y) - gammaln(1 + y) + y * np.log(hours)).sum()
p = np.exp(log_p - log_p.max())
evidence = np.log(p.sum() * np.log(b[1] / b[0])) + log_p.max()
p /= p.sum()
mean = p @ ((1 + y) / (b[:, None] + hours))
sd = np.sqrt(p @ ((1 + y) * (2 + y) / (b[:, None] + hours) ** 2) - mean**2)
q = post["theta"]
print(
    f"rates: means off by at most {np.max(np.abs(np.asarray(q.mean) - mean) / sd):.1e} sd, "
    f"deviations by {np.max(np.abs(np.asarray(q.std) / sd - 1)):.1e}"
)
print(f"log-evidence {-float(post.free_energy):.6f}, exact {evidence:.6f}")

ax = ngmp.plot.forest(post, "theta")
ax.plot(y / hours, np.arange(10), "x", color="#D55E00", label="failures by hours")
ax.set(xlabel="failures in a thousand hours")
_ = ax.legend(frameon=False, fontsize=8)

# %% [markdown]
# ## What was learned
#
# The last two pumps fail most often, about twice in a thousand hours; the one that ran for a fifth of the time of the
# other is drawn more to the rest. The posterior is exact: a mixture of Gamma distributions over the nodes of the
# hyperparameter.
