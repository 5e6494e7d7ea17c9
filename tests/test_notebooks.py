"""Every notebook runs, top to bottom and at a small size, in a process of its own (it sets its own precision)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


QUICK = ("tour", "hyperparameters", "change_point")  # the others are slow
NEEDS = ("numpyro", "statsmodels", "sklearn")  # optional packages
PATHS = [
    pytest.param(path, marks=[] if path.stem in QUICK else [pytest.mark.slow], id=path.stem)
    for path in sorted((ROOT / "notebooks").glob("*.py"))
]


@pytest.mark.parametrize("path", PATHS)
def test_notebook_runs(path, tmp_path):
    for package in NEEDS:
        if re.search(rf"^import {package}\b", path.read_text(), re.MULTILINE):
            pytest.importorskip(package)
    paths = os.pathsep.join(str(ROOT / p) for p in (".", "kernels", "models"))
    environment = {**os.environ, "PYTHONPATH": paths, "NGMP_SMALL": "1"}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "converged: True" in done.stdout
