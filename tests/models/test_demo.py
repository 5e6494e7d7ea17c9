"""The main job of the README, and the gallery of models it comes with."""

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_models import demo

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="the demo runs in float64")


def test_series_is_the_published_one():
    series = ngmp_models.coal_disasters()
    assert (len(series.counts), int(series.counts.sum())) == (112, 191)
    assert (int(series.years[0]), int(series.years[-1])) == (1851, 1962)


def test_demo_prints_the_result_and_saves_the_plot(tmp_path, capsys):
    out = tmp_path / "coal.png"
    demo.main(["--out", str(out)])
    printed = capsys.readouterr().out
    for word in ("posterior", "free energy", "converged        True", "trace + compile", "run"):
        assert word in printed
    assert out.stat().st_size > 10_000


def test_a_loop_compiles_to_the_scan():
    y = ngmp_models.coal_disasters().counts
    scan, loop = (ngmp.compile(m) for m in (ngmp_models.poisson_chain, ngmp_models.poisson_chain_loop))
    assert scan.lower(y=y).describe() == loop.lower(y=y).describe().replace("poisson_chain_loop", "poisson_chain")
    np.testing.assert_allclose(scan(y=y)["z"].mean, loop(y=y)["z"].mean, rtol=1e-10)
