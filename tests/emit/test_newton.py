"""Where joint edges start: steps toward the mode climb."""

import jax
import numpy as np
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, Normal


def tobit(x, y):
    a, b = (ngmp.sample(k, Normal(0.0, std=2.0)) for k in "ab")
    s = ngmp.sample("s", HalfNormal(std=1.0))
    ngmp.sample("y", Normal(a + b * x, std=s), obs=y, censored=-1 * (y <= 0))


def data(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=40)
    return x, np.maximum(0.3 + 0.8 * x + 0.7 * rng.normal(size=40), 0)


def moments(x, y):
    """Of a, b and s, on a grid."""
    grids = np.linspace(-0.7, 1.3, 61), np.linspace(-0.2, 1.8, 61), np.linspace(0.2, 2.0, 61)
    a, b, s = np.meshgrid(*grids, indexing="ij")
    log = stats.norm.logpdf(a, 0, 2) + stats.norm.logpdf(b, 0, 2) - 0.5 * s**2
    for u, v in zip(x, y, strict=True):
        m = a + b * u
        log += stats.norm.logpdf(v, m, s) if v > 0 else stats.norm.logcdf(-m / s)
    w = np.exp(log - log.max())
    w /= w.sum()
    return [(np.sum(w * z), np.sqrt(np.sum(w * z**2) - np.sum(w * z) ** 2)) for z in (a, b, s)]


def test_censored_regressions_with_an_unknown_scale_do_not_run_off():
    """Newton's method from a broad prior took scales to e^-14, and no sweep came back from there."""
    x, y = map(np.stack, zip(*map(data, (12, 21, 22, 35)), strict=True))
    program = ngmp.compile(tobit)

    def run(x, y):
        post = program(x=x, y=y)
        return post.converged, {k: (post[k].mean, post[k].std) for k in "abs"}

    converged, found = jax.jit(jax.vmap(run))(x, y)
    assert converged.all()
    for name, (mean, std) in zip("abs", moments(x[0], y[0]), strict=True):
        got = found[name][0][0], found[name][1][0]
        assert abs(got[0] - mean) < 0.1 * std and 0.9 < got[1] / std < 1.1
