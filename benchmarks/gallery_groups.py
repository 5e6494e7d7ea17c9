"""The gallery's persons and items, times to events, networks and maps: data, and the same models for NumPyro."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gallery_case import Case, normals

import ngmp_models as models

ROWS = 80


def rasch(numpyro, dist, person, item, y, persons, items):
    theta, b = normals(numpyro, dist, "theta", persons), normals(numpyro, dist, "b", items, 2.0)
    numpyro.sample("y", dist.Bernoulli(logits=theta[person] - b[item]), obs=y)


def graded(numpyro, dist, person, item, y, cutpoints, persons, items):
    theta, b = normals(numpyro, dist, "theta", persons), normals(numpyro, dist, "b", items)
    numpyro.sample("y", dist.OrderedLogistic(theta[person] - b[item], cutpoints), obs=y)


def bradley_terry(numpyro, dist, winner, loser, players):
    s = normals(numpyro, dist, "s", players)
    numpyro.factor("won", jnp.sum(jax.nn.log_sigmoid(s[winner] - s[loser])))


def signal_detection(numpyro, dist, signal, y):
    d, c = numpyro.sample("d", dist.Normal(0.0, 2.0)), numpyro.sample("c", dist.Normal(0.0, 1.0))
    numpyro.factor("y", jnp.sum(jax.scipy.stats.norm.logcdf((2 * y - 1) * (d * (signal - 0.5) - c))))


def two_parameter(numpyro, dist, y):
    persons, items = y.shape
    theta = normals(numpyro, dist, "theta", (persons, 1))
    k, b = normals(numpyro, dist, "k", items, 0.3), normals(numpyro, dist, "b", items, 2.0**0.5)
    numpyro.sample("y", dist.Bernoulli(logits=jnp.exp(k) * theta - b), obs=y)


def _exponential(numpyro, log_rate, t, censored):
    numpyro.factor("t", jnp.sum((1 - censored) * log_rate - t * jnp.exp(log_rate)))


def exponential_survival(numpyro, dist, features, t, censored):
    _exponential(numpyro, features @ normals(numpyro, dist, "w", features.shape[1], 2.0), t, censored)


def weibull_survival(numpyro, dist, features, t, censored):
    k, w = numpyro.sample("k", dist.HalfNormal(2.0)), normals(numpyro, dist, "w", features.shape[1], 2.0)
    u = jnp.log(t) - features @ w
    seen = jnp.log(k) + (k - 1) * u - features @ w
    numpyro.factor("t", jnp.sum((1 - censored) * seen - jnp.exp(k * u)))


def lognormal_survival(numpyro, dist, features, t, censored):
    sd, w = numpyro.sample("sd", dist.HalfNormal(1.0)), normals(numpyro, dist, "w", features.shape[1], 2.0)
    u = (jnp.log(t) - features @ w) / sd
    seen = jax.scipy.stats.norm.logpdf(u) - jnp.log(sd)
    numpyro.factor("t", jnp.sum(jnp.where(censored == 1, jax.scipy.stats.norm.logcdf(-u), seen)))


def frailty(numpyro, dist, group, features, t, censored, groups):
    w, u = normals(numpyro, dist, "w", features.shape[1], 2.0), normals(numpyro, dist, "u", groups, 0.5)
    _exponential(numpyro, features @ w + u[group], t, censored)


def piecewise_hazard(numpyro, dist, deaths, at_risk):
    first, steps = numpyro.sample("h0", dist.Normal(0.0, 2.0)), normals(numpyro, dist, "e", len(deaths) - 1, 0.5)
    h = numpyro.deterministic("h", jnp.concatenate([first[None], first + jnp.cumsum(steps)]))
    numpyro.sample("deaths", dist.Poisson(at_risk * jnp.exp(h)), obs=deaths)


def senders_receivers(numpyro, dist, sender, receiver, y, nodes):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    a, b = normals(numpyro, dist, "a", nodes), normals(numpyro, dist, "b", nodes)
    numpyro.sample("y", dist.Bernoulli(logits=mu + a[sender] + b[receiver]), obs=y)


def flows(numpyro, dist, source, target, distance, y, nodes):
    mu, gamma = numpyro.sample("mu", dist.Normal(0.0, 2.0)), numpyro.sample("gamma", dist.Normal(0.0, 1.0))
    a, b = normals(numpyro, dist, "a", nodes), normals(numpyro, dist, "b", nodes)
    numpyro.sample("y", dist.Poisson(jnp.exp(mu + a[source] + b[target] - gamma * distance)), obs=y)


def potentials(numpyro, dist, source, target, y, nodes):
    h = normals(numpyro, dist, "h", nodes, 2.0)
    numpyro.sample("y", dist.Normal(h[target] - h[source], 0.3), obs=y)


def _icar(numpyro, dist, adjacency, tau):
    """Among the vectors that sum to zero, `exp(-tau u'(D - W)u / 2)`."""
    w = np.asarray(adjacency, float)
    values, vectors = np.linalg.eigh(np.diag(w.sum(1)) - w)
    z = normals(numpyro, dist, "z", len(w) - 1)
    return numpyro.deterministic("u", jnp.asarray(vectors[:, 1:] / np.sqrt(tau * values[1:])) @ z)


def disease_map(numpyro, dist, y, expected, adjacency):
    a, u = numpyro.sample("a", dist.Normal(0.0, 2.0)), _icar(numpyro, dist, adjacency, 2.0)
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(a + u)), obs=y)


def bym(numpyro, dist, y, expected, adjacency):
    a, u = numpyro.sample("a", dist.Normal(0.0, 2.0)), _icar(numpyro, dist, adjacency, 2.0)
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    v = numpyro.deterministic("v", sd * normals(numpyro, dist, "e", len(y)))
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(a + u + v)), obs=y)


def smooth_curve(t, y):
    """Given the roughness the curve is Gaussian, with precision `B'B / roughness^2` and the noise: a sum over it."""
    h = np.diff(t)
    steps = np.diff(np.eye(len(t)), axis=0) / h[:, None]
    bend = np.diff(steps, axis=0) / np.sqrt(0.5 * (h[1:] + h[:-1]))[:, None]
    roughness, log_weight, means, variances = np.geomspace(0.02, 6.0, 600), [], [], []
    for r in roughness:
        precision = bend.T @ bend / r**2 + np.eye(len(t)) / 0.09
        covariance = np.linalg.inv(precision)
        mean = covariance @ y / 0.09
        fit = 0.5 * y @ mean / 0.09 - 0.5 * np.linalg.slogdet(precision)[1] - len(bend) * np.log(r)
        log_weight.append(fit - 0.5 * r**2 + np.log(r))  # HalfNormal(1), on a grid of logarithms
        means.append(mean)
        variances.append(np.diag(covariance))
    w = np.exp(np.array(log_weight) - np.max(log_weight))
    w, means = w / w.sum(), np.stack(means)
    mean, r_mean = w @ means, w @ roughness
    std = np.sqrt(w @ (np.stack(variances) + means**2) - mean**2)
    return {"roughness": (r_mean, np.sqrt(w @ roughness**2 - r_mean**2)), "f": (mean, std)}


def gaussian_process(numpyro, dist, x, y):
    square = ((x[:, None] - x[None]) ** 2).sum(-1)
    root = np.linalg.cholesky(2.0 * (np.exp(-0.5 * square) + 1e-6 * np.eye(len(x))))
    f = numpyro.deterministic("f", root @ normals(numpyro, dist, "z", len(x)))
    numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def lattice(numpyro, dist, y):
    x = normals(numpyro, dist, "x", y.shape, 3.0)
    numpyro.sample("down", dist.Normal(x[1:] - x[:-1], 0.5), obs=0.0 * y[1:])
    numpyro.sample("right", dist.Normal(x[:, 1:] - x[:, :-1], 0.5), obs=0.0 * y[:, 1:])
    numpyro.sample("y", dist.Normal(x, 0.5), obs=y)


def kriging(numpyro, dist, x, features, y):
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    w = normals(numpyro, dist, "w", features.shape[1], 2.0)
    f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), jnp.exp(-distance)))
    numpyro.sample("y", dist.Normal(features @ w + f, 0.3), obs=y)


def psychometrics() -> list[Case]:
    rng = np.random.default_rng(3)
    person, item = (i.ravel() for i in np.indices((20, 8)))
    theta, b = rng.standard_normal(20), rng.standard_normal(8)
    logits = theta[person] - b[item]
    where = {"person": person, "item": item, "persons": 20, "items": 8}
    grades = np.digitize(logits + rng.logistic(size=160), [-1.0, 0.5, 1.5])
    i, j = rng.integers(0, 10, (2, 120))
    i, j = i[i != j], j[i != j]
    won = rng.random(len(i)) < 1 / (1 + np.exp(theta[j] - theta[i]))
    signal = rng.integers(0, 2, 60)
    said = (1.5 * (signal - 0.5) - 0.3 + rng.standard_normal(60) > 0).astype(int)
    slopes = np.exp(0.3 * rng.standard_normal(8))
    answers = rng.random((40, 8)) < 1 / (1 + np.exp(b - slopes * rng.standard_normal((40, 1))))
    games = {"winner": np.where(won, i, j), "loser": np.where(won, j, i), "players": 10}
    right = (rng.random(160) < 1 / (1 + np.exp(-logits))).astype(int)
    cutpoints = np.array([-1.0, 0.5, 1.5])
    return [
        Case("rasch", models.rasch, {**where, "y": right}, rasch),
        Case("graded_response", models.graded_response, {**where, "y": grades, "cutpoints": cutpoints}, graded),
        Case("bradley_terry", models.bradley_terry, games, bradley_terry),
        Case("signal_detection", models.signal_detection, {"signal": signal, "y": said}, signal_detection),
        Case("two_parameter", models.two_parameter, {"y": answers.astype(float)}, two_parameter),
    ]


def survival() -> list[Case]:
    rng = np.random.default_rng(4)
    x = np.stack([np.ones(ROWS), rng.standard_normal(ROWS)], 1)
    f = x @ np.array([0.3, 0.6])
    end = rng.exponential(3.0, ROWS)

    def cut(t):
        return {"features": x, "t": np.minimum(t, end), "censored": (t > end).astype(int)}

    group = rng.integers(0, 8, ROWS)
    u = 0.5 * rng.standard_normal(8)
    at_risk = np.linspace(40.0, 10.0, 12)
    deaths = rng.poisson(at_risk * np.exp(-2 + 0.3 * np.cumsum(rng.standard_normal(12))))
    weak = {"group": group, "groups": 8, **cut(rng.exponential(np.exp(-f - u[group])))}
    weibull, lognormal = cut(np.exp(f) * rng.weibull(1.5, ROWS)), cut(np.exp(f + 0.6 * rng.standard_normal(ROWS)))
    piecewise = {"deaths": deaths, "at_risk": at_risk}
    return [
        Case(
            "exponential_survival", models.exponential_survival, cut(rng.exponential(np.exp(-f))), exponential_survival
        ),
        Case("weibull_survival", models.weibull_survival, weibull, weibull_survival, {"integrate": ("k",)}),
        Case("lognormal_survival", models.lognormal_survival, lognormal, lognormal_survival, {"integrate": ("sd",)}),
        Case("frailty", models.frailty, weak, frailty),
        Case("piecewise_hazard", models.piecewise_hazard, piecewise, piecewise_hazard),
    ]


def networks() -> list[Case]:
    rng = np.random.default_rng(5)
    i, j = (k[~np.eye(10, dtype=bool)] for k in np.indices((10, 10)))
    a, b = rng.standard_normal((2, 10))
    ties = (rng.random(90) < 1 / (1 + np.exp(1.0 - a[i] - b[j]))).astype(int)
    place = rng.standard_normal((10, 2))
    distance = np.linalg.norm(place[i] - place[j], axis=1)
    moved = rng.poisson(np.exp(1.5 + 0.7 * a[i] + 0.7 * b[j] - 0.5 * distance))
    some = rng.choice(90, 25, replace=False)
    heights = {"source": i[some], "target": j[some], "y": 2 * (a[j] - a[i])[some] + 0.3 * rng.standard_normal(25)}
    sent: dict[str, Any] = {"sender": i, "receiver": j, "y": ties, "nodes": 10}
    flow: dict[str, Any] = {"source": i, "target": j, "distance": distance, "y": moved, "nodes": 10}
    return [
        Case("senders_receivers", models.senders_receivers, sent, senders_receivers),
        Case("flows", models.flows, flow, flows),
        Case("potentials", models.potentials, {**heights, "nodes": 10}, potentials, how="dense"),
    ]


def space() -> list[Case]:
    rng = np.random.default_rng(6)
    row, column = (k.ravel() for k in np.indices((5, 5)))
    adjacency = (np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1).astype(float)
    expected = rng.uniform(2.0, 10.0, 25)
    areas = {"expected": expected, "adjacency": adjacency}
    risk = 0.3 * (row - 2) + 0.2 * np.sin(column)
    t = np.sort(rng.uniform(0.0, 10.0, 30))
    curve = np.sin(t) + 0.3 * rng.standard_normal(30)
    x = rng.uniform(-2.0, 2.0, (30, 2))
    f = 1.5 * np.sin(x[:, 0]) - x[:, 1]
    sides = (rng.random(30) < 1 / (1 + np.exp(-2 * f))).astype(int)
    image = np.add.outer(np.sin(np.arange(6)), np.arange(5) / 3) + 0.5 * rng.standard_normal((6, 5))
    trend = np.stack([np.ones(30), x[:, 0]], 1)
    seen = {"x": x, "features": trend, "y": f + 0.3 * rng.standard_normal(30)}
    counts, more = (
        rng.poisson(expected * np.exp(risk)),
        rng.poisson(expected * np.exp(risk + 0.5 * rng.standard_normal(25))),
    )
    return [
        Case("disease_map", models.disease_map, {"y": counts, **areas}, disease_map),
        Case("besag_york_mollie", models.besag_york_mollie, {"y": more, **areas}, bym, {"integrate": ("sd",)}),
        Case("smooth_curve", models.smooth_curve, {"t": t, "y": curve}, smooth_curve, {"integrate": ("roughness",)},
             how="exact"),
        Case("gaussian_process", models.gaussian_process, {"x": x, "y": sides}, gaussian_process),
        Case("lattice", models.lattice, {"y": image}, lattice, how="dense"),
        Case("kriging", models.kriging, seen, kriging, how="dense"),
    ]
