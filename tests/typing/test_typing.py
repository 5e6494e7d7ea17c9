"""Types that users see: a script of theirs passes strict checkers, and wrong keywords do not."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPT = (HERE / "user_script.py").read_text()


def check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Pyright, strict, on a script in a folder of its own."""
    (folder / "script.py").write_text(text)
    roots = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "models")]
    config = {"typeCheckingMode": "strict", "include": ["script.py"], "extraPaths": roots}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_script_runs():
    found = runpy.run_path(str(HERE / "user_script.py"))
    assert found["converged"] and found["mean"].shape == (3,) and "chain" in found["text"]


def test_pyright_strict(tmp_path):
    run = check(tmp_path, SCRIPT)
    assert run.returncode == 0, run.stdout


def test_mypy_strict(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path / "script.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert run.returncode == 0, run.stdout


def test_unknown_keywords_are_refused_statically(tmp_path):
    run = check(tmp_path, 'from ngmp_compiler import Normal\n\nNormal(0.0, scale=1.0)\n')
    assert run.returncode == 1 and 'No parameter named "scale"' in run.stdout
