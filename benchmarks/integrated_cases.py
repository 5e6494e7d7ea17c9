"""Models with integrated hyperparameters, and their exact log-joint of the hyperparameters on a grid.

Every reference is written from the mathematics, in float64, with nothing of the library: Kalman filters, dense Gaussian
algebra, Gauss-Hermite quadrature over random effects, enumeration.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import nbinom, norm
from jax.scipy.stats import t as student

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Binomial,
    Categorical,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LogNormal,
    MvNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    Uniform,
    exp,
)

NILE = np.array([
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
    1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969, 831,
    726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845,
    944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050, 918,
    986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740], float)  # fmt: skip
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


class Case(NamedTuple):
    """A model, its inputs, and for every hyperparameter a grid of values; `log_joint(values) = log p(y, values)`."""

    name: str
    model: Callable
    inputs: dict[str, Any]
    grid: dict[str, np.ndarray]
    log_joint: Callable[..., Any] | None  # None: the reference is NUTS on `everything`, a NumPyro model of the inputs
    latent: tuple[str, ...] = ()  # axes of the grid that are variables of the graph, not integrated
    everything: Callable[..., Any] | None = None


def half_cauchy(x: Any, s: float) -> Any:
    return jnp.log(2 / jnp.pi / s) - jnp.log1p((x / s) ** 2)


def half_normal(x: Any, s: float) -> Any:
    return 0.5 * jnp.log(2 / jnp.pi) - jnp.log(s) - 0.5 * (x / s) ** 2


def kalman(y: Any, phi: Any, q: Any, r: Any, mean: float, variance: float) -> Any:
    """Log-evidence of a scalar chain `x_k = phi x_{k-1} + N(0, q)`, `y_k = x_k + N(0, r)`."""

    def step(carry: Any, y_k: Any) -> Any:
        m, v, total = carry
        m, v = phi * m, phi**2 * v + q
        s = v + r
        total += norm.logpdf(y_k, m, jnp.sqrt(s))
        return (m + v / s * (y_k - m), v * r / s, total), None

    return jax.lax.scan(step, (mean, variance, 0.0), jnp.asarray(y))[0][2]


def gaussian(y: Any, covariance: Any) -> Any:
    root = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(root, y, lower=True)
    return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(root))) - 0.5 * len(y) * jnp.log(2 * jnp.pi)


def nile() -> Case:
    def model(y):
        sd, r = ngmp.sample("sd", HalfCauchy(scale=50.0)), ngmp.sample("r", HalfCauchy(scale=100.0))

        def step(x, y_k):
            x = ngmp.sample("x", Normal(x, std=sd))
            ngmp.sample("y", Normal(x, std=r), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(1000.0, std=500.0)), y)

    def log_joint(sd, r):
        return kalman(NILE, 1.0, sd**2, r**2, 1000.0, 500.0**2) + half_cauchy(sd, 50.0) + half_cauchy(r, 100.0)

    grid = {"sd": np.exp(np.linspace(-4, 7, 300)), "r": np.exp(np.linspace(3.5, 6.2, 200))}
    return Case("Nile, two variances", model, {"y": NILE}, grid, log_joint)


def schools(name: str, prior: Any, log_prior: Callable, grid: np.ndarray) -> Case:
    y, s = SCHOOLS

    def model(y, s):
        tau, mu = ngmp.sample("tau", prior), ngmp.sample("mu", Normal(0.0, std=5.0))
        theta = ngmp.sample("theta", Normal(ngmp.broadcast_to(mu, (8,)), std=tau))
        ngmp.sample("y", Normal(theta, std=s), obs=y)

    def log_joint(tau):
        return gaussian(jnp.asarray(y), jnp.diag(s**2 + tau**2) + 25.0) + log_prior(tau)

    return Case(f"eight schools, {name}", model, {"y": y, "s": s}, {"tau": grid}, log_joint)


def autoregression() -> Case:
    rng = np.random.default_rng(1)
    x = np.zeros(100)
    for t in range(1, 100):
        x[t] = 0.8 * x[t - 1] + 0.5 * rng.normal()
    y = x + 0.4 * rng.normal(size=100)

    def model(y):
        sd, phi = ngmp.sample("sd", HalfCauchy(scale=1.0)), ngmp.sample("phi", Uniform(-1.0, 1.0))
        r = ngmp.sample("r", LogNormal(0.0, std=1.0))

        def step(x, y_k):
            x = ngmp.sample("x", Normal(phi * x, std=sd))
            ngmp.sample("y", Normal(x, std=r), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=3.0)), y)

    def log_joint(sd, phi, r):
        prior = half_cauchy(sd, 1.0) - jnp.log(2.0) + norm.logpdf(jnp.log(r)) - jnp.log(r)
        return kalman(y, phi, sd**2, r**2, 0.0, 9.0) + prior

    grid = {"sd": np.exp(np.linspace(-3, 0.8, 64)), "phi": np.tanh(np.linspace(-0.6, 3.5, 64)),
            "r": np.exp(np.linspace(-6, 0.5, 72))}  # fmt: skip
    return Case("AR(1) with noise", model, {"y": y}, grid, log_joint)


def matern() -> Case:
    rng = np.random.default_rng(4)
    t = np.sort(rng.uniform(0, 10, 40))
    y = np.sin(t) + 0.3 * rng.normal(size=40)
    apart = np.abs(t[:, None] - t)

    def kernel(sd, ell, apart):
        d = np.sqrt(3.0) * apart / ell
        return sd**2 * (1 + d) * jnp.exp(-d)

    def model(y, apart):
        sd, ell = ngmp.sample("sd", HalfNormal(std=2.0)), ngmp.sample("ell", LogNormal(0.0, std=1.0))
        f = ngmp.sample("f", MvNormal(np.zeros(40), covariance=kernel(sd, ell, jnp.asarray(apart)) + 1e-8 * np.eye(40)))
        ngmp.sample("y", MvNormal(f, covariance=0.09 * np.eye(40)), obs=y)

    def log_joint(sd, ell):
        prior = half_normal(sd, 2.0) + norm.logpdf(jnp.log(ell)) - jnp.log(ell)
        return gaussian(jnp.asarray(y), kernel(sd, ell, apart) + (0.09 + 1e-8) * jnp.eye(40)) + prior

    grid = {"sd": np.exp(np.linspace(-2, 2.2, 90)), "ell": np.exp(np.linspace(-2.5, 3.5, 90))}
    return Case("Matern regression", model, {"y": y, "apart": apart}, grid, log_joint)


def effects(name: str, model: Callable, y: Any, log_density: Callable) -> Case:
    """Groups with a random intercept: the evidence by Gauss-Hermite quadrature in each."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def log_joint(m, sd):
        values = log_density(y[..., None], m + sd * nodes).sum(1)  # (groups, nodes)
        each = jax.scipy.special.logsumexp(values + np.log(weights / np.sqrt(2 * np.pi)), axis=-1)
        return jnp.sum(each) + norm.logpdf(m, 0.0, 2.0) + half_normal(sd, 1.0)

    grid = {"m": np.linspace(-2.5, 3.0, 160), "sd": np.exp(np.linspace(-7, 1.6, 160))}
    return Case(name, model, {"y": y}, grid, log_joint, ("m",))


def poisson_effects() -> Case:
    rng = np.random.default_rng(6)
    y = rng.poisson(np.exp(0.7 + 0.5 * rng.normal(size=(12, 1)) * np.ones(4))).astype(float)

    def model(y):
        m, sd = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("sd", HalfNormal(std=1.0))
        b = ngmp.sample("b", Normal(ngmp.broadcast_to(m, (12, 1)), std=sd))
        ngmp.sample("y", Poisson(exp(ngmp.broadcast_to(b, (12, 4)))), obs=y)

    return effects("Poisson effects", model, y, lambda y, f: y * f - jnp.exp(f) - gammaln(y + 1))


def binomial_effects() -> Case:
    rng = np.random.default_rng(7)
    p = 1 / (1 + np.exp(-(0.3 + 0.7 * rng.normal(size=(15, 1)) * np.ones(2))))
    y = rng.binomial(10, p).astype(float)

    def model(y):
        m, sd = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("sd", HalfNormal(std=1.0))
        b = ngmp.sample("b", Normal(ngmp.broadcast_to(m, (15, 1)), std=sd))
        ngmp.sample("y", Binomial(10.0, logits=ngmp.broadcast_to(b, (15, 2))), obs=y)

    def log_density(y, f):
        return gammaln(11.0) - gammaln(y + 1) - gammaln(11.0 - y) + y * f - 10 * jax.nn.softplus(f)

    return effects("binomial effects", model, y, log_density)


def robust() -> Case:
    rng = np.random.default_rng(8)
    x = np.linspace(-1, 1, 40)
    y = 0.5 + 1.2 * x + 0.4 * rng.standard_t(4, size=40)

    def model(x, y):
        df, scale = ngmp.sample("df", Gamma(2.0, rate=0.1)), ngmp.sample("scale", HalfNormal(std=1.0))
        a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
        ngmp.sample("y", StudentT(df, a + b * x, scale=scale), obs=y)

    def log_joint(a, b, df, scale):
        prior = norm.logpdf(a, 0.0, 2.0) + norm.logpdf(b, 0.0, 2.0) + half_normal(scale, 1.0)
        prior += 2 * jnp.log(0.1) + jnp.log(df) - 0.1 * df
        return jnp.sum(student.logpdf(y, df, a + b * x, scale)) + prior

    grid = {"a": np.linspace(0.0, 0.9, 24), "b": np.linspace(0.5, 2.0, 24), "df": np.exp(np.linspace(-0.5, 5.0, 40)),
            "scale": np.exp(np.linspace(-2.2, 0.2, 36))}  # fmt: skip
    return Case("t regression, df and scale", model, {"x": x, "y": y}, grid, log_joint, ("a", "b"))


def dispersion() -> Case:
    rng = np.random.default_rng(9)
    x = np.linspace(-1, 1, 50)
    y = rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(1.0 + 0.8 * x))).astype(float)

    def model(x, y):
        r = ngmp.sample("r", LogNormal(1.0, std=1.0))
        a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
        ngmp.sample("y", NegativeBinomial(mean=exp(a + b * x), dispersion=r), obs=y)

    def log_joint(a, b, r):
        prior = norm.logpdf(a, 0.0, 2.0) + norm.logpdf(b, 0.0, 2.0) + norm.logpdf(jnp.log(r), 1.0) - jnp.log(r)
        return jnp.sum(nbinom.logpmf(y, r, r / (r + jnp.exp(a + b * x)))) + prior

    grid = {"a": np.linspace(0.2, 1.9, 48), "b": np.linspace(-0.7, 2.4, 48), "r": np.exp(np.linspace(-1.5, 5.0, 60))}
    return Case("negative binomial, dispersion", model, {"x": x, "y": y}, grid, log_joint, ("a", "b"))


def truncated() -> Case:
    y = np.array([0.1, 0.5, 0.3, 0.9, 0.2, 1.4, 0.05, 0.6])

    def one(y, m, s):
        return norm.logpdf(y, m, s) - norm.logcdf(m / s)

    def model(y):
        m, s = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("s", HalfNormal(std=2.0))
        ngmp.factor("fit", one, y, m, s)

    def log_joint(m, s):
        return jnp.sum(one(y, m, s)) + norm.logpdf(m, 0.0, 2.0) + half_normal(s, 2.0)

    grid = {"m": np.linspace(-12, 5, 300), "s": np.exp(np.linspace(-2.5, 2.3, 250))}
    return Case("truncated normal", model, {"y": y}, grid, log_joint)


def change_point() -> Case:
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.poisson(3.1, 41), rng.poisson(0.9, 71)]).astype(float)
    total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.asarray(y))])

    def model(y):
        k = ngmp.sample("k", Categorical(probs=np.full(112, 1 / 112)))
        time = jnp.arange(112)
        for name, mask in (("before", time < k), ("after", time >= k)):
            rate = ngmp.sample(name, Gamma(2.0, rate=1.0))
            ngmp.sample(f"y_{name}", Poisson(ngmp.broadcast_to(rate, (112,))), obs=y, mask=mask)

    def log_joint(k):
        first, n = total[k.astype(int)], 112.0
        parts = ((first, k), (total[-1] - first, n - k))
        each = sum(gammaln(2 + count) - (2 + count) * jnp.log1p(size) for count, size in parts)
        return each - jnp.sum(gammaln(y + 1)) - jnp.log(n)

    return Case("coal change point", model, {"y": y}, {"k": np.arange(112.0)}, log_joint)


def cases() -> list[Case]:
    """All of them."""
    from integrated_more import more

    log_grid = np.exp(np.linspace(-12, 6, 3000))
    return [
        nile(),
        schools("half-Cauchy", HalfCauchy(scale=5.0), lambda x: half_cauchy(x, 5.0), log_grid),
        schools("uniform", Uniform(0.0, 50.0), lambda x: -jnp.log(50.0), np.linspace(0.005, 49.995, 4000)),
        schools("half-normal", HalfNormal(std=5.0), lambda x: half_normal(x, 5.0), log_grid),
        autoregression(),
        matern(),
        poisson_effects(),
        binomial_effects(),
        robust(),
        dispersion(),
        truncated(),
        change_point(),
        *more(),
    ]
