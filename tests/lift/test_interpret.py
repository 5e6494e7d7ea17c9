"""The interpreter against jax itself: what it finds affine is, with the coefficients that jax computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler.declare.frame import Frame, recording
from ngmp_compiler.declare.functions import scalars
from ngmp_compiler.lift import structural, sums  # noqa: F401
from ngmp_compiler.lift.interpret import Interpreter
from ngmp_compiler.lift.linear import Linear, of_variable

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 3, 4))
INDEX = np.array([3, 0, 2, 2, -1])

AFFINE = {
    "elementwise": lambda x: 2.0 * x - A[0] / 3.0 + x[::-1] * A[1],
    "matrix": lambda x: A @ x + 1.0,
    "matrices": lambda x: jnp.einsum("kij,j->ik", B, x),
    "both sides": lambda x: x[:3] @ A,
    "sums": lambda x: jnp.sum(x) + jnp.sum(A * x, axis=0),
    "cumulative": lambda x: jnp.cumsum(x),
    "gather": lambda x: x[INDEX] * 2.0,
    "outer": lambda x: (x[:, None] + A.T).reshape(-1),
    "join": lambda x: jnp.concatenate([x[1:], jnp.ones(2), 3.0 * x[:1]]),
    "stack": lambda x: jnp.stack([x[0] - x[1], x[2], 0.5 + x[3]]),
    "set": lambda x: x.at[1].set(x[0] + 1.0),
    "where": lambda x: jnp.where(A[0] > 0, x, 1.0 - x),
    "pad": lambda x: jnp.pad(x, (1, 2)),
    "roll": lambda x: x - jnp.roll(x, 1),
    "mean": lambda x: (x - x.mean()) / A.std(),
    "tile": lambda x: jnp.tile(x, 2) + jnp.repeat(x, 2),
}


def interpreted(function, vector):
    """The value that the interpreter finds for a function of four Gaussian variables, or of one vector of four."""
    closed = jax.make_jaxpr(function)(jnp.zeros(4))
    with recording(Frame()):
        if vector:
            x = of_variable(ngmp.sample("x", ngmp.MvNormal(np.zeros(4), covariance=1.0)), (4,), 0)
        else:
            x = of_variable(ngmp.sample("x", ngmp.Normal(np.zeros(4), std=1.0)), (4,))
        run = Interpreter(closed.jaxpr, [*map(np.asarray, closed.consts), x])
        return run.read(closed.jaxpr.outvars[0])


def at(found, point):
    """An affine expression at a value of its variables."""
    x = scalars(found.affine()).affine()
    value = 0.0 if x.offset is None else jnp.asarray(x.offset)
    for v, op, c in x.terms:
        c = 1.0 if c is None else c
        value = value + (c * point[v.index] if op == "scale" else jnp.sum(c * point, -1))
    return np.broadcast_to(value, found.shape)


@pytest.mark.parametrize("vector", [False, True], ids=["scalars", "vector"])
@pytest.mark.parametrize("name", AFFINE)
def test_affine_functions_are_found_with_their_coefficients(name, vector):
    found, point = interpreted(AFFINE[name], vector), RNG.normal(size=4)
    assert isinstance(found, Linear)
    np.testing.assert_allclose(at(found, point), AFFINE[name](jnp.asarray(point)), atol=1e-12)


@pytest.mark.parametrize("name", ["logsumexp", "softplus", "ratio", "cdf"])
def test_other_functions_are_kept_as_functions(name):
    functions = {
        "logsumexp": lambda x: jax.scipy.special.logsumexp(x),
        "softplus": lambda x: jax.nn.softplus(x) * A[0],
        "ratio": lambda x: x[:2] / (1.0 + x[2:] ** 2),
        "cdf": lambda x: jax.scipy.stats.norm.cdf(x),
    }
    found, point = interpreted(functions[name], False), RNG.normal(size=4)
    inner, arguments = found.split()
    given = [at(a, point) if isinstance(a, Linear) else a for a in arguments]
    np.testing.assert_allclose(inner(*given), functions[name](jnp.asarray(point)), rtol=1e-12)
