# %% [markdown] field="Mixtures" picture=2 summary="Are there superclusters of galaxies?"
# # Galaxies: how many clusters?
#
# Velocities of 82 galaxies of the Corona Borealis region, in 1000 km/s (Roeder, 1990; Postman and others, 1986).
# Gaps in them are voids between superclusters. A mixture with unknown means, shared width and unknown weights:
#
# $$ \pi \sim \mathrm{Dirichlet}(1), \quad m_k \sim N(20, 10^2), \quad z_n \sim \pi, \quad y_n \sim N(m_{z_n}, 1.2^2) $$

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, init_to_value

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Normal, broadcast_to, take
from ngmp_models.demo import timed
from ngmp_models.references import compare

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
y = np.array([
    9172, 9350, 9483, 9558, 9775, 10227, 10406, 16084, 16170, 18419, 18552, 18600, 18927, 19052, 19070, 19330, 19343, 19349,
    19440, 19473, 19529, 19541, 19547, 19663, 19846, 19856, 19863, 19914, 19918, 19973, 19989, 20166, 20175, 20179, 20196,
    20215, 20221, 20415, 20629, 20795, 20821, 20846, 20875, 20986, 21137, 21492, 21701, 21814, 21921, 21960, 22185, 22209,
    22242, 22249, 22314, 22374, 22495, 22746, 22747, 22888, 22914, 23206, 23241, 23263, 23484, 23538, 23542, 23666, 23706,
    23711, 24129, 24285, 24289, 24366, 24717, 24990, 25633, 26960, 26995, 32065, 32789, 34279,
]) / 1000  # fmt: skip


def mixture(y, classes):
    weights = ngmp.sample("weights", Dirichlet(np.ones(classes)))
    m = ngmp.sample("m", Normal(20.0 * np.ones(classes), std=10.0))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(weights, (len(y),))))
    ngmp.sample("y", Normal(take(m, z), std=1.2), obs=y)


program = ngmp.compile(mixture, method=ngmp.VMP())
program.lower(y=y, classes=4).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y, classes=4), 3)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.1f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")
order = np.argsort(np.asarray(post["m"].mean))
print("means", np.asarray(post["m"].mean)[order].round(2), "+-", np.asarray(post["m"].std)[order].round(2))

# %% [markdown]
# ## Check: NUTS with the classes summed out, sorted


# %%
def theirs(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)))
    m = numpyro.sample("m", dist.Normal(20.0, 10.0).expand([4]).to_event(1))
    parts = jnp.log(weights) + dist.Normal(m, 1.2).log_prob(y[:, None])
    numpyro.factor("y", jax.scipy.special.logsumexp(parts, -1).sum())


start = {name: jnp.asarray(post[name].mean) for name in ("weights", "m")}  # in the mode with these labels
mcmc = MCMC(NUTS(theirs, init_strategy=init_to_value(values=start)), num_warmup=200 if SMALL else 800,
            num_samples=200 if SMALL else 4000, progress_bar=False)  # fmt: skip
mcmc.run(jax.random.key(0), y)
draws = {name: np.asarray(v) for name, v in mcmc.get_samples().items()}
truth = {name: (v.mean(0), v.std(0)) for name, v in draws.items()}
compare(post, truth, "NUTS")

grid = np.linspace(7, 37, 400)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.hist(y, bins=np.arange(8, 36), color="#c9ced6")
for k in order:
    bump = np.exp(-0.5 * ((grid - float(post["m"].mean[k])) / 1.2) ** 2) / (1.2 * np.sqrt(2 * np.pi))
    ax.plot(grid, 82 * float(post["weights"].mean[k]) * bump, lw=2)
_ = ax.set(xlabel="velocity, 1000 km/s", ylabel="galaxies")

# %% [markdown]
# ## How many? The free energy says

# %%
for classes in (3, 5):
    print(f"{classes} clusters: free energy {float(program(y=y, classes=classes).free_energy):.2f}")
print(f"4 clusters: free energy {float(post.free_energy):.2f} (least is best)")

# %% [markdown]
# ## What was learned
#
# There are clusters with voids between them. Classes are summed out; under VMP means and classes are independent
# in the posterior, which makes widths a little small. The posterior has as many equal modes as there are
# labellings: a run describes one, and the free energy is short of the evidence by about the logarithm of their
# number.
