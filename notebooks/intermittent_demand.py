# %% [markdown] field="Time series" picture=2 summary="What will be asked for, when mostly nothing is?"
# # Intermittent demand
#
# Spare parts: most weeks nothing is asked for, and then several at once (drawn here). A chain of log-demands,
# seen through counts that are zero for another reason in 40 % of the weeks:
#
# $$ z_k \sim N(z_{k-1}, 0.2^2), \qquad y_k = 0 \text{ with probability } 0.4, \text{ else } \mathrm{Poisson}(e^{z_k}) $$

# %%
import os

import jax
import numpy as np
from scipy.special import gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, ZeroInflated, exp
from ngmp_models.demo import timed
from ngmp_models.references import compare, on_a_grid

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
rng = np.random.default_rng(3)
truth = 0.2 + np.cumsum(0.2 * rng.standard_normal(100))
y = np.where(rng.random(100) < 0.4, 0, rng.poisson(np.exp(truth)))


def demand(y, mask=None):
    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, std=0.2))
        ngmp.sample("y", ZeroInflated(Poisson(exp(z)), 0.4), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, std=1.0)), (y, mask))


program = ngmp.compile(demand)
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: forward-backward on a grid

# %%
z = np.linspace(-6.0, 6.0, 201 if SMALL else 1601)
some = np.log(0.6) + y[:, None] * z - np.exp(z) - gammaln(y + 1)[:, None]
log_density = np.where(y[:, None] == 0, np.logaddexp(np.log(0.4), some), some)
mean, sd, evidence = on_a_grid(log_density, z, 0.0, 1.0, 0.2)
compare(post, {"z": (mean, sd)})
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")

ax = ngmp.plot.trajectory(post, "z", data=y, transform=np.exp)
ax.plot(np.exp(truth), "--", color="#009E73", label="truth")
ax.set(xlabel="week", ylabel="demand in a week with any")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## How much to keep in stock
#
# The predictive distribution of the next weeks, zeros included.

# %%
ahead = program.forecast(post, 4)
draws = np.asarray(ahead.sample(jax.random.key(0), (2000,)))
print("expected a week:", np.asarray(ahead.mean).round(2))
print("enough for four weeks in 95 % of cases:", int(np.quantile(draws.sum(1), 0.95)))

# %% [markdown]
# ## What was learned
#
# A zero says little where zeros come by themselves, so a run of them moves the level slowly. The likelihood is a
# mixture, and its message is bimodal in principle; projected it is off by little here. Joint draws of a forecast
# answer questions of sums, which marginal quantiles do not.
