"""Settings of every test process, and the fixtures all tests share.

Precision is a property of the process: one flag leaks into every module, so float64 (the default) and float32
(`NGMP_X64=0`, tests marked `core32`) run in separate processes. The library itself never sets the flag.
"""

import os
from pathlib import Path

import jax
import pytest
from jaxtyping import PRNGKeyArray

X64 = os.environ.get("NGMP_X64", "1") != "0"

# Before any array exists: a float32 array made earlier would stay float32.
jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))


def pytest_report_header(config: pytest.Config) -> str:
    del config
    return f"ngmp: float{64 if X64 else 32}, NGMP_DATA={os.environ.get('NGMP_DATA', '(not set)')}"


@pytest.fixture
def key() -> PRNGKeyArray:
    """A fixed key; split it for more. Seeds never depend on the clock."""
    return jax.random.key(20240229)


@pytest.fixture
def x64() -> bool:
    """Whether this process runs in float64: pick tolerances with it."""
    return X64


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the shared data files; tests that need it are skipped, with the reason, where it is absent."""
    given = os.environ.get("NGMP_DATA")
    if not given:
        pytest.skip("NGMP_DATA is not set: the shared data files are not here (see ngmp_models.data)")
    if not Path(given).is_dir():
        pytest.skip(f"NGMP_DATA={given} is not a folder")
    return Path(given)
