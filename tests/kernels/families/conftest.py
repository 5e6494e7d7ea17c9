"""What the tests of families share: every family by name, in the precision of this process."""

import jax.numpy as jnp
import pytest

from tests.kernels.families.cases import CASES, results


@pytest.fixture(params=list(CASES))
def name(request):
    return request.param


@pytest.fixture
def dtype(x64):
    """The precision of this process; float32 numbers are judged in the float32 process."""
    return jnp.dtype("float64" if x64 else "float32")


@pytest.fixture
def case(name):
    return CASES[name]


@pytest.fixture
def q(case, dtype):
    return case.make(dtype)


@pytest.fixture
def p(case, dtype):
    return case.other(dtype)


@pytest.fixture
def tol(dtype):
    return {"float32": 3e-4, "float64": 1e-9}[dtype.name]


@pytest.fixture
def r(name, dtype):
    return results(name, dtype)
