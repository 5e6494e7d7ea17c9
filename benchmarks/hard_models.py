"""Models on which message passing used to fail: declarations, and simulated data by seed, for `hard.py`.

Each case is a model function, its inputs by seed and the options of `ngmp.compile`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Gamma, MvNormal, NegativeBinomial, Normal, Poisson, StudentT, dot, exp

# -- random walks that drift by decades -------------------------------------------------------------------------------


def walk_volatility(y, step=0.3, mean=0.0):
    """Log-variance a random walk: y_k ~ N(0, e^{h_k})."""

    def each(h, y_k):
        h = ngmp.sample("h", Normal(h, std=step))
        ngmp.sample("y", Normal(0.0, variance=exp(h)), obs=y_k)
        return h, None

    ngmp.scan(each, ngmp.sample("h0", Normal(mean, std=3.0)), y)


def walk(name: str, observe: Any) -> Any:
    """A random walk from N(0, 9), with a likelihood of every step."""

    def model(y, step=0.3):
        def each(z, y_k):
            z = ngmp.sample("z", Normal(z, std=step))
            ngmp.sample("y", observe(z), obs=y_k)
            return z, None

        ngmp.scan(each, ngmp.sample("z0", Normal(0.0, std=3.0)), y)

    model.__name__ = name
    return model


def drift(seed: int, step: float, n: int = 3288) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return np.cumsum(step * rng.standard_normal(n)), rng


def volatile(seed: int, step: float, shift: float = 0.0) -> dict[str, Any]:
    h, rng = drift(seed, step)
    return {"y": np.exp(0.5 * (h + shift)) * rng.standard_normal(len(h)), "step": step}


def counts(seed: int, step: float = 0.3) -> dict[str, Any]:
    z, rng = drift(seed, step)
    return {"y": rng.poisson(np.exp(np.minimum(z, 20.0))).astype(float), "step": step}


def over_dispersed(seed: int, step: float = 0.3) -> dict[str, Any]:
    z, rng = drift(seed, step)
    rate = np.exp(np.minimum(z, 20.0)) * rng.gamma(3.0, 1 / 3.0, len(z))
    return {"y": rng.poisson(rate).astype(float), "step": step}


def hits(seed: int, step: float = 0.3) -> dict[str, Any]:
    z, rng = drift(seed, step)
    return {"y": rng.binomial(20, 1 / (1 + np.exp(-z))).astype(float), "step": step}


def outliers(seed: int, step: float = 0.3) -> dict[str, Any]:
    z, rng = drift(seed, step)
    return {"y": z + rng.standard_t(3, len(z)), "step": step}


# -- regressions by any log-density -----------------------------------------------------------------------------------


def gamma_regression(x, y, std=5.0):
    """y ~ Gamma(3, rate = 3 e^{-f}), f = dot(x, w), by its log-density."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[-1]), covariance=std**2))
    ngmp.factor("y", lambda f, y: 2 * jnp.log(y) - 3 * y * jnp.exp(-f) - 3 * f, dot(x, w), y)


def zero_inflated(x, y, std=5.0):
    """y is 0 with probability 0.3, else Poisson(e^f)."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[-1]), covariance=std**2))

    def log_density(f, y):
        count = y * f - jnp.exp(f) - gammaln(y + 1)
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(0.3), jnp.log(0.7) - jnp.exp(f)), jnp.log(0.7) + count)

    ngmp.factor("y", log_density, dot(x, w), y)


def student_scale(x, y):
    """y ~ t_4(dot(x, w), e^s) with an unknown log-scale."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[-1]), covariance=25.0))
    s = ngmp.sample("s", Normal(0.0, std=2.0))
    ngmp.factor("y", lambda f, s, y: -s - 2.5 * jnp.log1p(((y - f) * jnp.exp(-s)) ** 2 / 4), dot(x, w), s, y)


def design(seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return x, x @ np.array([1.0, 0.8, -0.5]), rng


def positive(seed: int) -> dict[str, Any]:
    x, f, rng = design(seed)
    return {"x": x, "y": rng.gamma(3.0, np.exp(f) / 3)}


def inflated(seed: int) -> dict[str, Any]:
    x, f, rng = design(seed)
    return {"x": x, "y": np.where(rng.random(len(f)) < 0.3, 0.0, rng.poisson(np.exp(f)))}


def heavy(seed: int) -> dict[str, Any]:
    x, f, rng = design(seed)
    return {"x": x, "y": f + 0.5 * rng.standard_t(4, len(f))}


# -- nonlinear dynamics, skills, factors ------------------------------------------------------------------------------


def pendulum(y, dt=0.05):
    """Angle and speed; the speed changes by -9.8 sin(angle) dt; the sine of the angle is seen under noise."""
    angle, speed = ngmp.sample("angle0", Normal(1.5, std=0.5)), ngmp.sample("speed0", Normal(0.0, std=0.5))

    def each(state, y_k):
        angle, speed = state
        pull = ngmp.apply(jnp.sin, angle)
        angle, speed = (
            ngmp.sample("angle", Normal(angle + dt * speed, std=0.01)),
            ngmp.sample("speed", Normal(speed - 9.8 * dt * pull, std=0.1)),
        )
        ngmp.sample("y", Normal(ngmp.apply(jnp.sin, angle), std=0.3), obs=y_k)
        return (angle, speed), None

    ngmp.scan(each, (angle, speed), y)


def swings(seed: int, n: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    angle, speed, seen = 1.5, 0.0, []
    for _ in range(n):
        angle, speed = angle + 0.05 * speed, speed - 9.8 * 0.05 * np.sin(angle) + 0.1 * rng.standard_normal()
        seen.append(np.sin(angle) + 0.3 * rng.standard_normal())
    return {"y": np.array(seen)}


GAMES = np.random.default_rng(5).integers(0, 20, (200, 2))
GAMES = GAMES[GAMES[:, 0] != GAMES[:, 1]]


def true_skill(won, hard=True):
    """Twenty players; a game is won by whoever performs better, skill plus unit noise."""
    skill = ngmp.sample("skill", Normal(jnp.zeros(20), std=3.0))
    gap = skill[GAMES[:, 0]] - skill[GAMES[:, 1]]
    if hard:
        lead = ngmp.sample("lead", Normal(gap, variance=2.0))
        ngmp.factor("won", lambda d, w: jnp.where(d * w > 0, 0.0, -jnp.inf), lead, won)
    else:
        ngmp.factor("won", lambda d, w: norm.logcdf(d * w / jnp.sqrt(2.0)), gap, won)


def games(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    skill = 3 * rng.standard_normal(20)
    lead = skill[GAMES[:, 0]] - skill[GAMES[:, 1]] + np.sqrt(2.0) * rng.standard_normal(len(GAMES))
    return {"won": np.where(lead > 0, 1.0, -1.0)}


def two_factors(y):
    """y_{nk} ~ N(z1_n a_k + z2_n b_k, 0.25)."""
    n, k = y.shape
    z1, z2 = (ngmp.sample(name, Normal(jnp.zeros((n, 1)), variance=1.0)) for name in ("z1", "z2"))
    a, b = (ngmp.sample(name, Normal(jnp.zeros(k), variance=1.0)) for name in ("a", "b"))
    rest = ngmp.sample("rest", Normal(z2 * b, variance=0.05))
    ngmp.sample("y", Normal(z1 * a + rest, variance=0.2), obs=y)


def loadings(seed: int, n: int = 30, k: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 2)) @ rng.normal(size=(2, k)) + 0.5 * rng.normal(size=(n, k))
    return {"y": y}


# -- growth curves and a level ----------------------------------------------------------------------------------------


def rats(y, x):
    """Growth curves: a line for every animal, with unknown population means and precisions."""
    mu_a, mu_b = ngmp.sample("mu_a", Normal(240.0, std=100.0)), ngmp.sample("mu_b", Normal(6.0, std=10.0))
    tau_a, tau_b = ngmp.sample("tau_a", Gamma(1.0, rate=100.0)), ngmp.sample("tau_b", Gamma(1.0, rate=0.1))
    tau = ngmp.sample("tau", Gamma(1.0, rate=10.0))
    shape = (y.shape[0], 1)
    a = ngmp.sample("a", Normal(mu_a + jnp.zeros(shape), precision=tau_a))
    b = ngmp.sample("b", Normal(mu_b + jnp.zeros(shape), precision=tau_b))
    ngmp.sample("y", Normal(a + b * x, precision=tau), obs=y)


def growth(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = np.array([8.0, 15.0, 22.0, 29.0, 36.0]) - 22.0
    a, b = 242 + 14 * rng.standard_normal((30, 1)), 6.2 + 0.5 * rng.standard_normal((30, 1))
    return {"y": a + b * x + 6 * rng.standard_normal((30, 5)), "x": x}


def level(y):
    """A local level with two unknown precisions."""
    q, r = ngmp.sample("q", Gamma(1.0, rate=1000.0)), ngmp.sample("r", Gamma(1.0, rate=10000.0))

    def each(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=q))
        ngmp.sample("y", Normal(z, precision=r), obs=y_k)
        return z, None

    ngmp.scan(each, ngmp.sample("z0", Normal(1000.0, std=500.0)), y)


def nile(seed: int, n: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"y": 1000 + np.cumsum(38 * rng.standard_normal(n)) + 123 * rng.standard_normal(n)}


class HardCase(NamedTuple):
    """A model, its inputs by seed, the options of `compile`, and how many seeds are run."""

    model: Any
    inputs: Any
    options: dict[str, Any] = {}
    seeds: int = 20
    restarts: int = 0


TRANSFORMED = {
    "Poisson": (walk("poisson_walk", lambda z: Poisson(exp(z))), counts),
    "negative binomial": (
        walk("nb_walk", lambda z: NegativeBinomial(mean=exp(z), dispersion=3.0)), over_dispersed,
    ),
    "binomial": (walk("binomial_walk", lambda z: Binomial(20.0, logits=z)), hits),
    "Student-t": (walk("t_walk", lambda z: StudentT(3.0, z, scale=1.0)), outliers),
}  # fmt: skip

CASES = {
    "random-walk volatility, step 0.15": HardCase(walk_volatility, lambda s: volatile(s, 0.15)),
    "random-walk volatility, step 0.3": HardCase(walk_volatility, lambda s: volatile(s, 0.3)),
    "the same, prior mean off by 9": HardCase(walk_volatility, lambda s: volatile(s, 0.15, 9.0)),
    **{f"{name} walk": HardCase(model, data) for name, (model, data) in TRANSFORMED.items()},
    "Gamma regression, prior sd 5": HardCase(gamma_regression, positive),
    "zero-inflated Poisson, prior sd 5": HardCase(zero_inflated, inflated),
    "t with unknown scale": HardCase(student_scale, heavy),
    "pendulum": HardCase(pendulum, swings),
    "TrueSkill, hard, EP": HardCase(true_skill, games, {"method": ngmp.EP()}),
    "TrueSkill, probit, EP": HardCase(true_skill, lambda s: {**games(s), "hard": False}, {"method": ngmp.EP()}),
    "TrueSkill, probit, NGMP": HardCase(true_skill, lambda s: {**games(s), "hard": False}),
    "two-factor analysis": HardCase(two_factors, loadings, restarts=4),
    "rats": HardCase(rats, growth),
    "rats, EP": HardCase(rats, growth, {"method": ngmp.EP()}),
    "level": HardCase(level, nile),
    "level, EP": HardCase(level, nile, {"method": ngmp.EP()}),
    "level, VMP": HardCase(level, nile, {"method": ngmp.VMP()}),
    "level, structured VMP": HardCase(level, nile, {"method": ngmp.StructuredVMP()}),
}
