"""Peers of `speed.py` that take any model: NumPyro, BlackJAX, BayesPy; one function a contestant, as in `speed_peers`.

Numbers of steps and samples are fixed. More steps make SVI only slowly better: on the short Poisson chain the rms error
of a mean-field guide hardly changes, that of a full covariance halves from 2000 to 5000 steps.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from speed_peers import Call

SVI_STEPS, WARMUP, SAMPLES = 2000, 500, 1000


def _log_chain(z: Any, y: Any, sigma2: Any) -> Any:
    """The log-density of the Poisson chain, z0 integrated out, all steps at once."""
    steps = z[1:] - z[:-1]
    return jnp.sum(y * z - jnp.exp(z)) - 0.5 * z[0] ** 2 / (10.0 + sigma2) - 0.5 * jnp.sum(steps**2) / sigma2


def _numpyro_chain(y: Any, sigma2: Any) -> None:
    import numpyro
    from numpyro.distributions import Normal

    z = numpyro.sample("z", Normal(jnp.zeros_like(y)).mask(False))  # a flat density on R^K, its prior is in the factor
    numpyro.factor("chain", _log_chain(z, y, sigma2))


def _fit(model: Callable, guide: str, start: dict[str, Any], *data: Any) -> Callable[[], dict[str, Any]]:
    """The parameters of NumPyro's guide of this name after `SVI_STEPS` steps of Adam, rate 0.05 to 0 by a cosine."""
    from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_value

    family = getattr(autoguide, guide)(model, init_loc_fn=init_to_value(values=start))
    svi = SVI(model, family, optax.adam(optax.cosine_decay_schedule(0.05, SVI_STEPS)), Trace_ELBO())
    svi.init(jax.random.key(0), *data)  # the guide remembers shapes: not from inside jit
    fit = jax.jit(lambda *data: svi.run(jax.random.key(0), SVI_STEPS, *data, progress_bar=False).params)
    return lambda: fit(*data)


def numpyro_poisson_svi(y: Any, sigma2: Any, guide: str) -> Call:
    """SVI with a guide "AutoNormal" or "AutoMultivariateNormal"."""
    fit = _fit(_numpyro_chain, guide, {"z": jnp.log(y + 0.5)}, y, sigma2)

    def run() -> dict[str, Any]:
        params = fit()
        if guide == "AutoNormal":
            return {"mean": params["z_auto_loc"], "variance": params["z_auto_scale"] ** 2}
        return {"mean": params["auto_loc"], "variance": jnp.sum(params["auto_scale_tril"] ** 2, -1)}

    return run


def numpyro_poisson_nuts(y: Any, sigma2: Any) -> Call:
    """One chain of NUTS: `WARMUP` steps of adaptation, `SAMPLES` samples."""
    from numpyro.infer import MCMC, NUTS, init_to_value

    kernel = NUTS(_numpyro_chain, init_strategy=init_to_value(values={"z": jnp.log(y + 0.5)}))
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=SAMPLES, progress_bar=False)

    @jax.jit  # without it every run traces the model again, which takes ten times as long as sampling
    def sample(y: Any, sigma2: Any) -> dict[str, Any]:
        mcmc.run(jax.random.key(0), y, sigma2)
        z = mcmc.get_samples()["z"]
        return {"mean": jnp.mean(z, 0), "variance": jnp.var(z, 0)}

    return lambda: sample(y, sigma2)


def blackjax_poisson_nuts(y: Any, sigma2: Any) -> Call:
    """The same of BlackJAX, in one jitted function."""
    import blackjax

    @jax.jit
    def sample(y: Any, sigma2: Any) -> dict[str, Any]:
        def log_density(z: Any) -> Any:
            return _log_chain(z, y, sigma2)

        warm, draw = jax.random.split(jax.random.key(0))
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = adaptation.run(warm, jnp.log(y + 0.5), num_steps=WARMUP)
        step = blackjax.nuts(log_density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, _ = step(key, state)
            return state, state.position

        _, z = jax.lax.scan(one, state, jax.random.split(draw, SAMPLES))
        return {"mean": jnp.mean(z, 0), "variance": jnp.var(z, 0)}

    return lambda: sample(y, sigma2)


def bayespy_mean_precision(y: Any) -> Call:
    """VMP, q(x) q(tau), built and run until the bound changes by less than 1e-10 of itself."""
    from bayespy.inference import VB
    from bayespy.nodes import Gamma, GaussianARD

    data = np.asarray(y, float)

    def run() -> dict[str, Any]:
        x, tau = GaussianARD(0.0, 1 / 25.0), Gamma(2.0, 1.0)
        seen = GaussianARD(x, tau, plates=data.shape)
        seen.observe(data)
        VB(seen, x, tau).update(repeat=100, tol=1e-10, verbose=False)
        mean, square = x.get_moments()
        rate, shape = -tau.phi[0], tau.phi[1]
        return {"mean": mean, "variance": square - mean**2, "concentration": shape, "rate": rate}

    return run


def numpyro_mean_precision(y: Any) -> Call:
    """SVI with AutoNormal: Gaussian in x and in log tau."""
    import numpyro
    from numpyro import distributions as dist

    def model(y: Any) -> None:
        x, tau = numpyro.sample("x", dist.Normal(0.0, 5.0)), numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Normal(x, tau**-0.5), obs=y)

    fit = _fit(model, "AutoNormal", {"x": jnp.mean(y), "tau": 1 / jnp.var(y)}, y)

    def run() -> dict[str, Any]:
        params = fit()
        # A log-normal tau by the Gamma of the same mean and variance.
        spread = params["tau_auto_scale"] ** 2
        shape = 1 / jnp.expm1(spread)
        rate = shape / jnp.exp(params["tau_auto_loc"] + 0.5 * spread)
        return {"mean": params["x_auto_loc"], "variance": params["x_auto_scale"] ** 2, "concentration": shape,
                "rate": rate}  # fmt: skip

    return run


def numpyro_heteroscedastic(phi: Any, psi: Any, y: Any, c_top: Any) -> Call:
    """SVI with AutoNormal over all weights and log-precisions."""
    import numpyro
    from numpyro import distributions as dist

    def model(phi: Any, psi: Any, y: Any, c_top: Any) -> None:
        v = numpyro.sample("v", dist.Normal(0.0, 2.0).expand([phi.shape[1]]))
        w = numpyro.sample("w", dist.Normal(0.0, 1.6).expand([psi.shape[1]]))
        s = numpyro.sample("s", dist.Normal(psi @ w, c_top**-0.5))
        numpyro.sample("y", dist.Normal(phi @ v, jnp.exp(-0.5 * s)), obs=y)

    zeros = {"v": jnp.zeros(phi.shape[1], y.dtype), "w": jnp.zeros(psi.shape[1], y.dtype), "s": jnp.zeros_like(y)}
    fit = _fit(model, "AutoNormal", zeros, phi, psi, y, c_top)

    def run() -> dict[str, Any]:
        params = fit()
        return {"v": params["v_auto_loc"], "w": params["w_auto_loc"], "mean": params["s_auto_loc"],
                "variance": params["s_auto_scale"] ** 2}  # fmt: skip

    return run
