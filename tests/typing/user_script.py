"""What a user writes, with types: checked by pyright (strict) and mypy, and run."""

import jax
import numpy as np
from jax import Array

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, Posterior, Prediction, Program, exp


def chain(y: Array, step_variance: float = 0.1) -> None:
    start = ngmp.sample("z0", Normal(0.0, variance=1.0))

    def step(z: ngmp.Variable, y_k: Array) -> tuple[ngmp.Variable, None]:
        z = ngmp.sample("z", Normal(z, variance=step_variance))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k)
        return z, None

    ngmp.scan(step, start, y)


def level(y: Array) -> None:
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(0.0, precision=tau), obs=y)


program: Program = ngmp.compile(chain, max_sweeps=100)
y = np.asarray([1.0, 0.0, 2.0])
post: Posterior = program(y=y)
mean: Array = post["z"].mean
deviation: Array = post["z"].std
low: Array = post["z"].quantile(0.05)
draws: Array = post["z"].sample(jax.random.key(0), (10,))
energy: float = float(post.free_energy)
converged: bool = bool(post.converged)
prediction: Prediction = program.predict(post, "y", y=y)
rate: Array = prediction.mean
noise: Posterior = ngmp.compile(level)(y=y)
spread: Array = noise["tau"].variance
text: str = program.lower(y=y).describe() + post.reason
