# %% [markdown] field="Epidemics" picture=2 summary="How fast did an outbreak spread, day by day?"
# # The reproduction number from daily cases
#
# Boys confined to bed in an English boarding school, January 1978 (influenza; British Medical Journal, 4 March
# 1978). New cases come from earlier ones: with $w$ the distribution of the serial interval, of mean about three
# days,
#
# $$ \Lambda_k = \sum_s w_s\, y_{k - s}, \qquad \log R_k \sim N(\log R_{k-1}, 0.3^2), \qquad y_k \sim \mathrm{Poisson}(R_k \Lambda_k). $$
#
# The counts are of boys in bed, so that what is called a case here is a day in bed; for the method this does not
# matter.

# %%
import os

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp
from ngmp_models.demo import timed
from ngmp_models.references import compare, on_a_grid

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
cases = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
w = np.array([0.25, 0.3, 0.2, 0.15, 0.1])
pressure = np.array([sum(w[s] * cases[k - 1 - s] for s in range(min(k, 5))) for k in range(1, len(cases))])
y = cases[1:]


def outbreak(y, pressure):
    def step(r, x):
        y_k, pressure_k = x
        r = ngmp.sample("r", Normal(r, std=0.3))
        ngmp.sample("y", Poisson(exp(r + jnp.log(pressure_k))), obs=y_k)
        return r, None

    ngmp.scan(step, ngmp.sample("r0", Normal(0.5, std=1.0)), (y, pressure))


program = ngmp.compile(outbreak)
program.lower(y=y, pressure=pressure).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y, pressure=pressure), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms")
print(f"converged: {bool(post.converged)}, {int(post.sweeps)} sweeps")

# %% [markdown]
# ## Check: forward-backward on a grid, exact up to its spacing

# %%
z = np.linspace(-4.0, 4.0, 201 if SMALL else 2001)
log_density = y[:, None] * (z + np.log(pressure)[:, None]) - pressure[:, None] * np.exp(z) - gammaln(y + 1)[:, None]
mean, sd, evidence = on_a_grid(log_density, z, 0.5, 1.0, 0.3)
compare(post, {"r": (mean, sd)})
print(f"log-evidence {-float(post.free_energy):.4f}, exact {evidence:.4f}")
print(program.check(post, jax.random.key(0), y=y, pressure=pressure).verdict)

ax = ngmp.plot.trajectory(post, "r", transform=np.exp, x=np.arange(2, 15))
ax.plot(np.arange(2, 15), np.exp(mean), ".", color="black", label="exact")
ax.axhline(1.0, color="#666666", lw=0.8, ls=":")
ax.set(xlabel="day", ylabel="reproduction number")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# The number fell from about eight in the first days to below one after the first week: the outbreak ran out of boys. The
# same eight lines take masks for days without a report, a negative binomial for overdispersed counts, and `integrate=`
# for the step size. NGMP is all but exact here, since every day has many cases but the last.
