"""The gallery's series, volatilities and motions: data, and the same models for NumPyro."""

import jax
import jax.numpy as jnp
import numpy as np
from gallery_case import Case, normals

import ngmp_models as models
from ngmp_models.control import DRIFT, PUSH, SHAKE

STEPS = 40


def walk(numpyro, dist, name, n, step, start, shape=()):
    """A random walk from `name0`, and its steps as deterministic `name`."""
    first = (
        normals(numpyro, dist, f"{name}0", shape, start) if shape else numpyro.sample(f"{name}0", dist.Normal(0, start))
    )
    e = normals(numpyro, dist, f"{name}_e", (n, *shape))
    return numpyro.deterministic(name, first + step * jnp.cumsum(e, 0))


def local_level(numpyro, dist, y):
    numpyro.sample("y", dist.Normal(walk(numpyro, dist, "z", len(y), 0.1**0.5, 10.0**0.5), 1.0), obs=y)


def unknown_level(y):
    """On a grid of both deviations, the level given them by dense algebra: chains of NUTS are slow near zero."""
    n, side = len(y), 160
    grid = (np.arange(side) + 0.5) * 3.0 / side
    since = np.minimum.outer(np.arange(n + 1), np.arange(n + 1))  # steps that two places of the walk have in common
    picks = np.eye(n + 1)[1:]
    log, means, squares = np.zeros((side, side)), np.zeros((side, side, n + 1)), np.zeros((side, side, n + 1))
    for i, step in enumerate(grid):
        prior = 9.0 + step**2 * since
        values, vectors = np.linalg.eigh(picks @ prior @ picks.T)
        seen, cross = vectors.T @ y, prior @ picks.T @ vectors
        for j, noise in enumerate(grid):
            total = values + noise**2
            log[i, j] = -0.5 * (np.log(total).sum() + (seen**2 / total).sum() + step**2 + noise**2)
            means[i, j] = cross @ (seen / total)
            squares[i, j] = means[i, j] ** 2 + np.diagonal(prior) - (cross**2 / total).sum(1)
    weight = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    mean, square = (np.einsum("ij,ijk->k", weight, x) for x in (means, squares))
    std = np.sqrt(square - mean**2)
    own = {k: (w @ grid, np.sqrt(w @ grid**2 - (w @ grid) ** 2)) for k, w in
           (("walk", weight.sum(1)), ("noise", weight.sum(0)))}  # fmt: skip
    return own | {"z0": (mean[0], std[0]), "z": (mean[1:], std[1:])}


def local_trend(numpyro, dist, y):
    z0, b0 = numpyro.sample("z0", dist.Normal(0.0, 3.0)), numpyro.sample("b0", dist.Normal(0.0, 1.0))
    e, g = normals(numpyro, dist, "e", len(y), 0.1), normals(numpyro, dist, "g", len(y), 0.05)
    b = numpyro.deterministic("b", b0 + jnp.cumsum(g))
    z = numpyro.deterministic("z", z0 + jnp.cumsum(e + jnp.append(b0, b[:-1])))
    numpyro.sample("y", dist.Normal(z, 0.5), obs=y)


def seasonal_series(numpyro, dist, y):
    z, first = walk(numpyro, dist, "z", len(y), 0.1, 3.0), normals(numpyro, dist, "s0", 3)

    def step(last, e):
        s = e - last.sum()
        return jnp.append(s, last[:-1]), s

    s = numpyro.deterministic("s", jax.lax.scan(step, first, normals(numpyro, dist, "e", len(y), 0.05))[1])
    numpyro.sample("y", dist.Normal(z + s, 0.3), obs=y)


def poisson_chain(numpyro, dist, y):
    numpyro.sample("y", dist.Poisson(jnp.exp(walk(numpyro, dist, "z", len(y), 0.1**0.5, 10.0**0.5))), obs=y)


def autoregression(numpyro, dist, y):
    phi, x0 = numpyro.sample("phi", dist.Uniform(-1.0, 1.0)), numpyro.sample("x0", dist.Normal(0.0, 1.0))
    e = normals(numpyro, dist, "e", len(y), 0.5)
    x = numpyro.deterministic("x", jax.lax.scan(lambda x, e: (phi * x + e,) * 2, x0, e)[1])
    numpyro.sample("y", dist.Normal(x, 0.4), obs=y)


def second_order(numpyro, dist, y):
    x0 = normals(numpyro, dist, "x0", 2)

    def step(carry, e):
        x = 1.2 * carry[1] - 0.5 * carry[0] + 0.5 * e
        return (carry[1], x), x

    x = jax.lax.scan(step, (x0[0], x0[1]), normals(numpyro, dist, "e", len(y)))[1]
    numpyro.sample("y", dist.Normal(numpyro.deterministic("x", x), 0.4), obs=y)


def dynamic_regression(numpyro, dist, x, y):
    w = walk(numpyro, dist, "w", len(y), 0.1, 1.0, (x.shape[1],))
    numpyro.sample("y", dist.Normal((x * w).sum(-1), 0.1**0.5), obs=y)


def change_point(numpyro, dist, y):
    n = len(y)
    before, after = (numpyro.sample(k, dist.Gamma(2.0, 1.0)) for k in ("before", "after"))
    early, late = (dist.Poisson(rate).log_prob(y) for rate in (before, after))
    given = jnp.append(0.0, jnp.cumsum(early))[:n] + jnp.cumsum(late[::-1])[::-1]
    numpyro.factor("y", jax.scipy.special.logsumexp(given - jnp.log(n)))


def stochastic_volatility(numpyro, dist, r):
    s = walk(numpyro, dist, "s", len(r), 0.05**0.5, 10.0**0.5)
    numpyro.sample("r", dist.Normal(0.0, jnp.exp(-0.5 * s)), obs=r)


def reverting_volatility(numpyro, dist, r):
    phi, mu = numpyro.sample("phi", dist.Uniform(0.0, 1.0)), numpyro.sample("mu", dist.Normal(0.0, 1.0))
    h0 = numpyro.deterministic("h0", mu + numpyro.sample("u", dist.Normal(0.0, 1.0)))

    def step(h, e):
        h = mu + phi * (h - mu) + 0.3 * e
        return h, h

    h = numpyro.deterministic("h", jax.lax.scan(step, h0, normals(numpyro, dist, "e", len(r)))[1])
    numpyro.sample("r", dist.Normal(0.0, jnp.exp(0.5 * h)), obs=r)


def heavy_volatility(numpyro, dist, r):
    h = walk(numpyro, dist, "h", len(r), 0.05**0.5, 10.0**0.5)
    numpyro.sample("r", dist.StudentT(5.0, 0.0, jnp.exp(0.5 * h)), obs=r)


def tracking(numpyro, dist, y):
    for axis, name in enumerate(("x", "y")):
        x0 = numpyro.sample(f"{name}0", dist.Normal(jnp.zeros(2), jnp.array([2.0, 1.0])).to_event(1))

        def step(x, e):
            x = DRIFT @ x + np.linalg.cholesky(SHAKE) @ e
            return x, x

        x = jax.lax.scan(step, x0, normals(numpyro, dist, f"{name}_e", (len(y), 2)))[1]
        numpyro.deterministic(name, x)
        numpyro.sample(f"seen_{name}", dist.Normal(x[:, 0], 0.2), obs=y[:, axis])


def range_bearing(numpyro, dist, distance, angle):
    x0 = normals(numpyro, dist, "x0", 2, 1.0, 3.0)
    x = numpyro.deterministic("x", x0 + 0.3 * jnp.cumsum(normals(numpyro, dist, "e", (len(angle), 2)), 0))
    numpyro.sample("distance", dist.Normal(jnp.sqrt((x**2).sum(-1)), 0.1), obs=distance)
    numpyro.sample("angle", dist.Normal(jnp.arctan2(x[:, 1], x[:, 0]), 0.05), obs=angle)


def regulator(numpyro, dist, start, goal, steps):
    u = normals(numpyro, dist, "u", steps)
    x, _ = jax.lax.scan(lambda x, u: (DRIFT @ x + PUSH * u, None), jnp.asarray(start), u)
    numpyro.sample("goal", dist.Normal(x, 0.01).to_event(1), obs=goal)


def pendulum(numpyro, dist, y):
    a0, s0 = numpyro.sample("angle0", dist.Normal(0.5, 0.3)), numpyro.sample("speed0", dist.Normal(0.0, 0.5))

    def step(carry, e):
        angle, speed = carry
        speed = speed - 0.981 * jnp.sin(angle) + 0.2 * e[0]
        angle = angle + 0.1 * speed + 0.05 * e[1]
        return (angle, speed), (angle, speed)

    angle, speed = jax.lax.scan(step, (a0, s0), normals(numpyro, dist, "e", (len(y), 2)))[1]
    numpyro.deterministic("angle", angle)
    numpyro.deterministic("speed", speed)
    numpyro.sample("y", dist.Normal(jnp.sin(angle), 0.2), obs=y)


def series() -> list[Case]:
    rng = np.random.default_rng(7)
    e = rng.standard_normal((6, STEPS))
    level = np.cumsum(0.4 * e[0])
    rates = np.exp(1.0 + np.cumsum(0.3 * e[1]))
    season = np.tile([1.0, -0.5, -1.0, 0.5], STEPS // 4)
    hidden, second = np.zeros(STEPS), np.zeros(STEPS)
    for k in range(2, STEPS):
        hidden[k] = 0.8 * hidden[k - 1] + 0.5 * e[2, k]
        second[k] = 1.2 * second[k - 1] - 0.5 * second[k - 2] + 0.5 * e[3, k]
    x = np.stack([np.ones(STEPS), rng.standard_normal(STEPS)], 1)
    moving = {"x": x, "y": (x * np.cumsum(0.1 * rng.standard_normal((STEPS, 2)), 0)).sum(1) + 0.3 * e[4]}
    counts = rng.poisson(np.where(np.arange(STEPS) < 25, 3.0, 1.0))
    return [
        Case("local_level", models.local_level, {"y": level + e[5]}, local_level, how="dense"),
        Case("unknown_level", models.unknown_level, {"y": level + 0.5 * e[5]}, unknown_level,
             {"integrate": ("walk", "noise")}, how="exact"),
        Case("local_trend", models.local_trend, {"y": 0.1 * np.arange(STEPS) + 0.5 * e[5]}, local_trend, how="dense"),
        Case("seasonal_series", models.seasonal_series, {"y": 0.3 * level + season + 0.3 * e[5]}, seasonal_series,
             how="dense"),
        Case("poisson_chain", models.poisson_chain, {"y": rng.poisson(rates)}, poisson_chain),
        Case("autoregression", models.autoregression, {"y": hidden + 0.4 * e[5]}, autoregression,
             {"integrate": ("phi",)}),
        Case("second_order", models.second_order, {"y": second + 0.4 * e[5]}, second_order, how="dense"),
        Case("dynamic_regression", models.dynamic_regression, moving, dynamic_regression, how="dense"),
        Case("change_point", models.change_point, {"y": counts}, change_point, {"integrate": ("t",)}),
    ]  # fmt: skip


def volatility() -> list[Case]:
    rng = np.random.default_rng(8)
    h = np.cumsum(0.25 * rng.standard_normal(2 * STEPS))
    r = np.exp(0.5 * h) * rng.standard_normal(2 * STEPS)
    back = np.zeros(2 * STEPS)
    for k in range(1, 2 * STEPS):
        back[k] = -0.5 + 0.8 * (back[k - 1] + 0.5) + 0.3 * rng.standard_normal()
    calm = np.exp(0.5 * back) * rng.standard_normal(2 * STEPS)
    heavy = np.exp(0.5 * h) * rng.standard_t(5, 2 * STEPS)
    return [
        Case("stochastic_volatility", models.stochastic_volatility, {"r": r}, stochastic_volatility),
        Case("reverting_volatility", models.reverting_volatility, {"r": calm}, reverting_volatility,
             {"integrate": ("phi",)}),
        Case("heavy_volatility", models.heavy_volatility, {"r": heavy}, heavy_volatility),
    ]  # fmt: skip


def control() -> list[Case]:
    rng = np.random.default_rng(9)
    path = np.cumsum(0.1 * np.cumsum(0.1 * rng.standard_normal((STEPS, 2)), 0), 0)
    place = 3.0 + np.cumsum(0.3 * rng.standard_normal((15, 2)), 0)
    seen = {"distance": np.linalg.norm(place, axis=1) + 0.1 * rng.standard_normal(15),
            "angle": np.arctan2(place[:, 1], place[:, 0]) + 0.05 * rng.standard_normal(15)}  # fmt: skip
    angle, speed, swing = 0.6, 0.0, []
    for _ in range(25):
        speed += -0.981 * np.sin(angle) + 0.2 * rng.standard_normal()
        angle += 0.1 * speed + 0.05 * rng.standard_normal()
        swing.append(np.sin(angle) + 0.2 * rng.standard_normal())
    goal = {"start": np.array([1.0, 0.0]), "goal": np.zeros(2), "steps": 20}
    return [
        Case("tracking", models.tracking, {"y": path + 0.2 * rng.standard_normal((STEPS, 2))}, tracking, how="dense"),
        Case("range_bearing", models.range_bearing, seen, range_bearing),
        Case("regulator", models.regulator, goal, regulator, how="dense"),
        Case("pendulum", models.pendulum, {"y": np.array(swing)}, pendulum),
    ]
