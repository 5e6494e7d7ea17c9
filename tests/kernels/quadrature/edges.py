"""Edges and rules on which projections are tested."""

import jax
import jax.numpy as jnp

from ngmp_kernels.families import Bernoulli, Beta, Categorical, Gamma, Gaussian
from ngmp_kernels.quadrature.projection import (
    Delta,
    GaussHermite,
    LogTrapezoid,
    Quadrature,
    Unscented,
    expectation,
    nodes,
    tangent_projection,
)

FAST_COMPILE = {"xla_backend_optimization_level": 0}
SHAPES = (0.3, 1.0, 2.5, 40.0, 1e3, 1e6)

RULES = {
    "default": Quadrature(),
    "hermite": GaussHermite(6),
    "trapezoid": LogTrapezoid(21),
    "unscented": Unscented(),
    "delta": Delta(),
}

# family -> (a batch of marginals, natural parameters of an in-family message)
EDGES = {
    "gaussian": (
        lambda: Gaussian.from_mean_variance(jnp.array([-2.0, 0.0, 30.0]), jnp.array([0.1, 1.0, 4.0])),
        (0.7, -0.3),
    ),
    "gamma": (lambda: Gamma.from_concentration_rate(jnp.array(SHAPES), jnp.array(SHAPES) * 0.8), (0.5, -0.5)),
    "beta": (lambda: Beta.from_ab(jnp.array([0.4, 1.0, 3.0, 900.0]), jnp.array([0.6, 5.0, 2.0, 300.0])), (1.0, 2.5)),
    "bernoulli": (lambda: Bernoulli.from_probs(jnp.array([0.01, 0.5, 0.8])), (0.7,)),
    "categorical": (lambda: Categorical.from_probs(jnp.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])), ([0.4, -0.9, 0.5],)),
}


def both(q, log_message, rule=None):
    """The projection and the expectation in one program."""
    rule = Quadrature() if rule is None else rule

    def run(q):
        return tangent_projection(q, log_message, rule), expectation(q, log_message, rule)

    return jax.jit(run, compiler_options=FAST_COMPILE)(q)


compiled_nodes = jax.jit(lambda q, rule: nodes(rule, q), compiler_options=FAST_COMPILE)
