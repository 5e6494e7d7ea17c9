r"""Returns whose spread changes: $r_k \sim N(0, e^{-s_k})$ or $N(0, e^{h_k})$, with a hidden walk of s or h."""

from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, StudentT, Uniform, exp

Mask = Bool[Array, " n"] | None


def stochastic_volatility(r: Float[Array, " n"], mask: Mask = None, sigma2: float = 0.05) -> None:
    r"""`s0` () and `s` (n,), Gaussian log-precisions; the volatility is exp(-s/2).

    $$ s_0 \sim N(0, 10), \quad s_k \mid s_{k-1} \sim N(s_{k-1}, \sigma^2), \quad r_k \mid s_k \sim N(0, e^{-s_k}) $$
    """
    s0 = ngmp.sample("s0", Normal(0.0, variance=10.0))

    def step(s, x):
        r_k, seen = x
        s = ngmp.sample("s", Normal(s, variance=sigma2))
        ngmp.sample("r", Normal(0.0, precision=exp(s)), obs=r_k, mask=seen)
        return s, None

    ngmp.scan(step, s0, (r, mask))


def reverting_volatility(r: Float[Array, " n"], mask: Mask = None, std: float = 0.3) -> None:
    r"""Log-variances that return: $h_k \sim N(\phi h_{k-1} + (1 - \phi) \mu, \sigma^2)$, $\phi \sim U(0, 1)$,
    $\mu \sim N(0, 1)$. Compile with `integrate=("phi",)`.
    """
    phi = ngmp.sample("phi", Uniform(0.0, 1.0))
    mu = ngmp.sample("mu", Normal(0.0, std=1.0))

    def step(h, x):
        r_k, seen = x
        h = ngmp.sample("h", Normal(phi * h + (1.0 - phi) * mu, std=std))
        ngmp.sample("r", Normal(0.0, variance=exp(h)), obs=r_k, mask=seen)
        return h, None

    ngmp.scan(step, ngmp.sample("h0", Normal(mu, std=1.0)), (r, mask))


def heavy_volatility(r: Float[Array, " n"], mask: Mask = None, df: float = 5.0, sigma2: float = 0.05) -> None:
    r"""The same walk under heavy tails: $r_k \sim t_\nu(0, e^{h_k / 2})$, $h_k \sim N(h_{k-1}, \sigma^2)$."""

    def step(h, x):
        r_k, seen = x
        h = ngmp.sample("h", Normal(h, variance=sigma2))
        ngmp.sample("r", StudentT(df, 0.0, scale=exp(0.5 * h)), obs=r_k, mask=seen)
        return h, None

    ngmp.scan(step, ngmp.sample("h0", Normal(0.0, variance=10.0)), (r, mask))
