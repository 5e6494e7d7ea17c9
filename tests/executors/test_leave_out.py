"""Cavities on chains that leaves outweigh by twenty orders, against sixty digits; and in single precision."""


import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal
from ngmp_compiler.linalg import chain_messages, chain_ties
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian

float64 = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="needs float64")
LENGTH = 9


def precise(rows):
    """Precision matrix and linear coefficients of `sum e r - lam r^2 / 2` of rows (coefficients, lam, e)."""
    n = len(rows[0][0])
    matrix, linear = mpmath.zeros(n, n), mpmath.zeros(n, 1)
    for c, lam, e in rows:
        c = mpmath.matrix([mpmath.mpf(float(x)) for x in c])
        matrix += mpmath.mpf(float(lam)) * c * c.T
        linear += mpmath.mpf(float(e)) * c
    return matrix, linear


def of_row(rows, k):
    """Precision and linear coefficient of row k under all others."""
    matrix, linear = precise([row for i, row in enumerate(rows) if i != k])
    c = mpmath.matrix([mpmath.mpf(float(x)) for x in rows[k][0]])
    variance = (c.T * mpmath.lu_solve(matrix, c))[0]
    mean = (c.T * mpmath.lu_solve(matrix, linear))[0]
    return float(1 / variance), float(mean / variance)


@float64
def test_messages_from_both_sides_keep_their_digits():
    """Ties of 1e-3 to 1e14 beside unary terms of 1e-6."""
    rng = np.random.default_rng(0)
    unary, linear = 10.0 ** rng.uniform(-6, 0, LENGTH), rng.standard_normal(LENGTH)
    lam, e = 10.0 ** rng.uniform(-3, 14, LENGTH - 1), rng.standard_normal(LENGTH - 1)
    a, b = rng.normal(1, 0.3, LENGTH - 1), rng.normal(1, 0.3, LENGTH - 1)
    found = chain_messages(*map(jnp.asarray, (unary, linear)), chain_ties(lam, a, b), e * a, -e * b)
    eye = np.eye(LENGTH)
    own = [(eye[k], unary[k], linear[k]) for k in range(LENGTH)]
    ties = [(a[k] * eye[k + 1] - b[k] * eye[k], lam[k], e[k]) for k in range(LENGTH - 1)]
    with mpmath.workdps(60):
        for k in range(1, LENGTH - 1):
            for side, rows in enumerate(([*own[:k], *ties[:k]], [*own[k + 1 :], *ties[k:]])):
                matrix, h = precise(rows)
                others = [i for i in range(LENGTH) if (i < k if side == 0 else i > k)]
                inner = mpmath.matrix([[matrix[i, j] for j in others] for i in others])
                across = mpmath.matrix([matrix[i, k] for i in others])
                want = matrix[k, k] - (across.T * mpmath.lu_solve(inner, across))[0]
                pull = h[k] - (across.T * mpmath.lu_solve(inner, mpmath.matrix([h[i] for i in others])))[0]
                np.testing.assert_allclose(found.precision[side, k], float(want), rtol=1e-12)
                np.testing.assert_allclose(found.linear[side, k], float(pull), rtol=1e-9)


def level(y):
    q, r = ngmp.sample("q", Gamma(2.0, rate=1.0)), ngmp.sample("r", Gamma(2.0, rate=1.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(0.9 * z, precision=q))
        ngmp.sample("y", Normal(2.0 * z + 1.0, precision=r), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.5, variance=1e4)), y)


@float64
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cavities_of_a_chain_keep_their_digits(dtype):
    """Of the steps and of the observations of a level, whose leaves span what the type has room for."""
    rng, most = np.random.default_rng(1), 14 if dtype == np.float64 else 7
    program, y = ngmp.compile(level), rng.standard_normal(LENGTH).astype(dtype)
    core = program._build(*program._split((), {"y": jnp.asarray(y)})).map.core
    (steps, seen), (h, e) = 10.0 ** rng.uniform(-6, most, (2, LENGTH)), rng.standard_normal((2, LENGTH))
    steps, seen, h, e = (np.asarray(x, dtype).astype(float) for x in (steps, seen, h, e))
    keys = {edge: key for edge, key in zip("zy", ("z.r", "y.r"), strict=True)}
    gammas = {k.replace(".r", ".tau"): GammaFamily(jnp.full(LENGTH, 0.5, dtype), jnp.full(LENGTH, -0.5, dtype))
              for k in keys.values()}  # fmt: skip
    given = {keys["z"]: Gaussian.from_information(*(jnp.asarray(x, dtype) for x in (h, steps))),
             keys["y"]: Gaussian.from_information(*(jnp.asarray(x, dtype) for x in (e, seen)))}  # fmt: skip
    result = core.run({**given, **gammas})
    eye = np.eye(LENGTH + 1)
    tie = [(eye[k + 1] - dtype(0.9).astype(float) * eye[k], steps[k], h[k]) for k in range(LENGTH)]
    # r = y - 2 z - 1: its leaf on -2 z, about the offset y - 1.
    about = (y - dtype(1.0)).astype(float)
    row = [(-2.0 * eye[k + 1], seen[k], e[k] - seen[k] * about[k]) for k in range(LENGTH)]
    rows = [*tie, *row, (eye[0], 1e-4, 0.5e-4)]
    digits = 1e-10 if dtype == np.float64 else 1e-4
    with mpmath.workdps(60):
        for k in range(LENGTH):
            precision, xi = of_row(rows, k)
            np.testing.assert_allclose(result.cavities["z.r"].precision[k], precision, rtol=digits)
            np.testing.assert_allclose(result.cavities["z.r"].eta1[k], xi, rtol=100 * digits)
            np.testing.assert_allclose(result.edges["z.r"].precision[k], precision + steps[k], rtol=digits)
            precision, xi = of_row(rows, LENGTH + k)
            np.testing.assert_allclose(result.cavities["y.r"].precision[k], precision, rtol=digits)
            np.testing.assert_allclose(result.cavities["y.r"].eta1[k], xi + precision * about[k], rtol=100 * digits)
