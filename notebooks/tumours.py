# %% [markdown] field="Regression" picture=2 summary="Is a tumour benign, and can the probabilities be believed?"
# # Logistic regression and its calibration: tumours
#
# Thirty measurements of cell nuclei in 569 biopsies of the breast (Wolberg, Street and Mangasarian, 1995). A
# logistic regression with a prior whose scale is chosen by the evidence, not by cross-validation:
#
# $$ y_n \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(x_n^\top w)), \qquad w \sim N(0, s^2 I) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegressionCV

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
X, y = load_breast_cancer(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
train, test = order[:380], order[380:]
X = (X - X[train].mean(0)) / X[train].std(0)
X = np.column_stack([np.ones(len(y)), X])


def benign(X, s, y=None):
    w = ngmp.sample("w", MvNormal(np.zeros(31), covariance=s**2))
    ngmp.sample("y", Bernoulli(logits=X @ w), obs=y)


program = ngmp.compile(benign)
inputs = {"X": X[train], "y": y[train]}
program.lower(s=1.0, **inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(s=1.0, **inputs), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")

# Twelve scales at once, in one vmap: the evidence of each.
scales = jnp.geomspace(0.1, 10.0, 5 if SMALL else 12)
evidence = -jax.vmap(lambda s: program(s=s, **inputs).free_energy)(scales)
best = float(scales[jnp.argmax(evidence)])
print(f"the best scale is {best:.2f}; log-evidence {float(evidence.max()):.2f}, at the ends {np.asarray(evidence)[[0, -1]].round(1)}")
post = program(s=best, **inputs)
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: held-out predictions, against cross-validated logistic regression

# %%
probability = np.asarray(program.predict(post, "y", s=best, X=X[test]).mean)
other = LogisticRegressionCV(Cs=4 if SMALL else 10, cv=5, scoring="neg_log_loss", max_iter=2000, l1_ratios=(0.0,), use_legacy_attributes=False)
theirs = other.fit(X[train][:, 1:], y[train]).predict_proba(X[test][:, 1:])[:, 1]
for name, p in (("here", probability), ("scikit-learn", theirs)):
    loss = -np.mean(y[test] * np.log(p) + (1 - y[test]) * np.log1p(-p))
    print(f"{name}: {np.mean((p > 0.5) == y[test]):.3f} right, {loss:.4f} nats a biopsy")

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].semilogx(scales, evidence, "o-", color="#0072B2")
axes[0].set(xlabel="scale of the prior", ylabel="log-evidence")
axes[1].hist([probability[y[test] == 1], probability[y[test] == 0]], bins=10, range=(0, 1), stacked=True,
             color=["#0072B2", "#D55E00"], label=["benign", "malignant"])  # fmt: skip
axes[1].set(xlabel="predicted probability of benign", ylabel="held-out biopsies", yscale="log")
_ = axes[1].legend(frameon=False, fontsize=8)

# %% [markdown]
# ## What was learned
#
# The evidence has one clear maximum, found by twelve fits in one call; no fold was set aside for it. Predictions
# average over the posterior, so that biopsies unlike those seen are given less certain probabilities.
