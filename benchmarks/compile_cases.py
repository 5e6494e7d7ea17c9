"""Twelve ordinary models of the field trial, with data, whose first call `compile_time.py` measures."""

from typing import Any, NamedTuple

import accuracy_models
import accuracy_structures
import hard_models
import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Categorical, Dirichlet, Gamma, MvNormal, Normal, dot


class CompileCase(NamedTuple):
    """A model with its inputs, by a name."""

    name: str
    model: Any
    inputs: dict[str, Any]


def seeds(x, trials, y):
    """Binomial counts with a regression and an effect of each plate, whose precision is unknown."""
    tau = ngmp.sample("tau", Gamma(2.0, rate=0.5))
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[1]), covariance=4.0))
    u = ngmp.sample("u", Normal(jnp.zeros(len(y)), precision=tau))
    ngmp.sample("y", Binomial(trials, logits=dot(x, w) + u), obs=y)


def radon(county, floor, y, counties):
    """Levels by county around an unknown one, a common slope, two unknown precisions."""
    mu, b = ngmp.sample("mu", Normal(0.0, std=3.0)), ngmp.sample("b", Normal(0.0, std=3.0))
    between, within = ngmp.sample("between", Gamma(2.0, rate=1.0)), ngmp.sample("within", Gamma(2.0, rate=1.0))
    a = ngmp.sample("a", Normal(mu + np.zeros(counties), precision=between))
    ngmp.sample("y", Normal(a[county] + b * floor, precision=within), obs=y)


def panel(y):
    """A local level for each of several series, whose steps and noise have common precisions."""
    q, r = ngmp.sample("q", Gamma(2.0, rate=0.1)), ngmp.sample("r", Gamma(2.0, rate=0.5))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=q))
        ngmp.sample("y", Normal(z, precision=r), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(jnp.zeros(y.shape[1]), std=3.0)), y)


def structural(y, period=4):
    """Level, slope, seasons and noise, of four unknown precisions."""
    precisions = [ngmp.sample(name, Gamma(2.0, rate=0.1)) for name in ("q_level", "q_slope", "q_season", "r")]
    q_level, q_slope, q_season, r = precisions
    start = ngmp.sample("level0", Normal(0.0, std=5.0)), ngmp.sample("slope0", Normal(0.0, std=1.0))
    seasons = tuple(ngmp.sample(f"season{i}", Normal(0.0, std=2.0)) for i in range(period - 1))

    def step(carry, y_k):
        level, slope, *seasons = carry
        up = ngmp.sample("level", Normal(level + slope, precision=q_level))
        slope = ngmp.sample("slope", Normal(slope, precision=q_slope))
        season = ngmp.sample("season", Normal(-1.0 * sum(seasons[1:], seasons[0]), precision=q_season))
        ngmp.sample("y", Normal(up + season, precision=r), obs=y_k)
        return (up, slope, season, *seasons[:-1]), None

    ngmp.scan(step, (*start, *seasons), y)


def gaussian_hmm(y, classes=3):
    """A hidden Markov model with Gaussian outcomes and everything unknown."""
    initial = ngmp.sample("initial", Dirichlet(np.ones(classes)))
    transition = ngmp.sample("transition", Dirichlet(np.ones((classes, classes)) + 4 * np.eye(classes)))
    means = ngmp.sample("means", Normal(np.zeros(classes), std=3.0))
    precisions = ngmp.sample("precisions", Gamma(2.0 * np.ones(classes), rate=1.0))

    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=ngmp.take(transition, z)))
        ngmp.sample("y", Normal(ngmp.take(means, z), precision=ngmp.take(precisions, z)), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=initial)), y)


def cases() -> list[CompileCase]:
    """All twelve."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((21, 1)), rng.integers(0, 2, (21, 3))], 1)
    trials = rng.integers(10, 60, 21)
    plates = {"x": x, "trials": trials, "y": rng.binomial(trials, 0.4)}
    county, floor = rng.integers(0, 20, 200), rng.integers(0, 2, 200).astype(float)
    homes = rng.standard_normal(20)[county] - 0.6 * floor + 0.7 * rng.standard_normal(200)
    walks = np.cumsum(0.3 * rng.standard_normal((60, 8)), 0) + 0.5 * rng.standard_normal((60, 8))
    series = np.cumsum(0.1 * rng.standard_normal(120)) + np.tile([1.0, -0.5, 0.3, -0.8], 30) + rng.standard_normal(120)
    states = np.repeat(rng.integers(0, 3, 40), 5)
    own = [
        CompileCase("rats", hard_models.rats, hard_models.growth(0)),
        CompileCase("seeds", seeds, plates),
        CompileCase("radon", radon, {"county": county, "floor": floor, "y": homes, "counties": 20}),
        CompileCase("panel", panel, {"y": walks}),
        CompileCase("structural, four variances", structural, {"y": series}),
        CompileCase("Gaussian HMM", gaussian_hmm, {"y": 3.0 * states + rng.standard_normal(200)}),
    ]
    known = {case.name: case for case in (*accuracy_models.cases(), *accuracy_structures.cases())}
    names = ("t, df unknown", "measurement error", "ordinal", "two factors", "2PL", "eight schools")
    return own + [CompileCase(name, known[name].model, known[name].inputs) for name in names]
