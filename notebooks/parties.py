# %% [markdown] field="Regression" picture=2 summary="Who feels close to which party?"
# # Ordinal regression: party identification
#
# The American national election study of 1996 asked 944 people where they stand on a scale of seven, from strong
# Democrat (0) to strong Republican (6). What they are is regressed on their own view (left to right), income, age
# and education, by ordered logits:
#
# $$ P(y_n \le k) = \mathrm{logit}^{-1}(c_k - x_n^\top w), \qquad c_1 < \dots < c_6 $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
from statsmodels.miscmodels.ordinal_model import OrderedModel

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, OrderedLogistic
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.anes96.load_pandas().data
names = ["selfLR", "income", "age", "educ"]
X = data[names].to_numpy(float)
X = (X - X.mean(0)) / X.std(0)
y = data["PID"].to_numpy(int)
reference = OrderedModel(y, X, distr="logit").fit(method="bfgs", disp=False)
cutpoints = reference.model.transform_threshold_params(reference.params[4:])[1:-1]
print("cutpoints, by maximum likelihood:", cutpoints.round(2))


def ordinal(X, y, cutpoints):
    w = ngmp.sample("w", MvNormal(np.zeros(4), covariance=25.0))
    ngmp.sample("y", OrderedLogistic(X @ w, cutpoints), obs=y)


program = ngmp.compile(ordinal)
inputs = {"X": X, "y": y, "cutpoints": cutpoints}
program.lower(**inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(**inputs), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary())

# %% [markdown]
# ## Check: maximum likelihood by statsmodels
#
# 944 rows and a weak prior: means are near the maximum of the likelihood, at the same cutpoints.

# %%
off = np.abs(np.asarray(post["w"].mean) - reference.params[:4]) / reference.bse[:4]
print(f"at most {off.max():.3f} standard errors from statsmodels; "
      f"widths {(np.asarray(post['w'].std) / reference.bse[:4]).round(2)} of its errors, whose cutpoints are free")

# The cutpoints can be had by the evidence, whose gradient flows through the fixed point.
slope = jax.grad(lambda c: program(X=X, y=y, cutpoints=c).free_energy)(cutpoints)
print("gradient of minus the log-evidence at these cutpoints:", np.asarray(slope).round(3))

view = np.linspace(-2.5, 2.5, 61)
upto = 1 / (1 + np.exp(-(cutpoints[:, None] - view * float(post["w"].mean[0]))))
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
edges = np.vstack([np.zeros_like(view), upto, np.ones_like(view)])
for k in range(7):
    ax.fill_between(view, edges[k], edges[k + 1], color=plt.get_cmap("RdBu_r")(0.08 + 0.14 * k), lw=0)
ax.set(xlabel="own view, left to right (standardised)", ylabel="share of answers", xlim=(-2.5, 2.5), ylim=(0, 1))
ax.text(-2.3, 0.25, "strong Democrat", color="white")
_ = ax.text(1.35, 0.85, "strong Republican", color="white")

# %% [markdown]
# ## What was learned
#
# The own view decides; income draws to the right, a little. The gradient of the evidence in the cutpoints is near
# zero where the likelihood has its maximum, so that `optax` could find them, or they can be declared as unknowns.
