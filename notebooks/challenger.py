# %% [markdown] field="Regression" picture=2 summary="Would the O-rings hold at 31 °F?"
# # The Challenger's O-rings: logistic regression
#
# Before the last flight of the Challenger on 28 January 1986 there were 23 flights whose O-rings were recovered;
# on seven of them at least one showed thermal distress. The temperature at launch, in degrees Fahrenheit, was
# between 53 and 81; that morning it was 31.
#
# $$ y_n \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(a + b\, (x_n - 70) / 10)), \qquad a, b \sim N(0, 5^2) $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
degrees = np.array([66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58])
y = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])
x = (degrees - 70) / 10


def distress(x, y):
    a = ngmp.sample("a", Normal(0.0, std=5.0))
    b = ngmp.sample("b", Normal(0.0, std=5.0))
    ngmp.sample("y", Bernoulli(logits=a + b * x), obs=y)


program = ngmp.compile(distress)
program.lower(x=x, y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(x=x, y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
print(post.summary())

# %% [markdown]
# ## Check: two unknowns are few enough for a grid

# %%
a, b = np.meshgrid(
    np.linspace(-6.0, 4.0, 101 if SMALL else 801), np.linspace(-10.0, 5.0, 101 if SMALL else 801), indexing="ij"
)
f = a[..., None] + b[..., None] * x
log_p = (y * f - np.logaddexp(0.0, f)).sum(-1) - (a**2 + b**2) / 50 - np.log(2 * np.pi * 25)
cell = (a[1, 0] - a[0, 0]) * (b[0, 1] - b[0, 0])
p = np.exp(log_p - log_p.max())
evidence = np.log(p.sum() * cell) + log_p.max()
p /= p.sum()
for name, v in (("a", a), ("b", b)):
    mean = (p * v).sum()
    sd = np.sqrt((p * v**2).sum() - mean**2)
    q = post[name]
    print(f"{name}: {float(q.mean):.3f} +- {float(q.std):.3f}, exact {mean:.3f} +- {sd:.3f}")
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")
print(program.check(post, jax.random.key(0), x=x, y=y).verdict)

# %% [markdown]
# ## What was known that morning

# %%
new = np.arange(30, 86)
draws = post.sample(jax.random.key(1), (2000,))
risk = 1 / (1 + np.exp(-(np.asarray(draws["a"])[:, None] + np.asarray(draws["b"])[:, None] * (new - 70) / 10)))
exact = (p[..., None] / (1 + np.exp(-(a[..., None] + b[..., None] * (np.array([31.0]) - 70) / 10)))).sum((0, 1))
print(
    f"risk at 31 degrees: {float(program.predict(post, 'y', x=(np.array([31.0]) - 70) / 10).mean[0]):.4f}, exact {exact[0]:.4f}"
)

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
low, middle, high = np.quantile(risk, [0.05, 0.5, 0.95], axis=0)
ax.fill_between(new, low, high, color="#0072B2", alpha=0.25, lw=0, label="90 %")
ax.plot(new, middle, color="#0072B2", label="median")
ax.plot(degrees, y, "o", mfc="none", color="#666666", label="flights")
ax.axvline(31, color="#D55E00", ls="--", lw=1)
ax.set(xlabel="temperature at launch, °F", ylabel="probability of distress")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Distress was all but certain at that temperature. The posterior of twenty-three answers is skewed, and one Gaussian of
# both unknowns is somewhat too narrow for it: the deviation of the slope is nine tenths of the exact one. `program.check`
# sees light tails, is unsure of its weights, and looks again with short chains of the model; with two unknowns a grid
# settles the matter.
