# %% [markdown] field="Regression" picture=2 summary="Do people see the doctor more when it is free?"
# # Overdispersed counts: visits to the doctor
#
# The RAND health insurance experiment (1974 to 1982) gave families insurance plans at random, with coinsurance from
# nothing to 95 %. Yearly visits to a doctor are counts with far more spread than Poisson's; so
#
# $$ y_n \sim \mathrm{NegBin}(\text{mean } e^{x_n^\top w},\ \text{size } r), \qquad w \sim N(0, 2^2 I), \quad \log r \sim N(0, 1) $$
#
# with the size integrated out around the compiled program.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import LogNormal, MvNormal, NegativeBinomial, exp
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.randhie.load_pandas().data.iloc[:: 40 if SMALL else 4]
y = data["mdvis"].to_numpy(int)
names = ["lncoins", "idp", "lpi", "physlm", "disea", "hlthf", "hlthp"]
X = data[names].to_numpy(float)
X = np.column_stack([np.ones(len(y)), (X - X.mean(0)) / X.std(0)])
print(f"{len(y)} years of a person, mean {y.mean():.2f} visits, variance {y.var():.1f}")


def visits(X, y):
    size = ngmp.sample("size", LogNormal(0.0, std=1.0))
    w = ngmp.sample("w", MvNormal(np.zeros(8), covariance=4.0))
    ngmp.sample("y", NegativeBinomial(mean=exp(X @ w), dispersion=size), obs=y)


program = ngmp.compile(visits, integrate=("size",))
program.lower(X=X, y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(X=X, y=y), 2)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.0f} ms")
print(f"converged: {bool(post.converged)}, {post.nodes.weights.size} nodes")
print(post.summary(most=8))

# %% [markdown]
# ## Check: maximum likelihood by statsmodels

# %%
fit = sm.NegativeBinomial(y, X).fit(disp=False)
off = np.abs(np.asarray(post["w"].mean) - fit.params[:8]) / fit.bse[:8]
ratio = np.asarray(post["w"].std) / fit.bse[:8]
print(f"coefficients: at most {off.max():.3f} standard errors away, widths {ratio.min():.2f} to {ratio.max():.2f} of these")
print(f"size: {float(post['size'].mean):.3f}, by maximum likelihood {1 / fit.params[8]:.3f}")

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
mean, sd = np.asarray(post["w"].mean)[1:], np.asarray(post["w"].std)[1:]
ax.errorbar(mean, np.arange(7), xerr=1.96 * sd, fmt="o", color="#0072B2", label="here, 95 %")
ax.plot(fit.params[1:8], np.arange(7), "x", color="#D55E00", label="statsmodels")
ax.axvline(0.0, color="0.7", lw=1)
ax.set_yticks(np.arange(7), ["coinsurance", "deductible plan", "incentive payment", "limitation", "chronic diseases",
                             "health fair", "health poor"])  # fmt: skip
ax.set_xlabel("effect of one standard deviation on the log of visits")
_ = ax.legend(frameon=False, fontsize=8)

# %% [markdown]
# ## What was learned
#
# Who pays a share of the bill goes less often; chronic diseases matter most. A thousandth of the effort of writing a
# sampler: the size is a number around the program, on a grid, with the evidence of each of its values.
