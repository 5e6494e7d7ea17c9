"""Small versions of the studies under `benchmarks/`: what each of them claims, at a size that runs in seconds."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_models import poisson_chain

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture(scope="module")
def studies(request):
    """The modules of the studies; they import each other by bare names, as scripts do."""
    if not jax.config.jax_enable_x64:
        pytest.skip("the studies run in float64")
    sys.path.insert(0, BENCHMARKS)
    request.addfinalizer(lambda: sys.path.remove(BENCHMARKS))
    import damping
    import fractional
    import mean_precision
    import sunspots

    return {"damping": damping, "fractional": fractional, "mean_precision": mean_precision, "sunspots": sunspots}


@pytest.mark.slow
def test_the_published_law_of_tau_comes_from_the_three_point_rule(studies):
    study = studies["mean_precision"]
    found = study.study(3, (16, 64), {k: study.ARMS[k] for k in ("VMP", "3-point", "NGMP")})
    tau = {k: np.nanmean(r["tau"], axis=1) for k, r in found.items()}
    x = {k: np.nanmean(r["x"], axis=1) for k, r in found.items()}
    assert tau["VMP"][1] / tau["3-point"][1] > 30  # the artefact
    np.testing.assert_allclose(tau["VMP"] / tau["NGMP"], 1.0, atol=0.3)  # the truth
    assert 1.8 < x["VMP"][1] / x["NGMP"][1] < 2.8


@pytest.fixture(scope="module")
def short_series():
    rng = np.random.default_rng(5)
    y = rng.poisson(np.exp(2 + np.cumsum(np.sqrt(0.1) * rng.standard_normal(60))))
    return jnp.asarray(y), jnp.asarray(rng.random(60) < 0.5)


def test_sequential_mean_field_and_newton_and_the_compiled_rule_share_a_fixed_point(studies, short_series):
    study, (y, seen) = studies["sunspots"], short_series
    m, v, energy = study.sequential(y, seen, 3000)
    newton_m, newton_v, residual = study.converged(y, seen, jnp.log(y + 1.0))
    assert residual < 1e-9
    np.testing.assert_allclose(m[-1], newton_m, atol=1e-8)
    np.testing.assert_allclose(v[-1], newton_v, atol=1e-8)
    assert np.all(np.diff(energy) <= 1e-9)  # coordinate descent on the bound
    post = ngmp.compile(study.chain, method=ngmp.NCVMP(), max_sweeps=5000, tol=1e-9)(y=y, mask=seen)
    assert post.converged
    np.testing.assert_allclose(post["z"].mean, newton_m, atol=1e-5)
    np.testing.assert_allclose(post.free_energy, energy[-1], atol=1e-6)


def test_predictive_scores_agree_with_the_compiled_prediction(studies, short_series):
    study, (y, seen) = studies["sunspots"], short_series
    program = ngmp.compile(poisson_chain)
    post = program(y=y, mask=seen)
    density = program.predict(post, "y", y=y, mask=seen).log_density
    _, _, mixture = study.pointwise(y, post["z"].mean, post["z"].variance)
    np.testing.assert_allclose(density, -mixture, atol=1e-6)


def test_depth_counts_months_to_the_nearest_observation(studies):
    seen = np.array([True, False, False, False, False, True, False])
    np.testing.assert_array_equal(studies["sunspots"].depth(seen), [0, 1, 2, 2, 1, 0, 1])


def test_sunspots_reproduce_the_published_scores(studies, data_dir):
    """Mask 1 of 20 at 50 %: the baseline at its published budget is worse than when converged, and NGMP beats both."""
    del data_dir
    study = studies["sunspots"]
    y, seen = jnp.asarray(study.data.sunspots()), jnp.asarray(study.data.sunspot_seen(0.5)[0])
    post = study.PROGRAMS["NGMP"](y=y, mask=seen)
    m, v, _ = jax.jit(study.sequential, static_argnums=2)(y, seen, 20)
    exact_m, exact_v, residual = jax.jit(study.converged)(y, seen, post["z"].mean)
    assert post.converged and residual < 1e-8
    scores = {}
    moments = {"NGMP": (post["z"].mean, post["z"].variance), "20": (m[-1], v[-1]), "converged": (exact_m, exact_v)}
    for name, pair in moments.items():
        nll, _, mixture = study.pointwise(y, *pair)
        scores[name] = float(nll[~seen].mean()), float(mixture[~seen].mean())
    assert scores["20"][0] > scores["NGMP"][0] + 0.1  # the published gap
    assert abs(scores["converged"][0] - scores["NGMP"][0]) < 0.05  # is one of early stopping
    assert scores["NGMP"][1] < scores["converged"][1] - 0.03  # the true advantage: variances


def test_every_arm_settles_on_short_chains_and_the_default_first(studies):
    study = studies["damping"]
    found = study.study(3, (60, 100), 80, ("alpha 0.25", "heavy ball 0.5, 0.2", "default"))
    for r in found.values():
        assert study.outcome(r, 0) == study.outcome(r, 1) == "3/0/0/0"
    medians = {arm: np.median(r["sweep"]) for arm, r in found.items()}
    assert medians["default"] <= medians["heavy ball 0.5, 0.2"] < medians["alpha 0.25"]
    last = np.stack([r["energy"][..., -1] for r in found.values()])
    np.testing.assert_allclose(last, last[:1].repeat(len(last), 0), rtol=1e-6)


def test_settling_is_for_good(studies):
    energy = np.array([[9.0, 5.0, 5.0, 5.0, 5.0], [9.0, 5.0, 5.0, 7.0, 7.0], [1.0, 2.0, 1.0, 2.0, 1.0]])
    np.testing.assert_array_equal(studies["damping"].settled(energy), [3, 5, 0])


@pytest.mark.slow
def test_half_a_power_counts_the_residuals_that_the_exact_posterior_counts(studies):
    study = studies["fractional"]
    case = study.regressions(3, (1, 4))
    found = study.measure(case, study.sweep_powers(case, (0.5, 1.0)))["tau"]
    one, four = (study.summary(found, s) for s in (slice(0, 3), slice(3, 6)))
    for r, k in ((one, 1), (four, 4)):
        assert abs(r["k"] - k) < 0.1 * k
        lost = {p: v[1] for p, v in r["rules"].items()}
        assert abs(r["lost"] - k) < 0.2 * k  # the exact posterior
        assert abs(lost["0.5"] - k) < 0.2 * k and abs(lost["1"] - 2 * k) < 0.4 * k
        assert r["rules"]["0.5"][0] < 0.2 * r["rules"]["1"][0]
