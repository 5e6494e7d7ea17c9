"""Programs on 8 virtual devices, and on two processes that talk to each other; and what cannot be split."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "sharding_process.py"


def start(*args: str, devices: int) -> subprocess.Popen:
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    paths = os.pathsep.join(str(ROOT / p) for p in (".", "kernels", "models"))
    environment = {**os.environ, "PYTHONPATH": paths, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(*processes: subprocess.Popen) -> list[str]:
    """What the processes print, if all of them get through; none is left behind."""
    try:
        outputs = [p.communicate(timeout=400) for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, (_, errors) in zip(processes, outputs, strict=True):
        assert p.returncode == 0, errors[-3000:]
    return [out for out, _ in outputs]


@pytest.mark.parametrize("what", ["rows", pytest.param("panel", marks=pytest.mark.slow)])
def test_eight_virtual_devices_give_the_results_of_one(what):
    (out,) = finish(start(what, devices=8))
    assert out.split("\n")[-2] == "done"


@pytest.mark.slow
def test_two_processes_give_the_results_of_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    outputs = finish(*(start(str(i), port, devices=1) for i in range(2)))
    assert all("mean and precision agrees" in out for out in outputs)


def test_a_mesh_that_does_not_divide_the_plate():
    class Mesh:  # of eight devices, which this process does not have
        axis_names, shape = ("rows",), {"rows": 8}

    with pytest.raises(ValueError, match="'y' has 10 along axis 0, which 8 devices do not divide; pad it to 16"):
        ngmp.shard({"y": np.zeros(10), "sigma2": 0.1}, Mesh())
    with pytest.raises(ValueError, match=r"\['x'\] of plate= are no inputs with an axis 0; given \['y'\]"):
        ngmp.shard({"y": np.zeros(10)}, Mesh(), "x")


def test_only_the_plate_is_split():
    mesh = jax.make_mesh((1,), ("rows",))
    placed = ngmp.shard({"y": np.zeros(8), "centres": np.zeros(2), "sigma2": 0.1, "name": "a"}, mesh)
    assert placed["y"].sharding.spec == jax.sharding.PartitionSpec(("rows",))
    assert placed["centres"].sharding.spec == jax.sharding.PartitionSpec()
    assert placed["sigma2"] == 0.1 and placed["name"] == "a"
    panel = ngmp.shard({"y": np.zeros((3, 8))}, mesh, "y", axis=1)["y"]
    assert panel.sharding.spec == jax.sharding.PartitionSpec(None, ("rows",))
