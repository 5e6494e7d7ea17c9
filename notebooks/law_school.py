# %% [markdown] field="Psychometrics" picture=2 summary="How hard are five questions, and how able are a thousand people?"
# # Item responses: five questions of a law school test
#
# A thousand people answered five questions of the Law School Admission Test (Bock and Lieberman, 1970); only the
# counts of the 32 patterns of answers are published, which is all there is to know. The Rasch model:
#
# $$ y_{pj} \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(\sigma\,\theta_p - b_j)), \qquad \theta_p \sim N(0, 1) $$
#
# written with $\sigma\,\theta_p$ as one variable. Its scale is found by the evidence.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize, minimize_scalar

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
counts = np.array(
    """3 6 2 11 1 1 3 4 1 8 0 16 0 3 2 15 10 29 14 81 3 28 15 80 16 56 21 173 11 61 28 298""".split(), int
)
patterns = (np.arange(32)[:, None] >> np.arange(4, -1, -1)) & 1  # 00000 to 11111, the first question first
answers = np.repeat(patterns, counts, axis=0)
print("people:", len(answers), " right answers to each question:", answers.sum(0))


def rasch(y, sd):
    b = ngmp.sample("b", Normal(np.zeros(5), std=3.0))
    theta = ngmp.sample("theta", Normal(np.zeros((len(y), 1)), std=sd))
    ngmp.sample("y", Bernoulli(logits=theta - b), obs=y)


program = ngmp.compile(rasch, method=ngmp.EP())
program.lower(y=answers, sd=0.75).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=answers, sd=0.75), 1 if SMALL else 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.0f} ms")
found = minimize_scalar(lambda s: float(program(y=answers, sd=s).free_energy), bounds=(0.3, 2.0), method="bounded",
                        options={"xatol": 1e-3})  # fmt: skip
post = program(y=answers, sd=found.x)
print(f"scale {found.x:.3f} after {found.nfev} runs; converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary(most=5))

# %% [markdown]
# ## Check: maximum of the marginal likelihood
#
# With a thousand people the prior says little: the posterior means should be near the maximum of the likelihood in
# which each person's ability is summed out, by quadrature. It uses the patterns, not the people.

# %%
nodes, weights = np.polynomial.hermite_e.hermegauss(41)
weights = weights / weights.sum()


def loss(x):
    logits = np.exp(x[5]) * nodes[:, None] - x[:5]
    log_p = patterns @ -np.logaddexp(0, -logits).T + (1 - patterns) @ -np.logaddexp(0, logits).T
    return -counts @ np.log(np.exp(log_p) @ weights)


best = minimize(loss, np.zeros(6), method="BFGS")
deviations = np.sqrt(np.diag(best.hess_inv))
off = np.abs(np.asarray(post["b"].mean) - best.x[:5]) / deviations[:5]
print(f"scale: {found.x:.3f}, by maximum likelihood {np.exp(best.x[5]):.3f}")
print(f"difficulties: {np.asarray(post['b'].mean).round(2)}, by maximum likelihood {best.x[:5].round(2)}")
print(f"at most {off.max():.2f} standard errors away")

right = answers.sum(1)
ability = np.asarray(post["theta"].mean)[:, 0]
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].errorbar(np.asarray(post["b"].mean), np.arange(1, 6), xerr=1.96 * np.asarray(post["b"].std), fmt="o", color="#0072B2")
axes[0].set(xlabel="difficulty", ylabel="question", title="five questions")
for k in range(6):
    one = np.flatnonzero(right == k)[0]
    axes[1].errorbar(k, ability[one], yerr=1.96 * float(post["theta"].std[one, 0]), fmt="o", color="#D55E00")
_ = axes[1].set(xlabel="right answers", ylabel="ability", title="a person")

# %% [markdown]
# ## What was learned
#
# The first question is easy and the third is hard. Five answers say little about one person: the intervals of
# abilities are nearly as wide as their prior. In this model the number of right answers is all that matters, and
# the abilities agree.
