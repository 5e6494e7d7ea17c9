"""Counts on a lattice for `integrated.py`: intrinsic autoregressions (ICAR), with and without noise of each cell (BYM).

Neighbours differ by a normal with scale s; the density of the field is that of rank n - 1, so that the powers of s
which the pairs have too many are taken back. A weak normal prior of every cell makes the field proper.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from integrated_cases import Case

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, Normal, Poisson, exp


def counts(m: int, noise: float) -> np.ndarray:
    rng = np.random.default_rng(17)
    a, b = np.meshgrid(np.linspace(-1, 1, m), np.linspace(-1, 1, m))
    field = np.sin(2 * a) * np.cos(2 * b) + noise * rng.normal(size=(m, m))
    return rng.poisson(np.exp(1.0 + field)).astype(float)


def icar(m: int) -> Case:
    pairs, surplus = np.zeros((m, m - 1)), 2 * m * (m - 1) - (m**2 - 1)

    def model(y):
        s = ngmp.sample("s", HalfNormal(std=1.0))
        mu = ngmp.sample("mu", Normal(0.0, std=2.0))
        x = ngmp.sample("x", Normal(np.zeros((m, m)), std=2.0))
        ngmp.sample("right", Normal(x[:, 1:] - x[:, :-1], std=s), obs=pairs)
        ngmp.sample("down", Normal(x[1:] - x[:-1], std=s), obs=pairs.T)
        ngmp.factor("rank", lambda s: surplus * jnp.log(s), s)
        ngmp.sample("y", Poisson(exp(x + mu)), obs=y)

    return Case(f"ICAR counts, {m} x {m}", model, {"y": counts(m, 0.0)}, {"s": pairs}, None, (), _everything(m, False))


def bym(m: int) -> Case:
    pairs, surplus = np.zeros((m, m - 1)), 2 * m * (m - 1) - (m**2 - 1)

    def model(y):
        s, r = ngmp.sample("s", HalfNormal(std=1.0)), ngmp.sample("r", HalfNormal(std=1.0))
        mu = ngmp.sample("mu", Normal(0.0, std=2.0))
        x = ngmp.sample("x", Normal(np.zeros((m, m)), std=2.0))
        ngmp.sample("right", Normal(x[:, 1:] - x[:, :-1], std=s), obs=pairs)
        ngmp.sample("down", Normal(x[1:] - x[:-1], std=s), obs=pairs.T)
        ngmp.factor("rank", lambda s: surplus * jnp.log(s), s)
        f = ngmp.sample("f", Normal(x + mu, std=r))
        ngmp.sample("y", Poisson(exp(f)), obs=y)

    grid = {"s": pairs, "r": pairs}
    return Case(f"BYM counts, {m} x {m}", model, {"y": counts(m, 0.4)}, grid, None, (), _everything(m, True))


def _everything(m: int, noisy: bool) -> Any:
    def model(y):
        import numpyro
        import numpyro.distributions as dist

        s, mu = numpyro.sample("s", dist.HalfNormal(1.0)), numpyro.sample("mu", dist.Normal(0, 2.0))
        x = s * numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_matrix, (), (m, m)))
        squares = jnp.sum((x[:, 1:] - x[:, :-1]) ** 2) + jnp.sum((x[1:] - x[:-1]) ** 2)
        # In z = x / s, the field has n of the n - 1 powers of s.
        numpyro.factor("x", -0.5 * squares / s**2 - 0.125 * jnp.sum(x**2) + jnp.log(s))
        f = x + mu
        if noisy:
            r = numpyro.sample("r", dist.HalfNormal(1.0))
            f = f + r * numpyro.sample("e", dist.Normal(0, 1).expand([m, m]))
        numpyro.sample("y", dist.Poisson(jnp.exp(f)), obs=y)

    return model


def lattice() -> list[Case]:
    """Both, 20 x 20 and 10 x 10."""
    return [icar(20), bym(10)]
