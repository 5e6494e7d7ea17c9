"""More of the models of `numpyro_cases.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro_cases import GROUP, RNG, WALK, F, T, X, case

TWO = np.where(RNG.random(80) < 0.4, 3.0, 0.0) + 0.8 * RNG.normal(size=80)


@case("m p", y=TWO)
def mixture(y=None):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    m = numpyro.sample("m", dist.Normal(jnp.array([0.0, 3.0]), 1.0))
    weights = jnp.stack([1.0 - p, p])
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(m, 0.8)), obs=y)


def mixture_summed(y=None):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 2.0])))
    m = numpyro.sample("m", dist.Normal(jnp.array([0.0, 3.0]), 1.0).to_event(1))
    each = jnp.log(p) + dist.Normal(m, 0.8).log_prob(y[:, None])
    numpyro.factor("y", jax.nn.logsumexp(each, axis=1).sum())


@case("m p", nuts=mixture_summed, y=TWO)
def mixture_enumerated(y=None):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 2.0])))
    m = numpyro.sample("m", dist.Normal(jnp.array([0.0, 3.0]), 1.0).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        z = numpyro.sample("z", dist.Categorical(p), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(m[z], 0.8), obs=y)


CAUGHT = (RNG.random((10, 40)) < 0.6).astype(float) * np.cumprod(RNG.random((10, 40)) < 0.85, 0)


def capture_recapture_summed(y=None):
    phi = numpyro.sample("phi", dist.Beta(4.0, 2.0))
    rho = numpyro.sample("rho", dist.Beta(3.0, 3.0))

    def forward(p, y_k):
        """Of an animal: it is alive, or dead, and was seen as it was so far."""
        alive, dead = p
        seen = jnp.where(y_k > 0, rho, 1.0 - rho)
        return (phi * alive * seen, (dead + (1.0 - phi) * alive) * (y_k == 0)), None

    start = jnp.ones(y.shape[1]), jnp.zeros(y.shape[1])
    (alive, dead), _ = jax.lax.scan(forward, start, y)
    numpyro.factor("y", jnp.log(alive + dead).sum())


@case("phi rho", nuts=capture_recapture_summed, y=CAUGHT)
def capture_recapture(y=None):
    phi = numpyro.sample("phi", dist.Beta(4.0, 2.0))
    rho = numpyro.sample("rho", dist.Beta(3.0, 3.0))

    def step(alive, y_k):
        with numpyro.plate("animals", y.shape[1]):
            alive = numpyro.sample("alive", dist.Bernoulli(phi * alive), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Bernoulli(rho * alive), obs=y_k)
        return alive, None

    scan(step, jnp.ones(y.shape[1], dtype=int), y)


@case("w tau", X=X, y=F * (np.arange(80) >= 0) + 0.5 * RNG.normal(size=80))
def horseshoe(X, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(jnp.ones(X.shape[1])))
    w = numpyro.sample("w", dist.Normal(0.0, tau * local))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(X @ w, s), obs=y)


@case("alpha s", y=WALK + 0.4 * RNG.normal(size=T))
def exponential_smoothing(y=None):
    alpha = numpyro.sample("alpha", dist.Beta(2.0, 2.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))

    def step(level, y_k):
        return alpha * y_k + (1.0 - alpha) * level, level

    _, levels = jax.lax.scan(step, y[0], y[1:])
    numpyro.sample("y", dist.Normal(levels, s), obs=y[1:])


@case("b s", x=X[:T, 0], y=WALK * X[:T, 0] + 0.3 * RNG.normal(size=T))
def time_varying(x, y=None):
    s = numpyro.sample("s", dist.HalfNormal(0.5))
    b = numpyro.sample("b", dist.GaussianRandomWalk(s, x.shape[0]))
    numpyro.sample("y", dist.Normal(b * x, 0.3), obs=y)


@case("w k", X=X, y=RNG.gamma(3.0, np.exp(0.3 * F) / 3.0))
def gamma_regression(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    k = numpyro.sample("k", dist.HalfNormal(5.0))
    numpyro.sample("y", dist.Gamma(k, k / jnp.exp(a + X @ w)), obs=y)


SPAN = RNG.weibull(1.5, 80) * np.exp(0.3 * F)


@case("w k", X=X, y=np.minimum(SPAN, 1.5), seen=SPAN < 1.5)
def censored_survival(X, y, seen):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    k = numpyro.sample("k", dist.LogNormal(0.0, 0.5))
    u = k * (jnp.log(y) - a - X @ w)
    numpyro.factor("y", jnp.where(seen, jnp.log(k) + u - jnp.log(y), 0.0) - jnp.exp(u))


@case("w k", X=X, y=np.clip(RNG.beta(5 / (1 + np.exp(-F)), 5 / (1 + np.exp(F))), 0.01, 0.99))
def beta_regression(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    k = numpyro.sample("k", dist.Gamma(2.0, 0.2))
    m = jax.nn.sigmoid(X @ w)
    numpyro.sample("y", dist.Beta(m * k, (1.0 - m) * k), obs=y)


@case("ability difficulty", student=RNG.integers(0, 15, 120), item=RNG.integers(0, 6, 120), y=RNG.integers(0, 2, 120))
def rasch(student, item, y=None):
    with numpyro.plate("students", 15):
        ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
    with numpyro.plate("items", 6):
        difficulty = numpyro.sample("difficulty", dist.Normal(0.0, 1.5))
    numpyro.sample("y", dist.Bernoulli(logits=ability[student] - difficulty[item]), obs=y)


@case("W", X=X[:, :2], y=RNG.integers(0, 3, 80))
def softmax(X, y=None):
    W = numpyro.sample("W", dist.Normal(0.0, 1.0).expand([2, 2]))
    logits = jnp.concatenate([jnp.zeros((X.shape[0], 1)), X @ W], axis=1)
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


@case("m tau", y=1.0 + 0.5 * RNG.normal(size=30))
def mean_precision(y=None):
    m = numpyro.sample("m", dist.Normal(0.0, 3.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(m, 1.0 / jnp.sqrt(tau)), obs=y)


@case("p", y=RNG.integers(0, 2, 20))
def coin(y=None):
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("tosses", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


@case("a b", y=F, x=X[:, 0], seen=RNG.random(80) < 0.7)
def missing(x, y, seen):
    a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(a + b * x, 0.8), obs=y)


@case("g c sd", i=GROUP, j=RNG.integers(0, 5, 80), y=RNG.poisson(2.0, 80))
def crossed(i, j, y=None):
    sd = numpyro.sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    g = numpyro.sample("g", dist.Normal(0.0, sd[0]).expand([8]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0.0, sd[1]).expand([5]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(a + g[i] + c[j])), obs=y)
