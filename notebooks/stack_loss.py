# %% [markdown] field="Regression" picture=2 summary="What does one bad day do to a regression?"
# # Robust regression: stack loss
#
# Twenty-one days of a plant that oxidises ammonia (Brownlee, 1960): how much of it is lost, by air flow,
# temperature of the cooling water and concentration of acid. Days 1, 3, 4 and 21 are famous outliers. Least
# squares beside Student's t:
#
# $$ y_n \sim t_4(a + x_n^\top w, 2), \qquad a \sim N(17, 20^2), \quad w \sim N(0, 10^2) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, StudentT
from ngmp_models.demo import timed
from ngmp_models.references import compare, nuts

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.stackloss.load_pandas().data
y = data["STACKLOSS"].to_numpy(float)
X = data[["AIRFLOW", "WATERTEMP", "ACIDCONC"]].to_numpy(float)
X = (X - X.mean(0)) / X.std(0)


def robust(X, y):
    a = ngmp.sample("a", Normal(17.0, std=20.0))
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=100.0))
    ngmp.sample("y", StudentT(4.0, a + X @ w, scale=2.0), obs=y)


def plain(X, y):
    a = ngmp.sample("a", Normal(17.0, std=20.0))
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=100.0))
    ngmp.sample("y", Normal(a + X @ w, std=3.0), obs=y)


program = ngmp.compile(robust)
program.lower(X=X, y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(X=X, y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary())
print("least squares:", np.asarray(ngmp.compile(plain)(X=X, y=y)["w"].mean).round(2))

# %% [markdown]
# ## Check: long chains of NUTS


# %%
def theirs(X, y):
    a = numpyro.sample("a", dist.Normal(17.0, 20.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 10.0).to_event(1))
    numpyro.sample("y", dist.StudentT(4.0, a + X @ w, 2.0), obs=y)


truth = nuts(theirs, X, y, small=SMALL, names=["a", "w"])
compare(post, truth, "NUTS")

residual = y - np.asarray(post["a"].mean) - X @ np.asarray(post["w"].mean)
loo = program.loo(post, "y", X=X, y=y)
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.bar(np.arange(1, 22), residual, color=np.where(np.abs(residual) > 4, "#D55E00", "#0072B2"))
ax.set(xlabel="day", ylabel="residual")
print("surprising days, by leave-one-out:", (np.argsort(np.asarray(loo.log_density))[:4] + 1).tolist())

# %% [markdown]
# ## What was learned
#
# The outliers are found without being looked for: their residuals are large because they no longer pull the line.
# A message of a t factor need not be log-concave; projected at the marginal it is what the line can see of it,
# and the answer is close to that of NUTS.
