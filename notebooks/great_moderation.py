# %% [markdown] field="Finance" picture=2 summary="When did the economy become calmer?"
# # Stochastic volatility: the Great Moderation
#
# Quarterly growth of the real gross domestic product of the United States, 1959 to 2009 (from statsmodels, a
# public series). How much it varies changes slowly:
#
# $$ h_k \sim N(h_{k-1}, 0.2^2), \qquad r_k \sim N(0, e^{h_k}) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, exp
from ngmp_models.demo import timed
from ngmp_models.references import compare, on_a_grid

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.macrodata.load_pandas().data
growth = 100 * np.diff(np.log(data.realgdp.to_numpy()))
r = growth - growth.mean()
when = (data.year + (data.quarter - 1) / 4).to_numpy()[1:]


def volatility(r):
    def step(h, r_k):
        h = ngmp.sample("h", Normal(h, std=0.2))
        ngmp.sample("r", Normal(0.0, variance=exp(h)), obs=r_k)
        return h, None

    ngmp.scan(step, ngmp.sample("h0", Normal(0.0, std=1.0)), r)


program = ngmp.compile(volatility)
program.lower(r=r).draw("graph.svg")
post, compiled, warm = timed(lambda: program(r=r), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: forward-backward on a grid

# %%
z = np.linspace(-6.0, 5.0, 201 if SMALL else 1601)
log_density = -0.5 * (np.log(2 * np.pi) + z + r[:, None] ** 2 * np.exp(-z))
mean, sd, evidence = on_a_grid(log_density, z, 0.0, 1.0, 0.2)
compare(post, {"h": (mean, sd)})
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")

figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
top.bar(when, r, width=0.25, color="#666666")
top.set_ylabel("growth less its mean, %")
ngmp.plot.trajectory(post, "h", x=when, transform=lambda h: np.exp(h / 2), ax=low)
low.plot(when[::6], np.exp(mean / 2)[::6], ".", color="black", label="exact mean")
low.set(xlabel="", ylabel="standard deviation, %")
_ = low.legend(frameon=False, ncols=3)

# %% [markdown]
# ## What was learned
#
# The standard deviation of quarterly growth about halves around 1984, and grows again at the end, with the crisis
# of 2008. The chain of log-variances has no conjugate factor at all except its walk, and converges in a few
# sweeps. With unknown step and mean, `integrate=("phi", "std")` does the rest:
# `ngmp_models.reverting_volatility`.
