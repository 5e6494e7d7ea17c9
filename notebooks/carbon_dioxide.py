# %% [markdown] field="Gaussian processes" picture=2 summary="A trend and seasons, from a kernel"
# # Carbon dioxide at Mauna Loa: a Gaussian process
#
# Monthly concentrations, 1958 to 1975 (from statsmodels; Keeling and others). A Gaussian process with a smooth
# trend and a yearly season, both with given kernels:
#
# $$ f \sim N(0, K), \quad K = 60^2 e^{-r^2 / 2 \cdot 15^2} + 2.5^2 e^{-r^2/2 \cdot 30^2 - 2 \sin^2(\pi r)}, \qquad y \sim N(340 + f, 0.5^2) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
data = sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().iloc[: 60 if SMALL else 204]
t = data.index.year.to_numpy() + (data.index.month.to_numpy() - 1) / 12
level = data.to_numpy()
seen = np.isfinite(level)


def kernel(a, b):
    r = np.abs(a[:, None] - b)
    return 60.0**2 * np.exp(-0.5 * (r / 15) ** 2) + 2.5**2 * np.exp(-0.5 * (r / 30) ** 2 - 2 * np.sin(np.pi * r) ** 2)


def process(K, y, seen):
    f = ngmp.sample("f", MvNormal(np.zeros(len(y)), covariance=K))
    ngmp.sample("y", Normal(340.0 + f, std=0.5), obs=y, mask=seen)


K = kernel(t, t) + 1e-4 * np.eye(len(t))
y = np.where(seen, level, 340.0)
program = ngmp.compile(process)
program.lower(K=K, y=y, seen=seen).draw("graph.svg")
post, compiled, warm = timed(lambda: program(K=K, y=y, seen=seen), 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms; {(~seen).sum()} months are missing")
print(f"converged: {bool(post.converged)}")

# %% [markdown]
# ## Check: two lines of linear algebra

# %%
S = K[np.ix_(seen, seen)] + 0.25 * np.eye(seen.sum())
mean = K[:, seen] @ np.linalg.solve(S, level[seen] - 340.0)
sd = np.sqrt(np.diag(K - K[:, seen] @ np.linalg.solve(S, K[seen])))
residual = level[seen] - 340.0
evidence = -0.5 * (residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1] + seen.sum() * np.log(2 * np.pi))
print(
    f"means off by at most {np.max(np.abs(np.asarray(post['f'].mean) - mean) / sd):.1e} sd, "
    f"deviations by {np.max(np.abs(np.asarray(post['f'].std) / sd - 1)):.1e}"
)
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")

figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.plot(t, level, ".", color="#666666", ms=3)
ax.fill_between(t, 340 + mean - 2 * sd, 340 + mean + 2 * sd, color="#0072B2", alpha=0.25, lw=0)
ax.plot(t, 340 + np.asarray(post["f"].mean), color="#0072B2", lw=1)
_ = ax.set(xlabel="", ylabel="parts per million")

# %% [markdown]
# ## The kernel's numbers are inputs: a gradient says which way they should go

# %%
slope = jax.grad(lambda s: program(K=s * K, y=y, seen=seen).free_energy)(1.0)
print(f"slope of minus the log-evidence in a factor of the kernel: {float(slope):.2f}")

# %% [markdown]
# ## What was learned
#
# A Gaussian process is a vector with a covariance; the likelihood may be any other, and then it is projected.
# Long series are cheaper as chains: a Matern kernel is a state space model, in `notebooks/learning.py`.
