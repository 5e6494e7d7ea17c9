# %% [markdown] field="Regression" picture=2 summary="Do the rich spend more on food, or less surely?"
# # Engel's food expenditure: noise that has a regression of its own
#
# Income and food expenditure of 235 Belgian working-class households in 1857 (Engel; from statsmodels). The
# spread grows with income, so mean and log-precision each have a line:
#
# $$ y_n \sim N(a + b x_n,\ e^{-(c + d x_n)}), \qquad a, b, c, d \text{ Gaussian} $$
#
# in hundreds of francs, with $x$ the standardised logarithm of the income.

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
from ngmp_compiler import Normal, exp
from ngmp_models.demo import timed
from ngmp_models.references import compare, nuts

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.engel.load_pandas().data
x = np.log(data["income"].to_numpy())
x, y = (x - x.mean()) / x.std(), data["foodexp"].to_numpy() / 100


def spending(x, y):
    a = ngmp.sample("a", Normal(5.0, std=5.0))
    b = ngmp.sample("b", Normal(0.0, std=5.0))
    c = ngmp.sample("c", Normal(0.0, std=2.0))
    d = ngmp.sample("d", Normal(0.0, std=2.0))
    ngmp.sample("y", Normal(a + b * x, precision=exp(c + d * x)), obs=y)


program = ngmp.compile(spending)
program.lower(x=x, y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(x=x, y=y), 2)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary())

# %% [markdown]
# ## Check: long chains of NUTS


# %%
def theirs(x, y):
    a, b = (numpyro.sample(n, dist.Normal(m, 5.0)) for n, m in (("a", 5.0), ("b", 0.0)))
    c, d = (numpyro.sample(n, dist.Normal(0.0, 2.0)) for n in ("c", "d"))
    numpyro.sample("y", dist.Normal(a + b * x, jnp.exp(-0.5 * (c + d * x))), obs=y)


truth = nuts(theirs, x, y, small=SMALL, names=["a", "b", "c", "d"])
compare(post, truth, "NUTS")

new = np.linspace(x.min(), x.max(), 60)
p = program.predict(post, "y", x=new)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(x, y, "o", ms=3, mfc="none", color="#666666")
ax.fill_between(
    new,
    np.asarray(p.quantile(0.05)),
    np.asarray(p.quantile(0.95)),
    color="#0072B2",
    alpha=0.2,
    lw=0,
    label="90 % of households",
)
ax.plot(new, np.asarray(p.mean), color="#0072B2", label="mean")
ax.set(xlabel="logarithm of the income, standardised", ylabel="food, hundreds of francs")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Both lines matter: richer households spend more on food and differ more in how much. Mean and log-precision meet in
# every factor, and are projected jointly or apart as `describe` says; means come out within about a fifth of a standard
# deviation of those of NUTS, and widths within a tenth.
