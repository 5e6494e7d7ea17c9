"""Settings of every test process, and the fixtures all tests share.

Precision is a property of the process: one flag leaks into every module, so float64 (the default) and float32
(`NGMP_X64=0`, tests marked `core32`) run in separate processes. The library itself never sets the flag.
"""

import gc
import importlib.metadata
import os
import zlib
from pathlib import Path

# Each worker has a core to itself: threads of all of them on all cores only get into each other's way. Most of a test
# is compilation, which optimising makes several times slower; so do the newer emitters of fused kernels (jaxlib 0.10.2:
# a Bernoulli plate compiles in 1.5 s of processor time without them, 4.3 with them).
FLAGS = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 "
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"  # a flag that XLA does not know ends the process: 0.12 dropped it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the LAPACK that numpy calls in the oracles: its idle threads spin
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import PRNGKeyArray  # noqa: E402

# A traced program is a hundred thousand small objects, none of them garbage before it is compiled: looking for garbage
# as often as Python does takes a seventh of the time of a warm run of the suite.
gc.set_threshold(100_000, 50, 100)

X64 = os.environ.get("NGMP_X64", "1") != "0"

# Before any array exists: a float32 array made earlier would stay float32.
jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))
# A program that another test, worker or run on this machine has compiled is read from here; it may be deleted any time.
CACHE = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "ngmp_compiler" / "xla"))
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def pytest_report_header(config: pytest.Config) -> str:
    del config
    return f"ngmp: float{64 if X64 else 32}, NGMP_DATA={os.environ.get('NGMP_DATA', '(not set)')}"


LONG = frozenset((Path(__file__).parent / "long.txt").read_text().split("\n"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cases listed in `long.txt` are slow; of most tests a cheaper case stays."""
    for item in items:
        if item.nodeid in LONG:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What a test imports may not change the precision of all others."""
    del session
    assert jax.config.jax_enable_x64 == X64, "a module that a test file imports has set jax_enable_x64"


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """A thousand compiled programs in one process exhaust its memory maps, and slow the garbage collector down."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def key() -> PRNGKeyArray:
    """A fixed key; split it for more. Seeds never depend on the clock."""
    return jax.random.key(20240229)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of the test's own, the same whatever other tests run: seeded by its name."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


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


@pytest.fixture
def only64(x64: bool) -> None:
    """For tests whose references are compared in float64 only."""
    if not x64:
        pytest.skip("compared in float64 only")
