"""The reliability campaign, small: its templates use every factor, and a handful of problems of a few of them."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_kernels import Given
from tests.kernels.factors.cases import ORACLE

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture(scope="module")
def campaign(request):
    """The module of the campaign; its files import each other by bare names, as scripts do."""
    if not jax.config.jax_enable_x64:
        pytest.skip("the campaign runs in both precisions, under x64")
    sys.path.insert(0, BENCHMARKS)
    request.addfinalizer(lambda: sys.path.remove(BENCHMARKS))
    import reliability

    return reliability


def test_templates_use_every_factor(campaign):
    used = set()
    for template in campaign.TEMPLATES.values():
        inputs = campaign.rounded(template.draw(campaign.Draw(0)))
        for group in ngmp.compile(template.model, **template.options).lower(**inputs).plan.groups:
            factor = group.factor
            while factor is not None:  # a gate holds the factor that it gates
                used.add(type(factor))
                factor = getattr(factor, "base", None)
    # What is carried takes the place of priors in an update, which is no plan that `lower` shows.
    assert any("carry" in template.options for template in campaign.TEMPLATES.values())
    assert {c.__name__ for c in ORACLE if c not in used} <= {Given.__name__}


def test_a_problem_is_its_seed(campaign):
    template = campaign.TEMPLATES["Poisson chain"]
    many, one = campaign.problems(template, [3, 4, 5]), campaign.problems(template, [4])
    for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
        np.testing.assert_array_equal(a[1], b[0])
        assert a.dtype.kind != "f" or (a == a.astype(np.float32)).all()


@pytest.mark.parametrize("name", ["Bernoulli plate", "Poisson plate", "conjugate pairs"])
def test_a_small_campaign(campaign, name):
    rows = campaign.study(name, list(range(10)), eager=1)
    sums = campaign.totals(rows)
    assert all(sums["pass"].values()), [row["seeds"] for row in rows]
    assert sums["problems"] == 20 and not sums["unreferenced"]


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_a_row_that_is_known_far_better_than_others_is_no_constant(campaign):
    """One datum is seen, through three unknown weights: it fits whatever its precision is; that has its prior.

    Its residual has 2e-6 of the variance of unseen ones, in single precision once taken for that of zero features.
    """
    inputs = campaign.rounded(campaign.TEMPLATES["linear regression"].draw(campaign.Draw(2079)))
    post = ngmp.compile(campaign.TEMPLATES["linear regression"].model)(**campaign.cast(inputs, np.float32))
    assert inputs["seen"].sum() == 1 and bool(post.converged)
    np.testing.assert_allclose(post["tau"].mean, inputs["a"] / inputs["b"], rtol=2e-3)


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_a_level_whose_noise_may_be_huge_or_tiny(campaign):
    """Data 100 prior deviations away: a chain that follows them, of a cavity of 1e-4 beside leaves of 60, is no answer.

    By subtraction nothing was left of that cavity in single precision, and what the data pull by was dropped with it.
    """
    template = campaign.TEMPLATES["level"]
    inputs = campaign.rounded(template.draw(campaign.Draw(2109)))
    program = ngmp.compile(template.model)
    single, double = (program(**campaign.cast(inputs, dtype)) for dtype in (np.float32, np.float64))
    assert bool(single.converged) and bool(double.converged)
    for name in ("q", "r", "z0", "z"):
        (a, _), (b, square) = single[name].location_scale(), double[name].location_scale()
        assert np.max(np.abs(np.asarray(a, np.float64) - b) / np.sqrt(square)) < 1e-2
