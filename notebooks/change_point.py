# %% [markdown] field="Time series" picture=2 summary="In which year did accidents become rarer?"
# # Coal-mining disasters: when did the rate change?
#
# The number of British coal-mining disasters per year, 1851 to 1962. Was there one year in which they became
# rarer, and which?
#
# $$ t \sim \mathrm{Uniform}\{0, \dots, n - 1\}, \qquad \lambda_1, \lambda_2 \sim \mathrm{Gamma}(2, 1), \qquad
# y_k \sim \mathrm{Poisson}(\lambda_1) \text{ before } t, \ \mathrm{Poisson}(\lambda_2) \text{ from } t \text{ on} $$
#
# The year is a hyperparameter with 112 values: `integrate=` sums over all of them, and given the year everything
# is conjugate, so the answer is exact.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import gammaln, logsumexp, softmax

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, Poisson
from ngmp_models import coal_disasters
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
series = coal_disasters()
years, y = series.years, series.counts


def change(y):
    n = len(y)
    t = ngmp.sample("t", Categorical(probs=np.full(n, 1.0 / n)))
    before = ngmp.sample("before", Gamma(2.0, rate=1.0))
    after = ngmp.sample("after", Gamma(2.0, rate=1.0))
    late = jnp.arange(n) >= jnp.asarray(t)
    ngmp.sample("early", Poisson(before), obs=y, mask=~late)
    ngmp.sample("late", Poisson(after), obs=y, mask=late)


program = ngmp.compile(change, integrate=("t",))
program.lower(y=y).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms; converged: {bool(post.converged)}")
print(post.summary("before", "after"))

# %% [markdown]
# ## Check: the exact answer
#
# Given the year, $\lambda$ integrates out in closed form: with $s$ events in $m$ years the evidence of a half is
# $\Gamma(2 + s) / (1 + m)^{2 + s}$, up to what does not depend on the year.

# %%
before_t = np.concatenate([[0], np.cumsum(y)[:-1]])
years_before = np.arange(len(y))
half = lambda s, m: gammaln(2 + s) - (2 + s) * np.log(1 + m)
log_w = half(before_t, years_before) + half(y.sum() - before_t, len(y) - years_before)
exact = softmax(log_w)
found = np.asarray(post["t"].probs)
evidence = logsumexp(log_w) - np.log(len(y)) - gammaln(y + 1).sum()
print(f"probabilities off by at most {np.abs(found - exact).max():.1e}")
print(f"log-evidence {-float(post.free_energy):.6f}, exact {evidence:.6f}")

figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
top.bar(years, y, color="#c9ced6", width=0.9)
rate = exact.cumsum() * float(post["after"].mean) + (1 - exact.cumsum()) * float(post["before"].mean)
top.plot(years, rate, color="#D55E00", lw=2, label="posterior rate, about")
top.set_ylabel("disasters in the year")
top.legend(frameon=False)
low.bar(years, found, color="#0072B2", width=0.9)
low.set(ylabel="probability of the year", xlim=(1850, 1963))

# %% [markdown]
# ## What was learned
#
# The change came between 1886 and 1896, most probably in 1890 or 1891; the rate fell from about three disasters a
# year to about one. A discrete hyperparameter is summed exactly, in one compiled call, and its evidence compares
# this model with others: the [tour](tour.md) smooths the same counts by a random walk.
