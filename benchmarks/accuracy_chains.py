"""Chains with unknown coefficients and scales, each as a program of ours and of NumPyro."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, exp

STEPS = 100


def normals(numpyro: Any, dist: Any, name: str, shape: Any, std: Any = 1.0, mean: Any = 0.0) -> Any:
    return numpyro.sample(name, dist.Normal(mean + jnp.zeros(shape), std).to_event(len(np.atleast_1d(shape))))


def ar1(y):
    """A latent autoregression of unknown coefficient, seen with noise."""
    phi, x = ngmp.sample("phi", Normal(0.5, std=0.5)), ngmp.sample("x0", Normal(0.0, std=1.0))

    def step(x, y_k):
        x = ngmp.sample("x", Normal(phi * x, std=0.5))
        ngmp.sample("y", Normal(x, std=0.4), obs=y_k)
        return x, None

    ngmp.scan(step, x, y)


def ref_ar1(numpyro, dist, y):
    phi, x0 = numpyro.sample("phi", dist.Normal(0.5, 0.5)), numpyro.sample("x0", dist.Normal(0.0, 1.0))
    e = normals(numpyro, dist, "e", len(y), 0.5)
    x = numpyro.deterministic("x", jax.lax.scan(lambda x, e: (phi * x + e,) * 2, x0, e)[1])
    numpyro.sample("y", dist.Normal(x, 0.4), obs=y)


def ar2(y):
    """The same of order two: two products in a mean."""
    phi = ngmp.sample("phi", Normal(np.array([0.5, 0.0]), std=0.5))
    start = ngmp.sample("x0", Normal(np.zeros(2), std=1.0))

    def step(carry, y_k):
        before, last = carry
        x = ngmp.sample("x", Normal(phi[0] * last + phi[1] * before, std=0.5))
        ngmp.sample("y", Normal(x, std=0.4), obs=y_k)
        return (last, x), None

    ngmp.scan(step, (start[0], start[1]), y)


def ref_ar2(numpyro, dist, y):
    phi, x0 = normals(numpyro, dist, "phi", 2, 0.5, jnp.array([0.5, 0.0])), normals(numpyro, dist, "x0", 2)
    e = normals(numpyro, dist, "e", len(y), 0.5)

    def step(carry, e):
        x = phi[0] * carry[1] + phi[1] * carry[0] + e
        return (carry[1], x), x

    x = numpyro.deterministic("x", jax.lax.scan(step, (x0[0], x0[1]), e)[1])
    numpyro.sample("y", dist.Normal(x, 0.4), obs=y)


def var1(y):
    """A latent vector autoregression with an unknown matrix."""
    a = ngmp.sample("A", MvNormal(np.zeros((2, 2)), covariance=0.5))

    def step(x, y_k):
        x = ngmp.sample("x", MvNormal(a @ x, covariance=0.25))
        ngmp.sample("y", MvNormal(x, covariance=0.16), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0)), y)


def ref_var1(numpyro, dist, y):
    a, x0 = normals(numpyro, dist, "A", (2, 2), 0.5**0.5), normals(numpyro, dist, "x0", 2)
    e = normals(numpyro, dist, "e", y.shape, 0.5)
    x = numpyro.deterministic("x", jax.lax.scan(lambda x, e: (a @ x + e,) * 2, x0, e)[1])
    numpyro.sample("y", dist.Normal(x, 0.4), obs=y)


def volatility(y):
    """h_k = mu + phi (h_{k-1} - mu) + e^{ls} noise, y_k ~ N(0, e^{h_k})."""
    mu, phi = ngmp.sample("mu", Normal(0.0, std=1.0)), ngmp.sample("phi", Normal(0.9, std=0.1))
    ls = ngmp.sample("ls", Normal(-1.0, std=0.5))

    def step(h, y_k):
        h = ngmp.sample("h", Normal(mu + phi * h - phi * mu, std=exp(ls)))
        ngmp.sample("y", Normal(0.0, variance=exp(h)), obs=y_k)
        return h, None

    ngmp.scan(step, ngmp.sample("h0", Normal(0.0, std=1.0)), y)


def ref_volatility(numpyro, dist, y):
    mu, phi = numpyro.sample("mu", dist.Normal(0.0, 1.0)), numpyro.sample("phi", dist.Normal(0.9, 0.1))
    ls, h0 = numpyro.sample("ls", dist.Normal(-1.0, 0.5)), numpyro.sample("h0", dist.Normal(0.0, 1.0))
    e = normals(numpyro, dist, "e", len(y))

    def step(h, e):
        h = mu + phi * (h - mu) + jnp.exp(ls) * e
        return h, h

    h = numpyro.deterministic("h", jax.lax.scan(step, h0, e)[1])
    numpyro.sample("y", dist.Normal(0.0, jnp.exp(0.5 * h)), obs=y)
