# %% [markdown] field="Space" picture=2 summary="A map from a few noisy looks"
# # A map on a lattice
#
# A field of 20 x 20 cells, smooth but for noise, of which a third was looked at (drawn here). Neighbours are
# alike: an intrinsic autoregression, solved along a band.
#
# $$ u \sim N(0, (\tau (D - W))^{-1}), \quad \textstyle\sum u = 0, \qquad y_n \sim N(a + u_n, 0.5^2) \text{ where looked at} $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
side = 8 if SMALL else 20
n = side * side
rows, columns = np.divmod(np.arange(n), side)
W = (np.abs(rows[:, None] - rows) + np.abs(columns[:, None] - columns) == 1).astype(float)
truth = 2 * np.sin(rows / 4) * np.cos(columns / 5)
rng = np.random.default_rng(0)
seen = rng.random(n) < 1 / 3
y = 3.0 + truth + 0.5 * rng.standard_normal(n)


def field(y, seen, tau):
    a = ngmp.sample("a", Normal(0.0, std=10.0))
    u = ngmp.sample("u", MvNormal(np.zeros(n), precision=tau * ngmp.icar(W), constraint="sum"))
    ngmp.sample("y", Normal(a + u, std=0.5), obs=y, mask=seen)


program = ngmp.compile(field)
inputs = dict(y=y, seen=seen, tau=4.0)
program.lower(**inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(**inputs), 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms; converged: {bool(post.converged)}")

# %% [markdown]
# ## Check: the constrained Gaussian by dense algebra

# %%
basis = np.linalg.svd(np.ones((1, n)))[2][1:].T  # of the fields that sum to zero
precision = 4.0 * (np.diag(W.sum(0)) - W)
design = np.concatenate([np.ones((n, 1)), basis], 1)[seen]
prior = np.zeros((n, n))
prior[0, 0] = 1 / 100
prior[1:, 1:] = basis.T @ precision @ basis
covariance = np.linalg.inv(prior + design.T @ design / 0.25)
mean = covariance @ design.T @ y[seen] / 0.25
field_mean = basis @ mean[1:]
field_sd = np.sqrt(np.einsum("ni,ij,nj->n", basis, covariance[1:, 1:], basis))
u = post["u"]
print(
    f"means off by at most {np.max(np.abs(np.asarray(u.mean) - field_mean) / field_sd):.1e} sd, "
    f"deviations by {np.max(np.abs(np.asarray(u.std).reshape(-1) / field_sd - 1)):.1e}"
)
print(f"the sum of the field: {float(np.asarray(u.mean).sum()):.1e}")

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
shown = np.where(seen, y - 3, np.nan)
for ax, values, title in zip(
    axes, (shown, np.asarray(u.mean), truth - truth.mean()), ("seen", "posterior mean", "truth"), strict=True
):
    ax.imshow(np.reshape(values, (side, side)), vmin=-2.5, vmax=2.5, cmap="cividis")
    ax.set(title=title, xticks=[], yticks=[])

# %% [markdown]
# ## What was learned
#
# An improper prior with an exact constraint is one line, and the answer is that of dense algebra. Counts in place
# of measurements are `Poisson(expected * exp(a + u))`: `ngmp_models.disease_map`.
