# %% [markdown] field="Regression" picture=2 summary="Which rule is how far off, exactly?"
# # The paper's smallest study: a mean and a precision
#
# Readings with unknown mean and precision, the model on which rules differ first. Exact marginals by quadrature,
# so that the error of every rule is a Kullback-Leibler divergence.
#
# $$ x \sim N(0, 25), \quad \tau \sim \mathrm{Gamma}(2, 1), \quad y_n \sim N(x, \tau^{-1}) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"


def readings(y):
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


y = 3.0 + 0.5 * np.random.default_rng(1).standard_normal(16)
program = ngmp.compile(readings)
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms; converged: {bool(post.converged)}")

# %% [markdown]
# ## The exact marginal of $\tau$: the mean integrates out in closed form


# %%
def exact(y, s):
    """Log-density of s = log(tau) on a grid, normalised."""
    tau = np.exp(s)[:, None]
    n, precision = len(y), 1 / 25 + len(y) * np.exp(s)
    log_p = 2 * s - np.exp(s) + 0.5 * n * s - 0.5 * (tau * y**2).sum(1)
    log_p += 0.5 * (np.exp(s) * y.sum()) ** 2 / precision - 0.5 * np.log(precision)
    return log_p - np.log(np.sum(np.exp(log_p - log_p.max())) * (s[1] - s[0])) - log_p.max()


s = np.linspace(-4.0, 5.0, 2001)
rules = {"NGMP": ngmp.NGMP(), "power 1/2": ngmp.NGMP(power={"tau": 0.5}), "EP": ngmp.EP(), "VMP": ngmp.VMP()}
sizes = (4, 16) if SMALL else (4, 8, 16, 32, 64)
found = {name: [] for name in rules}
for name, rule in rules.items():
    program = ngmp.compile(readings, method=rule)
    for n in sizes:
        data = 3.0 + 0.5 * np.random.default_rng(n).standard_normal(n)
        p = exact(data, s)
        q = np.asarray(program(y=data)["tau"].log_density(np.exp(s))) + s
        found[name].append(np.sum(np.exp(p) * (p - q)) * (s[1] - s[0]))
    print(f"{name:10s}", "  ".join(f"{v:.1e}" for v in found[name]))

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (name, values), style in zip(found.items(), ("o-", "s--", "^-.", "v:"), strict=True):
    ax.loglog(sizes, np.maximum(values, 1e-12), style, label=name)
ax.set(xlabel="readings", ylabel="KL[exact || found] of the precision")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Mean field is several times as far off as the exact message. To leave half of the factor in the cavity, toward the
# precision, takes most of the rest away once there are enough readings (with four it makes no difference). One number to
# integrate does better than any rule: `integrate=("tau",)` is exact here up to its nodes. The study in full, on 20
# instances: `python benchmarks/mean_precision.py`.
