"""The gallery's regressions and hierarchies: data, and the same models for NumPyro."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gallery_case import Case, normals

import ngmp_models as models

ROWS = 80


def weights(numpyro: Any, dist: Any, features: Any, name: str = "w", variance: float = 4.0) -> Any:
    return normals(numpyro, dist, name, features.shape[1], variance**0.5)


def mean_precision(numpyro, dist, y):
    x, tau = numpyro.sample("x", dist.Normal(0.0, 5.0)), numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(x, tau**-0.5), obs=y)


def linear(numpyro, dist, features, y):
    w, tau = weights(numpyro, dist, features), numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(features @ w, tau**-0.5), obs=y)


def logistic(numpyro, dist, features, y):
    numpyro.sample("y", dist.Bernoulli(logits=features @ weights(numpyro, dist, features)), obs=y)


def probit(numpyro, dist, features, y):
    f = features @ weights(numpyro, dist, features)
    numpyro.factor("y", jnp.sum(jax.scipy.stats.norm.logcdf((2 * y - 1) * f)))


def binomial(numpyro, dist, features, trials, y):
    hazard = jnp.exp(features @ weights(numpyro, dist, features))
    numpyro.factor("y", jnp.sum(y * jnp.log(-jnp.expm1(-hazard)) - (trials - y) * hazard))


def poisson(numpyro, dist, features, exposure, y):
    numpyro.sample("y", dist.Poisson(exposure * jnp.exp(features @ weights(numpyro, dist, features))), obs=y)


def negative_binomial(numpyro, dist, features, y):
    w, k = weights(numpyro, dist, features), numpyro.sample("k", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(features @ w), jnp.exp(k)), obs=y)


def zero_inflated(numpyro, dist, features, y):
    w, p = weights(numpyro, dist, features), numpyro.sample("p", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.ZeroInflatedPoisson(p, jnp.exp(features @ w)), obs=y)


def gamma(numpyro, dist, features, y):
    w, k = weights(numpyro, dist, features), numpyro.sample("k", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Gamma(jnp.exp(k), jnp.exp(k - features @ w)), obs=y)


def beta(numpyro, dist, features, y):
    w, k = weights(numpyro, dist, features), numpyro.sample("k", dist.Normal(2.0, 1.0))
    f = features @ w
    numpyro.sample("y", dist.Beta(jax.nn.sigmoid(f) * jnp.exp(k), jax.nn.sigmoid(-f) * jnp.exp(k)), obs=y)


def softmax(numpyro, dist, features, y):
    v, w = weights(numpyro, dist, features, "v"), weights(numpyro, dist, features)
    scores = jnp.stack([jnp.zeros(len(features)), features @ v, features @ w], -1)
    numpyro.sample("y", dist.Categorical(logits=scores), obs=y)


def ordinal(numpyro, dist, features, y):
    w = weights(numpyro, dist, features)
    first, gap = numpyro.sample("first", dist.Normal(0.0, 2.0)), numpyro.sample("gap", dist.Normal(0.0, 0.7))
    numpyro.sample("y", dist.OrderedLogistic(features @ w, jnp.stack([first, first + jnp.exp(gap)])), obs=y)


def robust(numpyro, dist, features, y):
    w, s = weights(numpyro, dist, features), numpyro.sample("s", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.StudentT(4.0, features @ w, jnp.exp(s)), obs=y)


def median(numpyro, dist, features, y):
    w, b = weights(numpyro, dist, features), numpyro.sample("b", dist.Exponential(1.0))
    numpyro.sample("y", dist.Laplace(features @ w, b), obs=y)


def ridge(numpyro, dist, features, y):
    scale, noise = numpyro.sample("ridge", dist.HalfNormal(1.0)), numpyro.sample("noise", dist.HalfNormal(1.0))
    w = normals(numpyro, dist, "w", features.shape[1], scale)
    numpyro.sample("y", dist.Normal(features @ w, noise), obs=y)


def measurement_error(numpyro, dist, x, y):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("b", dist.Normal(0.0, 2.0))
    t = normals(numpyro, dist, "t", len(x))
    numpyro.sample("x", dist.Normal(t, 0.5), obs=x)
    numpyro.sample("y", dist.Normal(b * t + a, 0.4), obs=y)


def heteroscedastic(numpyro, dist, phi, psi, y):
    v, w = weights(numpyro, dist, phi, "v"), weights(numpyro, dist, psi, "w", 2.56)
    s = numpyro.deterministic("s", psi @ w + 0.2 * normals(numpyro, dist, "e", len(y)))
    numpyro.sample("y", dist.Normal(phi @ v, jnp.exp(-0.5 * s)), obs=y)


def eight_schools(numpyro, dist, y, sd):
    mu, tau = numpyro.sample("mu", dist.Normal(0.0, 10.0)), numpyro.sample("tau", dist.HalfCauchy(5.0))
    theta = numpyro.deterministic("theta", mu + tau * normals(numpyro, dist, "u", len(y)))
    numpyro.sample("y", dist.Normal(theta, sd), obs=y)


def random_intercepts(numpyro, dist, group, x, y, groups):
    between, within = (numpyro.sample(k, dist.HalfNormal(1.0)) for k in ("between", "within"))
    mu, b = (numpyro.sample(k, dist.Normal(0.0, 3.0)) for k in ("mu", "b"))
    a = numpyro.deterministic("a", mu + between * normals(numpyro, dist, "e", groups))
    numpyro.sample("y", dist.Normal(a[group] + b * x, within), obs=y)


def growth(numpyro, dist, subject, t, y, subjects):
    levels, slopes = (numpyro.sample(k, dist.HalfNormal(1.0)) for k in ("levels", "slopes"))
    mu, beta = (numpyro.sample(k, dist.Normal(0.0, 5.0)) for k in ("mu", "beta"))
    a = numpyro.deterministic("a", mu + levels * normals(numpyro, dist, "e", subjects))
    b = numpyro.deterministic("b", beta + slopes * normals(numpyro, dist, "g", subjects))
    numpyro.sample("y", dist.Normal(a[subject] + b[subject] * t, 0.5), obs=y)


def seeds(numpyro, dist, features, trials, y):
    sd, w = numpyro.sample("sd", dist.HalfNormal(1.0)), weights(numpyro, dist, features)
    u = numpyro.deterministic("u", sd * normals(numpyro, dist, "e", len(y)))
    numpyro.sample("y", dist.Binomial(trials, logits=features @ w + u), obs=y)


def count_groups(numpyro, dist, group, y, groups):
    sd, mu = numpyro.sample("sd", dist.HalfNormal(1.0)), numpyro.sample("mu", dist.Normal(0.0, 2.0))
    u = numpyro.deterministic("u", mu + sd * normals(numpyro, dist, "e", groups))
    numpyro.sample("y", dist.Poisson(jnp.exp(u[group])), obs=y)


def pumps(numpyro, dist, t, y):
    beta = numpyro.sample("beta", dist.Gamma(2.0, 1.0))
    theta = numpyro.sample("theta", dist.Gamma(jnp.ones(len(y)), beta).to_event(1))
    numpyro.sample("y", dist.Poisson(t * theta), obs=y)


def precision_hierarchy(numpyro, dist, features, y):
    v = normals(numpyro, dist, "v", 1)
    w1, w2 = normals(numpyro, dist, "w1", 1), normals(numpyro, dist, "w2", 1)
    s2 = numpyro.deterministic("s2", features[2] @ w2 + 0.2 * normals(numpyro, dist, "e2", len(y)))
    s1 = numpyro.deterministic("s1", features[1] @ w1 + jnp.exp(-0.5 * s2) * normals(numpyro, dist, "e1", len(y)))
    numpyro.sample("y", dist.Normal(features[0] @ v, jnp.exp(-0.5 * s1)), obs=y)


def regressions() -> list[Case]:
    rng = np.random.default_rng(1)
    x = np.concatenate([np.ones((ROWS, 1)), rng.standard_normal((ROWS, 2))], 1)
    f = x @ np.array([0.5, 0.8, -0.5])
    p = 1 / (1 + np.exp(-f))
    data: dict[str, Any] = {
        "linear_regression": (linear, f + 0.5 * rng.standard_normal(ROWS)),
        "logistic_regression": (logistic, (rng.random(ROWS) < p).astype(int)),
        "probit_regression": (probit, (f + rng.standard_normal(ROWS) > 0).astype(int)),
        "negative_binomial_regression": (negative_binomial, rng.poisson(np.exp(1 + f) * rng.gamma(2.0, 0.5, ROWS))),
        "zero_inflated_regression": (zero_inflated, rng.poisson(np.exp(0.5 + f)) * (rng.random(ROWS) > 0.3)),
        "gamma_regression": (gamma, np.exp(f) * rng.gamma(3.0, 1 / 3.0, ROWS)),
        "beta_regression": (beta, np.clip(rng.beta(8 * p, 8 * (1 - p)), 1e-3, 1 - 1e-3)),
        "softmax_regression": (softmax, (np.stack([0 * f, f, x @ [-0.3, 0.2, 1.0]], -1)
                                         + rng.gumbel(size=(ROWS, 3))).argmax(1)),
        "robust_regression": (robust, f + 0.3 * rng.standard_t(4, ROWS)),
    }  # fmt: skip
    out = [Case(k, getattr(models, k), {"features": x, "y": y}, ref) for k, (ref, y) in data.items()]
    grades = np.digitize(x[:, 1:] @ [0.8, -0.5] + rng.logistic(size=ROWS), [-0.5, 1.0])
    trials, exposure = rng.integers(1, 6, ROWS), rng.uniform(0.5, 2.0, ROWS)
    deaths = rng.binomial(trials, 1 - np.exp(-np.exp(f - 0.5)))
    counts = rng.poisson(exposure * np.exp(f))
    t = rng.standard_normal(60)
    blurred = {"x": t + 0.5 * rng.standard_normal(60), "y": 0.5 + 1.2 * t + 0.4 * rng.standard_normal(60)}
    noisy = f + np.exp(-0.5 * (1 + 0.5 * x[:, 1])) * rng.standard_normal(ROWS)
    heavy, wide = {"features": x, "y": f + rng.laplace(size=ROWS)}, rng.standard_normal((40, 10))
    shrunk = {"features": wide, "y": wide @ (0.5 * rng.standard_normal(10)) + 0.5 * rng.standard_normal(40)}
    return [
        Case("mean_precision", models.mean_precision, {"y": rng.normal(2.0, 0.7, 30)}, mean_precision),
        *out,
        Case("ordinal_regression", models.ordinal_regression, {"features": x[:, 1:], "y": grades}, ordinal),
        Case(
            "binomial_regression", models.binomial_regression, {"features": x, "trials": trials, "y": deaths}, binomial
        ),
        Case(
            "poisson_regression", models.poisson_regression, {"features": x, "exposure": exposure, "y": counts}, poisson
        ),
        Case("median_regression", models.median_regression, heavy, median, {"integrate": ("b",)}),
        Case("ridge_regression", models.ridge_regression, shrunk, ridge, {"integrate": ("ridge", "noise")}),
        Case("measurement_error", models.measurement_error, blurred, measurement_error),
        Case("heteroscedastic", models.heteroscedastic, {"phi": x, "psi": x[:, :2], "y": noisy}, heteroscedastic),
    ]


def hierarchies() -> list[Case]:
    rng = np.random.default_rng(2)
    schools = {"y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
               "sd": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])}  # fmt: skip
    group, x = rng.integers(0, 12, ROWS), rng.standard_normal(ROWS)
    levels = 1.0 + 0.7 * rng.standard_normal(12)
    radon = {"group": group, "x": x, "y": levels[group] - 0.5 * x + 0.6 * rng.standard_normal(ROWS), "groups": 12}
    subject, t = np.repeat(np.arange(15), 5), np.tile(np.linspace(-1, 1, 5), 15)
    line = (2 + 0.8 * rng.standard_normal(15))[subject] + (1 + 0.5 * rng.standard_normal(15))[subject] * t
    rats = {"subject": subject, "t": t, "y": line + 0.5 * rng.standard_normal(75), "subjects": 15}
    kind = np.stack([np.ones(21), rng.integers(0, 2, 21), rng.integers(0, 2, 21)], 1).astype(float)
    trials = rng.integers(10, 60, 21)
    logits = kind @ [-0.4, 0.3, 0.9] + 0.4 * rng.standard_normal(21)
    plates = {"features": kind, "trials": trials, "y": rng.binomial(trials, 1 / (1 + np.exp(-logits)))}
    rates = np.exp(1.0 + 0.6 * rng.standard_normal(12))
    counts = {"group": group, "y": rng.poisson(rates[group]), "groups": 12}
    failures = {"t": np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5]),
                "y": np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])}  # fmt: skip
    ones, tilt = np.ones((40, 1)), rng.standard_normal((40, 1))
    levels = {
        "features": (tilt, tilt, ones),
        "y": 0.8 * tilt[:, 0] + np.exp(-0.5 * tilt[:, 0]) * rng.standard_normal(40),
    }
    return [
        Case("eight_schools", models.eight_schools, schools, eight_schools, {"integrate": ("tau",)}),
        Case(
            "random_intercepts",
            models.random_intercepts,
            radon,
            random_intercepts,
            {"integrate": ("between", "within")},
        ),
        Case("growth_curves", models.growth_curves, rats, growth, {"integrate": ("levels", "slopes")}),
        Case("seeds", models.seeds, plates, seeds, {"integrate": ("sd",)}),
        Case("count_groups", models.count_groups, counts, count_groups, {"integrate": ("sd",)}),
        Case("pumps", models.pumps, failures, pumps, {"integrate": ("beta",)}),
        Case("precision_hierarchy", models.precision_hierarchy, levels, precision_hierarchy),
    ]
