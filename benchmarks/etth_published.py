r"""What is published of the ETTh study: its rows, the stored precisions of PVMP, and its updates written out by hand.

The updates are those of q(w) q(z, gamma) q(tau) q(beta), all sites first, then z, gamma, w, tau, beta; a site moves by
`step` of the way to its projection. With $b = (y - f)^2/2 + E\beta$ the site of z is that of $l(z) = 3z/2 - b e^z$,

$$ \Lambda^* = b\, e^{m + v/2}, \qquad \xi^* = 3/2 + (m - 1) \Lambda^*, $$

and the one of gamma, which hears a log-normal of moments M, S and has the marginal Gamma(a, b),

$$ \Delta a^* = -1 + (M - \psi(a) + \log b)/S + a \kappa/S, \quad \Delta b^* = b \kappa / S, \quad
   \kappa = -\psi''(a) / (2 (a \psi'(a) - 1)). $$
"""

import os
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, polygamma

from ngmp_models import data, etth

CELLS = [(d, h) for d in etth.DATASETS for h in etth.HORIZONS]
ROWS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {  # NLL, RMSE of the cells, in their order
    "PGE, NGMP": (
        (0.3888, 0.3378, 0.2877, 0.3571, 0.9397, 0.8602, 0.8702, 0.9774),
        (0.3554, 0.3337, 0.3115, 0.3300, 0.5631, 0.5408, 0.5463, 0.6101),
    ),
    "PGE, PVMP": (
        (0.4120, 0.3701, 0.3141, 0.3763, 0.9342, 0.9237, 0.9612, 0.8699),
        (0.3583, 0.3386, 0.3105, 0.3347, 0.5882, 0.5798, 0.5940, 0.5669),
    ),
    "IVON, affine": (
        (10.2777, 3.5515e4, 429.0098, 168.4529, 5.9904e21, 304.6987, 3.7880e5, 3.2209e5),
        (0.3832, 0.3695, 0.3672, 0.5428, 0.5821, 0.5198, 0.5869, 0.8249),
    ),
    "IVON, ReLU": (
        (2216.8905, 2.2344e8, 58.6475, 94.2422, 1.9494e18, 1.1309e5, 2.0843e6, 1.1263e6),
        (0.3832, 0.3697, 0.3677, 0.5334, 0.5821, 0.5655, 0.5874, 0.6202),
    ),
    "Adam, affine": (
        (2.0553e25, 1.1050e22, 1.1159e22, 9.0836e11, 3.0584e23, 2.8850e23, 5.8244e19, 2.0804e19),
        (0.3836, 0.3699, 0.4152, 0.4639, 0.5821, 0.5655, 0.5190, 0.6201),
    ),
    "Adam, ReLU": (
        (2.2759e24, 1.2482e19, 2.4524e14, 1.5279e17, 1.1333e31, 7.0543e24, 1.4496e23, 4.6866e38),
        (0.3955, 0.3699, 0.4801, 0.4642, 0.5592, 0.5655, 0.5190, 0.6201),
    ),
}
BEST = [min(row[0][i] for row in ROWS.values()) for i in range(len(CELLS))]  # NLL

_STORED = {
    ("ETTh1", 96): ("4163653858683196987", "96aea697f867381b64c61b031a78d515aa3bd2687d1c8cf8db51a58128395ab0"),
    ("ETTh1", 192): ("9134792985848061259", "e28ebb28adc1e354e188888e3ebaab41b33323a12f81979baff5950889966ef4"),
    ("ETTh1", 336): ("8460652042859392515", "aadf543df76e8109b521ffba827e26de7897f6fd49a3422f2ef1298b41c6c4c9"),
    ("ETTh1", 720): ("10896275358620740533", "c1ac822cf1931859390ecf4cce2b79b1f6cd70131bd8397879f911d3560f03c0"),
    ("ETTh2", 96): ("12597102707306126308", "57b3fd78dc61d4cd437939b5c79d77f3020355b0ddc7696516859d76e5e5d285"),
    ("ETTh2", 192): ("15486108821046047225", "e2f0eb1eae42d6aca93a6f6b96e8eb8e842a734f8766fa4777c2cc22b16428a9"),
    ("ETTh2", 336): ("12474563808751874325", "0777506afe51343aab6e93a91b6a6d8186d1f0ef4b6b4fee8cb1576564a561b2"),
    ("ETTh2", 720): ("501651102939953676", "884ba6f90c3080783bb6bd1c0e211b715408ce1490d4992d7e84091f6ed98c75"),
}


def stored_precisions(dataset: str, horizon: int) -> np.ndarray:
    """E[gamma] (n_test, 7) as PVMP left it, from the results of the study; fetched once into NGMP_CACHE."""
    import h5py

    number, sha256 = _STORED[dataset, horizon]
    name = f"{dataset}_h{horizon}_OT_dynamic_{number}.jld2"
    origin = "github.com/biaslab/PrecisionGatedExperts (MIT), paper/results_vae_std/dynamic"
    address = (
        "https://raw.githubusercontent.com/biaslab/PrecisionGatedExperts/6c0a4832373b953dc6478aecb3ff1ec55934939d/"
    )
    file = data.DataFile(f"etth_pvmp/{name}", sha256, origin, f"{address}paper/results_vae_std/dynamic/{name}")
    folder = Path(os.environ.get("NGMP_CACHE", Path.home() / ".cache" / "ngmp_compiler"))
    path = folder / file.name
    if not path.is_file():
        path = data.download(file, folder)
    with h5py.File(path) as found:
        return np.asarray(found["γ_test"])


# -- the updates -------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """Of one expert; sites of z and gamma as (precision, weighted mean) and (change of shape, change of rate)."""

    w_mean: jax.Array
    w_covariance: jax.Array
    z_site: tuple[jax.Array, jax.Array]
    gamma_site: tuple[jax.Array, jax.Array]
    z: tuple[jax.Array, jax.Array]  # mean, variance
    gamma: tuple[jax.Array, jax.Array]  # shape, rate
    tau: tuple[jax.Array, jax.Array]
    beta: tuple[jax.Array, jax.Array]


def start(n: int, w_mean: jax.Array, w_variance: jax.Array) -> State:
    zero, one = jnp.zeros(n), jnp.ones(n)
    pair = lambda a, b: (jnp.asarray(a), jnp.asarray(b))  # noqa: E731
    return State(w_mean, jnp.diag(w_variance), (zero, zero), (zero, zero), (zero, one), (one, one),
                 pair(1.0, 1e-3), pair(1.0, 1e3))  # fmt: skip


def sweep(s: State, phi: jax.Array, half: jax.Array, w_mean: jax.Array, w_variance: jax.Array, step: float) -> State:
    """One sweep; `half` (n,) is half of the squared error of the forecast."""
    n, tau, rate = len(half), s.tau[0] / s.tau[1], half + s.beta[0] / s.beta[1]
    m, v = s.z
    precision = rate * jnp.exp(m + 0.5 * v)
    mean, variance = phi @ s.w_mean, 1.0 / tau
    a, b = s.gamma
    kappa = -polygamma(2, a) / (2.0 * (a * polygamma(1, a) - 1.0))
    shift = (-1.0 + (mean - digamma(a) + jnp.log(b) + a * kappa) / variance, b * kappa / variance)
    toward = lambda old, new: tuple(x + step * (y - x) for x, y in zip(old, new, strict=True))  # noqa: E731
    z_site = toward(s.z_site, (precision, 1.5 + (m - 1.0) * precision))
    gamma_site = toward(s.gamma_site, shift)
    v = 1.0 / (tau + z_site[0])
    m = v * (tau * mean + z_site[1])
    gamma = (1.5 + gamma_site[0], rate + gamma_site[1])
    covariance = jnp.linalg.inv(jnp.diag(1.0 / w_variance) + tau * phi.T @ phi)
    w = covariance @ (w_mean / w_variance + tau * phi.T @ m)
    square = v + (m - phi @ w) ** 2 + jnp.einsum("nd,de,ne->n", phi, covariance, phi)
    tau_q = (jnp.asarray(1.0 + 0.5 * n), 1e-3 + 0.5 * jnp.sum(square))
    beta_q = (jnp.asarray(1.0 + n), 1e3 + jnp.sum(gamma[0] / gamma[1]))
    return State(w, covariance, z_site, gamma_site, (m, v), gamma, tau_q, beta_q)


def run(phi, forecast, y, w_mean, w_variance, sweeps: int = 20, step: float = 0.2) -> State:
    """So many sweeps for one expert."""
    half = 0.5 * (y - forecast) ** 2
    body = lambda _, s: sweep(s, phi, half, w_mean, w_variance, step)  # noqa: E731
    return jax.lax.fori_loop(0, sweeps, body, start(len(y), w_mean, w_variance))
