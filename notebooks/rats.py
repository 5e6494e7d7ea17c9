# %% [markdown] field="Hierarchies" picture=2 summary="How fast do thirty rats grow?"
# # Growth curves: rats
#
# Thirty rats were weighed at 8, 15, 22, 29 and 36 days (Gelfand and others, 1990). Each has a line of its own,
# and the lines have a common law; three scales are unknown, of the levels, of the slopes and of the noise:
#
# $$ y_{ij} \sim N(a_i + b_i (t_j - 22), \sigma^2), \quad a_i \sim N(\alpha, \sigma_a^2), \quad b_i \sim N(\beta, \sigma_b^2) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, Normal
from ngmp_models.demo import timed
from ngmp_models.references import compare, nuts

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
days = np.array([8.0, 15.0, 22.0, 29.0, 36.0])
y = np.array(
    """151 199 246 283 320  145 199 249 293 354  147 214 263 312 328  155 200 237 272 297  135 188 230 280 323
    159 210 252 298 331  141 189 231 275 305  159 201 248 297 338  177 236 285 350 376  134 182 220 260 296
    160 208 261 313 352  143 188 220 273 314  154 200 244 289 325  171 221 270 326 358  163 216 242 281 312
    160 207 248 288 324  142 187 234 280 316  156 203 243 283 317  157 212 259 307 336  152 203 246 286 321
    154 205 253 298 334  139 190 225 267 302  146 191 229 272 302  157 211 250 285 323  132 185 237 286 331
    160 207 257 303 345  169 216 261 295 333  157 205 248 289 316  137 180 219 258 291  153 200 244 286 324""".split(),
    float,
).reshape(30, 5)


def growth(y, t):
    levels = ngmp.sample("levels", HalfNormal(std=30.0))
    slopes = ngmp.sample("slopes", HalfNormal(std=2.0))
    noise = ngmp.sample("noise", HalfNormal(std=20.0))
    alpha = ngmp.sample("alpha", Normal(250.0, std=100.0))
    beta = ngmp.sample("beta", Normal(6.0, std=5.0))
    a = ngmp.sample("a", Normal(alpha + np.zeros((30, 1)), std=levels))
    b = ngmp.sample("b", Normal(beta + np.zeros((30, 1)), std=slopes))
    ngmp.sample("y", Normal(a + b * t, std=noise), obs=y)


program = ngmp.compile(growth, integrate=("levels", "slopes", "noise"))
inputs = {"y": y, "t": days - 22.0}
program.lower(**inputs).draw("graph.svg")
post, compiled, warm = timed(lambda: program(**inputs), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")
print(f"converged: {bool(post.converged)}, {post.nodes.weights.size} nodes")
print(post.summary(most=5))

# %% [markdown]
# ## Check: NUTS on the same model, and the figures of the BUGS manual


# %%
def theirs(y, t):
    levels = numpyro.sample("levels", dist.HalfNormal(30.0))
    slopes = numpyro.sample("slopes", dist.HalfNormal(2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(20.0))
    alpha = numpyro.sample("alpha", dist.Normal(250.0, 100.0))
    beta = numpyro.sample("beta", dist.Normal(6.0, 5.0))
    a = numpyro.sample("a", dist.Normal(alpha, levels).expand([30, 1]).to_event(2))
    b = numpyro.sample("b", dist.Normal(beta, slopes).expand([30, 1]).to_event(2))
    numpyro.sample("y", dist.Normal(a + b * jnp.asarray(t), noise), obs=y)


truth = nuts(theirs, y, days - 22.0, small=SMALL, names=["levels", "slopes", "noise", "alpha", "beta", "a", "b"])
compare(post, truth, "NUTS")
birth = post.transform(lambda x: x["alpha"] - 22.0 * x["beta"], jax.random.key(1))
print(f"slope {float(post['beta'].mean):.2f} (BUGS manual: 6.19), noise {float(post['noise'].mean):.2f} (6.09)")
print(f"weight at birth {float(birth.mean):.1f} +- {float(birth.std):.1f} (106.6 +- 3.7)")

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
grid = np.linspace(6.0, 38.0, 50)
a, b = np.asarray(post["a"].mean), np.asarray(post["b"].mean)
ax.plot(grid, (a + b * (grid - 22.0)).T, color="#0072B2", alpha=0.35, lw=1)
ax.plot(days, y.T, ".", color="0.3", ms=3)
ax.plot(grid, float(post["alpha"].mean) + float(post["beta"].mean) * (grid - 22.0), color="#D55E00", lw=2, label="the common line")
ax.set(xlabel="days", ylabel="weight, g")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# Given the three scales everything is one Gaussian, so that the whole posterior is a grid of three numbers around
# one sparse linear system. Rats differ in level and in slope; a rat that was heavy on one day is drawn to its own
# line, and the line to the others.
