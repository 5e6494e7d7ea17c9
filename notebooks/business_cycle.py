# %% [markdown] field="Time series" picture=2 summary="When was the American economy in recession?"
# # Regime switching: recessions
#
# Growth of the American gross domestic product, by quarter, 1959 to 2009. Two states, expansion and recession,
# each with a mean growth of its own, follow one another as a Markov chain (after Hamilton, 1989):
#
# $$ s_t \sim A_{s_{t-1}}, \qquad y_t \sim N(\mu_{s_t}, 1/\tau), \qquad A_k \sim \mathrm{Dirichlet}, \quad \mu_k \sim N, \quad \tau \sim \mathrm{Gamma} $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Gamma, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.macrodata.load_pandas().data
y = 100 * np.diff(np.log(data["realgdp"].to_numpy()))
when = (data["year"] + (data["quarter"] - 1) / 4).to_numpy()[1:]


def regimes(y):
    A = ngmp.sample("A", Dirichlet(jnp.array([[18.0, 2.0], [4.0, 12.0]])))
    mu = ngmp.sample("mu", Normal(jnp.array([1.0, -0.5]), std=0.5))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    s0 = ngmp.sample("s0", Categorical(probs=jnp.array([0.8, 0.2])))

    def step(s, y_t):
        s = ngmp.sample("s", Categorical(probs=ngmp.take(A, s)))
        ngmp.sample("y", Normal(ngmp.take(mu, s), precision=tau), obs=y_t)
        return s, None

    ngmp.scan(step, s0, y)


program = ngmp.compile(regimes)
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary(most=4))
recession = np.asarray(post["s"].probs)[:, 1]

# %% [markdown]
# ## Check: the same model by maximum likelihood
#
# statsmodels fits a switching mean with one variance; its smoothed probabilities, which take the parameters as
# known, should look alike.

# %%
fit = sm.tsa.MarkovRegression(y, k_regimes=2, trend="c", switching_variance=False).fit(disp=False)
order = np.argsort(-fit.params[2:4])
theirs = np.asarray(fit.smoothed_marginal_probabilities)[:, order[1]]
print(f"means: {np.asarray(post['mu'].mean).round(2)}, by maximum likelihood {fit.params[2:4][order].round(2)}")
print(f"correlation of the probabilities of recession: {np.corrcoef(recession, theirs)[0, 1]:.3f}")
dated = [(1960.25, 1961.0), (1969.75, 1970.75), (1973.75, 1975.0), (1980.0, 1980.5), (1981.5, 1982.75),
         (1990.5, 1991.0), (2001.0, 2001.75), (2007.75, 2009.25)]  # fmt: skip
found = [bool(np.any(recession[(when >= a) & (when <= b)] > 0.5)) for a, b in dated]
print("recessions dated by the National Bureau of Economic Research that are found:", sum(found), "of", len(dated))

figure, axes = plt.subplots(2, 1, figsize=(7.5, 4.2), sharex=True, layout="constrained")
axes[0].plot(when, y, color="0.3", lw=1)
axes[0].set_ylabel("growth, %")
axes[1].plot(when, recession, color="#D55E00", label="here")
axes[1].plot(when, theirs, color="#0072B2", ls="--", lw=1, label="statsmodels")
for ax in axes:
    for a, b in dated:
        ax.axvspan(a, b, color="0.88", lw=0)
axes[1].set(ylabel="P(recession)", xlabel="year (grey: recessions as dated)")
_ = axes[1].legend(frameon=False, fontsize=8)

# %% [markdown]
# ## What was learned
#
# The chain of states is exact given the parameters; tables, means and precision are factorised from it, which
# `describe` says. The probabilities are of the data, without hindsight of the committee that dated the recessions.
