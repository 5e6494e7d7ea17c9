r"""A hidden layer of neurons, factor by factor: softdot, activation, softdot, a sum, an intercept, noise.

For observation n and neuron j, with features $f_n$,

$$ x_{nj} \sim N(f_n^T w_j, \gamma^{-1}), \quad h_{nj} = x_{nj} + \tfrac\rho\omega \sin \omega x_{nj}, \quad
   u_{nj} \sim N(v_j h_{nj}, \delta^{-1}), \quad \mu_n \sim N(\textstyle\sum_j u_{nj} + b, \tau^{-1}), \quad
   y_n \sim N(\mu_n, s^2). $$

A softdot is $N(a^T x, 1/\gamma)$ with an unknown precision: the first one, of data and weights, is one per neuron and
observation; the second, of two random scalars, too. All $w_j$, $v_j$, $b$ and the three precisions have priors.

The layer is declared as Python loops over observations and neurons, from a function of one neuron; the compiler rolls
the loops. `NEURON_RULES` are the rules it is meant to be compiled with: both kinds of softdot and the noise send
structured VMP messages, $q(x, w) q(\gamma)$ and so on, all in closed form, and the activations NGMP messages.
"""

from typing import Any

from jaxtyping import Array, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, StructuredVMP, dot, residual_sine

NEURON_RULES = {"*/x": StructuredVMP(), "*/u": StructuredVMP(), "mu": StructuredVMP()}


def neuron(features: Any, w: Any, v: Any, gamma: Any, delta: Any, rho: float, omega: float) -> Any:
    """One neuron at one observation: `x`, `h` and `u`; returns u."""
    x = ngmp.sample("x", Normal(dot(features, w), precision=gamma))
    h = ngmp.apply(residual_sine, x, rho, omega, name="h")
    return ngmp.sample("u", Normal(h * v, precision=delta))


def neurons(
    features: Float[Array, "n d"],
    y: Float[Array, " n"],
    weights: Float[Array, "k d"],
    gains: Float[Array, " k"],
    variance: float = 1.0,
    shape: float = 4.0,
    rate: float = 0.1,
    rho: float = 0.8,
    omega: float = 2.0,
    noise: float = 0.01,
) -> None:
    """`neuron<j>/w` (), MvGaussian, and `neuron<j>/v` (), Gaussian; `neuron<j>/x`, `neuron<j>/h`, `neuron<j>/u` and
    `mu` (n,), Gaussian; `b` (), Gaussian; `gamma`, `delta`, `tau` (), Gamma.

    Neurons are exchangeable, so their prior means `weights` and `gains` must differ.
    """
    gamma, delta, tau = (ngmp.sample(name, Gamma(shape, rate=rate)) for name in ("gamma", "delta", "tau"))
    b = ngmp.sample("b", Normal(0.0, variance=variance))
    layer = []
    for j in range(len(gains)):
        with ngmp.scope(f"neuron{j}"):
            w = ngmp.sample("w", MvNormal(weights[j], covariance=variance))
            layer.append((w, ngmp.sample("v", Normal(gains[j], variance=variance))))
    for n in range(len(y)):
        total = b
        for j, (w, v) in enumerate(layer):
            with ngmp.scope(f"neuron{j}"):
                total = total + neuron(features[n], w, v, gamma, delta, rho, omega)
        mu = ngmp.sample("mu", Normal(total, precision=tau))
        ngmp.sample("y", Normal(mu, variance=noise), obs=y[n])
