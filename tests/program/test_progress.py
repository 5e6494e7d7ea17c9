"""What long runs show while they go on, and what a call says of its compilation."""

import sys

import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp, progress


def model(y):
    z = ngmp.sample("z", Normal(np.zeros(3), variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_a_run_that_is_shown_is_the_same(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_LATE", -1.0)
    program, y = ngmp.compile(model), np.array([0, 3, 6])
    shown = program(y=y, progress=True, verbose=True)
    said = capsys.readouterr().err
    assert "sweeps" in said and "residual" in said
    assert "'model'" in said and "XLA" in said and "projects y: 3 factors PoissonLog" in said
    plain = program(y=y)
    assert shown.converged and shown.sweeps == plain.sweeps
    np.testing.assert_allclose(shown["z"].mean, plain["z"].mean, rtol=1e-8)
    program(y=y, verbose=True)
    assert "nothing was compiled" in capsys.readouterr().err.splitlines()[0]


def test_without_tqdm_there_is_a_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(progress, "_LATE", -1.0)
    bar = progress.Bar("model")
    bar.show(3, "residual 1.0e-01")
    bar.close()
    assert "model: 3 sweeps, residual 1.0e-01" in capsys.readouterr().err
    assert list(progress.bars([1, 2], "batches", True)) == [1, 2]


def test_the_time_left_goes_by_the_residuals():
    falling = [(float(k), 10.0**-k) for k in range(6)]
    assert progress.left(falling, 1e-8) == ", about 3 s left"
    assert progress.left([(float(k), 1.0) for k in range(6)], 1e-8) == ", not falling"
    assert progress.left(falling[:1], 1e-8) == ""
