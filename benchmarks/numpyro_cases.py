"""Thirty kinds of models in NumPyro, written from their mathematics, with simulated data; see `numpyro_models.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions import transforms

RNG = np.random.default_rng(1)
CASES = {}


def case(names, options=None, nuts=True, **inputs):
    """Register a model with its inputs, the sites that are compared, and what NUTS runs on: the model itself (True), or
    another one that is the same with its classes summed over, as NUTS needs."""

    def add(f):
        CASES[f.__name__] = (f, inputs, names.split(), {"integrate": "auto"} if options is None else options, nuts)
        return f

    return add


X = RNG.normal(size=(80, 3))
W = np.array([0.6, -0.9, 0.3])
F = X @ W
GROUP = RNG.integers(0, 8, 80)
U = 0.7 * RNG.normal(size=8)
T = 60
WALK = np.cumsum(0.3 * RNG.normal(size=T))


@case("a w s", X=X, y=F + 0.5 * RNG.normal(size=80))
def linear(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    s = numpyro.sample("s", dist.Exponential(1.0))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(a + X @ w, s), obs=y)


@case("w s", X=X, y=F + 0.4 * RNG.standard_t(4, 80))
def robust(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.StudentT(4.0, X @ w, s), obs=y)


@case("a w", X=X, y=RNG.binomial(1, 1 / (1 + np.exp(-F))))
def logistic(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=a + jnp.dot(X, w)), obs=y)


@case("w", X=X, y=RNG.binomial(1, 1 / (1 + np.exp(-F))))
def probit(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    numpyro.sample("y", dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(X @ w)), obs=y)


@case("a w", X=X, y=RNG.poisson(np.exp(0.5 + 0.5 * F)))
def poisson(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(a + X @ w)), obs=y)


@case("w k", X=X, y=RNG.poisson(np.exp(1 + 0.5 * F) * RNG.gamma(2.0, 0.5, 80)))
def negative_binomial(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    k = numpyro.sample("k", dist.Exponential(0.5))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(a + X @ w), k), obs=y)


@case("mu sd a b s", county=GROUP, floor=X[:, 0], y=U[GROUP] + 0.5 * X[:, 0] + 0.5 * RNG.normal(size=80))
def radon(county, floor, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sd = numpyro.sample("sd", dist.HalfCauchy(1.0))
    with numpyro.plate("counties", 8):
        a = numpyro.sample("a", dist.Normal(mu, sd))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("obs", len(floor)):
        numpyro.sample("y", dist.Normal(a[county] + b * floor, s), obs=y)


@case("m sd a b s", g=GROUP, x=X[:, 0], y=U[GROUP] * (1 + X[:, 0]) + 0.5 * RNG.normal(size=80))
def slopes(g, x, y=None):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0).expand([2]))
    sd = numpyro.sample("sd", dist.HalfNormal(1.0).expand([2]))
    with numpyro.plate("groups", 8):
        a = numpyro.sample("a", dist.Normal(m[0], sd[0]))
        b = numpyro.sample("b", dist.Normal(m[1], sd[1]))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(a[g] + b[g] * x, s), obs=y)


SCHOOLS = {"sigma": np.array([15, 10, 16, 11, 9, 11, 10, 18.0]), "y": np.array([28, 8, -3, 7, -1, 1, 18, 12.0])}


@case("mu tau theta", **SCHOOLS)
def schools_centred(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("J", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


@case("mu tau theta", **SCHOOLS)
def schools_noncentred(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("J", 8):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


AT = np.full(12, 45)
HITS = RNG.binomial(45, RNG.beta(20, 55, 12))


@case("mu sd", at=AT, hits=HITS)
def baseball_logit(at, hits=None):
    mu = numpyro.sample("mu", dist.Normal(-1.0, 1.0))
    sd = numpyro.sample("sd", dist.HalfCauchy(1.0))
    with numpyro.plate("players", 12):
        alpha = numpyro.sample("alpha", dist.Normal(mu, sd))
        numpyro.sample("hits", dist.Binomial(at, logits=alpha), obs=hits)


@case("m p", at=AT, hits=HITS)
def baseball_beta(at, hits=None):
    m = numpyro.sample("m", dist.Uniform(0.0, 1.0))
    k = numpyro.sample("k", dist.Gamma(4.0, 0.1))
    with numpyro.plate("players", 12):
        p = numpyro.sample("p", dist.Beta(m * k, (1.0 - m) * k))
        numpyro.sample("hits", dist.Binomial(at, p), obs=hits)


@case("b a sd", dept=np.repeat(np.arange(6), 2), male=np.tile([1, 0], 6), n=np.full(12, 120),
      y=RNG.binomial(120, 0.4, 12))  # fmt: skip
def admissions(dept, male, n, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("departments", 6):
        a = numpyro.sample("a", dist.Normal(mu, sd))
    numpyro.sample("y", dist.Binomial(n, logits=a[dept] + b * male), obs=y)


@case("h s", y=np.exp(0.5 * WALK - 1) * RNG.normal(size=T))
def volatility(y=None):
    s = numpyro.sample("s", dist.Exponential(5.0))
    h = numpyro.sample("h", dist.GaussianRandomWalk(s, y.shape[0]))
    numpyro.sample("y", dist.Normal(0.0, jnp.exp(0.5 * h)), obs=y)


@case("x s r", y=WALK + 0.5 * RNG.normal(size=T))
def local_level(y=None):
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    r = numpyro.sample("r", dist.HalfNormal(1.0))
    x0 = numpyro.sample("x0", dist.Normal(0.0, 3.0))

    def step(x, y_k):
        x = numpyro.sample("x", dist.Normal(x, s))
        numpyro.sample("y", dist.Normal(x, r), obs=y_k)
        return x, x

    scan(step, x0, y)


@case("phi s", y=WALK * 0.3 + 0.3 * RNG.normal(size=T))
def autoregression(y=None):
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))

    def step(carry, y_k):
        x, t = carry
        x = numpyro.sample("x", dist.Normal(phi * x, s))
        numpyro.sample("y", dist.Normal(x, 0.3), obs=y_k)
        return (x, t + 1), None

    scan(step, (0.0, 0), y)


def hidden_markov_summed(y=None):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([[8.0, 2.0], [2.0, 8.0]])).to_event(1))
    m = numpyro.sample("m", dist.Normal(jnp.array([0.0, 2.0]), 1.0).to_event(1))

    def forward(log, y_k):
        ahead = jax.nn.logsumexp(log[:, None] + jnp.log(rows), axis=0)
        return ahead + dist.Normal(m, 0.7).log_prob(y_k), None

    log, _ = jax.lax.scan(forward, jnp.array([0.0, -1e10]), y)
    numpyro.factor("y", jax.nn.logsumexp(log))


@case("m", nuts=hidden_markov_summed, y=np.repeat([0.0, 2.5], T // 2) + 0.7 * RNG.normal(size=T))
def hidden_markov(y=None):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([[8.0, 2.0], [2.0, 8.0]])).to_event(1))
    m = numpyro.sample("m", dist.Normal(jnp.array([0.0, 2.0]), 1.0).to_event(1))

    def step(z, y_k):
        z = numpyro.sample("z", dist.Categorical(rows[z]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(m[z], 0.7), obs=y_k)
        return z, None

    scan(step, 0, y)


TIMES = np.linspace(0.0, 1.0, 25)


@case("f s", t=TIMES, y=np.sin(6 * TIMES) + 0.2 * RNG.normal(size=25))
def gaussian_process(t, y=None):
    a = numpyro.sample("a", dist.LogNormal(0.0, 0.5))
    length = numpyro.sample("length", dist.LogNormal(-1.0, 0.5))
    s = numpyro.sample("s", dist.HalfNormal(0.5))
    kernel = a * jnp.exp(-0.5 * ((t[:, None] - t) / length) ** 2) + 1e-5 * jnp.eye(t.shape[0])
    f = numpyro.sample("f", dist.MultivariateNormal(0.0, kernel))
    numpyro.sample("y", dist.Normal(f, s), obs=y)


@case("skill", i=RNG.integers(0, 6, 60), j=RNG.integers(0, 6, 60), y=RNG.integers(0, 2, 60))
def bradley_terry(i, j, y=None):
    skill = numpyro.sample("skill", dist.Normal(0.0, 1.0).expand([6]))
    numpyro.sample("y", dist.Bernoulli(logits=skill[i] - skill[j]), obs=y)


@case("w", X=X, y=np.digitize(F + RNG.logistic(size=80), [-1.0, 0.2, 1.0]))
def ordinal(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    rising = dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]), transforms.OrderedTransform())
    c = numpyro.sample("c", rising)
    numpyro.sample("y", dist.OrderedLogistic(X @ w, c), obs=y)


@case("w gate", X=X, y=RNG.poisson(np.exp(1 + 0.4 * F)) * (RNG.random(80) < 0.7))
def zero_inflated(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(a + X @ w)), obs=y)
