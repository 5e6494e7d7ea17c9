"""Posteriors, states and carries in files; programs in files that run in another process without their source."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal, Poisson, exp

ROOT = Path(__file__).parent.parent.parent
COUNTS = np.array([0, 3, 1, 6, 2, 2])


def counts(y, sigma2=0.5, rounds=1):
    z = ngmp.sample("z", Normal(np.zeros(6), variance=sigma2))
    for _ in range(rounds):
        ngmp.sample("y", Poisson(exp(z)), obs=y)


def coins(y, sigma2=0.5):
    z = ngmp.sample("z", Normal(np.zeros(6), variance=sigma2))
    ngmp.sample("y", Bernoulli(logits=z), obs=y)


PROGRAM = ngmp.compile(counts, carry=("z",))


@pytest.fixture(scope="module")
def post():
    return PROGRAM(y=COUNTS)


@pytest.fixture(scope="module")
def saved(post, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "post.ngmp"
    ngmp.save(path, post)
    return path


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_posterior_comes_back_bit_for_bit(post, saved):
    same(ngmp.load(saved, PROGRAM, y=COUNTS), post)
    same(ngmp.load(saved, PROGRAM, y=jax.ShapeDtypeStruct((6,), COUNTS.dtype)), post)
    same(ngmp.load(saved, jax.eval_shape(lambda: post)), post)
    again = PROGRAM(y=COUNTS, init=ngmp.load(saved, post).state)
    assert again.converged and again.sweeps <= 2


def test_states_and_carries(post, tmp_path):
    ngmp.save(tmp_path / "state", post.state)
    same(ngmp.load(tmp_path / "state", PROGRAM, y=COUNTS), post.state)
    ngmp.save(tmp_path / "carry", {"z": post["z"]})
    same(ngmp.load(tmp_path / "carry", PROGRAM, y=COUNTS)["z"], post["z"])


def test_another_model_shape_or_precision_is_refused(post, saved, tmp_path):
    with pytest.raises(ngmp.FileError, match="another model"):
        ngmp.load(saved, ngmp.compile(coins), y=COUNTS > 1)
    with pytest.raises(ngmp.FileError, match=r"\.marginals\['z'\]\.eta1 is float.*\[6\].*\[7\] is expected"):
        short = ngmp.compile(lambda y: ngmp.sample("z", Normal(np.zeros(7), variance=1.0)))
        ngmp.load(saved, short, y=COUNTS)
    with pytest.raises(ngmp.FileError, match="float16.* is expected"):
        ngmp.load(saved, jax.tree.map(lambda x: x.astype(jnp.float16), post))
    with pytest.raises(ngmp.FileError, match="holds a Posterior, not a State"):
        ngmp.load(saved, post.state)
    with pytest.raises(TypeError, match="give a posterior, a state or a carry"):
        ngmp.save(tmp_path / "x", post["z"])


def test_a_damaged_file_is_refused(post, saved, tmp_path):
    whole = saved.read_bytes()
    damaged = tmp_path / "damaged"
    middle = whole.index(b"0.bin", whole.index(b"PK", 4)) + 60  # inside the first array
    for data in (b"", whole[: len(whole) // 2], whole[:middle] + b"?" + whole[middle + 1 :], b"text"):
        damaged.write_bytes(data)
        with pytest.raises(ngmp.FileError, match="damaged"):
            ngmp.load(damaged, post)
    with pytest.raises(FileNotFoundError, match="no file"):
        ngmp.load(tmp_path / "absent", post)


def test_another_version_is_refused(post, saved, tmp_path):
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "new", "w") as new:
        header = {**json.loads(old.read("header.json")), "version": 99}
        new.writestr("header.json", json.dumps(header))
    with pytest.raises(ngmp.FileError, match="version 99"):
        ngmp.load(tmp_path / "new", post)


# -- exported programs ------------------------------------------------------------------------------------------------

SECOND = """
import sys, numpy as np, jax
jax.config.update("jax_enable_x64", sys.argv[2] == "1")
import ngmp_compiler as ngmp
program = ngmp.load_exported(sys.argv[1])
a = program(y=np.array([0, 3, 1, 6, 2, 2]))
b = program(y=np.array([5, 0, 1, 6, 2, 2]), sigma2=1.5)
print(repr([*map(float, (a.free_energy, b.free_energy, a["z"].mean[1], b["z"].variance[0]))]), a.converged, a.reason)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("flatbuffers", reason="jax.export writes with flatbuffers")
    path = tmp_path_factory.mktemp("exported") / "program.ngmp"
    PROGRAM.export(path, y=COUNTS, sigma2=0.5)
    return path


def test_an_exported_program_runs_in_a_second_process(exported, post, x64):
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]  # without the tests' model
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", SECOND, str(exported), str(int(x64))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    other = PROGRAM(y=np.array([5, 0, 1, 6, 2, 2]), sigma2=1.5)
    expected = [post.free_energy, other.free_energy, post["z"].mean[1], other["z"].variance[0]]
    np.testing.assert_allclose(eval(done.stdout.split("]")[0] + "]"), expected, rtol=1e-12 if x64 else 1e-5)
    assert done.stdout.strip().endswith("True converged")


def test_exported_programs_refuse_what_they_were_not_exported_for(exported, tmp_path):
    program = ngmp.load_exported(exported)
    with pytest.raises(TypeError, match=r"'y' .* is int64\[6\]; got int64\[7\]; an exported program"):
        program(y=np.zeros(7, np.int64))
    with pytest.raises(TypeError, match="'rounds' was fixed at 1"):
        program(y=COUNTS, rounds=2)
    with pytest.raises(TypeError, match=r"takes \['sigma2', 'y'\]; got \['x'\]"):
        program(x=COUNTS)
    with pytest.raises(ngmp.DataError, match="invalid"):
        program(y=-COUNTS)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(exported.read_bytes()[:-100])
    with pytest.raises(ngmp.FileError, match="damaged"):
        ngmp.load_exported(damaged)
