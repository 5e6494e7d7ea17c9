"""The precision-gated ensemble against its mean-field equations in numpy and against integrals over a grid."""

import hashlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_models import data, etth, precision_gated

pytestmark = pytest.mark.usefixtures("only64")


def small(rng, n=40, d=2):
    context = np.c_[rng.standard_normal((n, d - 1)), np.ones(n)]
    forecast = rng.standard_normal(n)
    y = forecast + np.exp(-0.5 * (0.8 * context[:, 0] + 0.7)) * rng.standard_normal(n)
    return {"context": context, "forecast": forecast, "y": y, "w_mean": np.r_[np.zeros(d - 1), 0.5],
            "w_variance": np.r_[np.full(d - 1, 4.0), 2.0]}  # fmt: skip


def mean_field(context, forecast, y, w_mean, w_variance, sweeps=4000):
    """q(w) q(z) q(tau) q(beta), the carrier a function of z: coordinate by coordinate, the site of z damped."""
    n, r2 = len(y), (y - forecast) ** 2
    m, v, site, w, beta = np.zeros(n), np.ones(n), np.zeros((2, n)), w_mean, 1.0
    cov, tau = np.diag(w_variance), 1.0
    for _ in range(sweeps):
        rho = (0.5 * r2 + beta) * np.exp(m + 0.5 * v)
        site += 0.3 * (np.array([rho, 1.5 + (m - 1.0) * rho]) - site)
        v = 1.0 / (tau + site[0])
        m = v * (tau * context @ w + site[1])
        cov = np.linalg.inv(np.diag(1.0 / w_variance) + tau * context.T @ context)
        w = cov @ (w_mean / w_variance + tau * context.T @ m)
        rest = v + (m - context @ w) ** 2 + np.einsum("nd,de,ne->n", context, cov, context)
        tau = (1.0 + 0.5 * n) / (1e-3 + 0.5 * rest.sum())
        beta = (1.0 + n) / (1e3 + np.exp(m + 0.5 * v).sum())
    return w, cov, m, v, tau, beta


def test_mean_field_of_the_gate_is_that_of_its_equations(rng):
    inputs = small(rng)
    w, cov, m, v, tau, beta = mean_field(**inputs)
    rules = {"z": ngmp.VMP(), "carrier": ngmp.NCVMP()}
    program = ngmp.compile(precision_gated.precision_gate, families=precision_gated.FAMILIES, rules=rules,
                           max_sweeps=4000, tol=1e-9)  # fmt: skip
    post = program(**inputs)
    assert post.converged
    for ours, theirs in ((post["w"].mean, w), (post["w"].covariance, cov), (post["z"].mean, m),
                         (post["z"].variance, v), (post["tau"].mean, tau), (post["beta"].mean, beta)):  # fmt: skip
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_the_direct_gate_with_beta_integrated_is_the_exact_posterior(rng):
    inputs = small(rng)
    context, r2, mean, variance = inputs["context"], (inputs["y"] - inputs["forecast"]) ** 2, inputs["w_mean"], 4.0
    grid = np.stack(np.meshgrid(*[np.linspace(-4.0, 6.0, 301)] * 2, indexing="ij"), -1).reshape(-1, 2)
    z, n = grid @ context.T, len(r2)
    # The integral of beta^n exp(-beta (1000 + sum e^z)) over beta is in closed form.
    log_p = 1.5 * z.sum(1) - 0.5 * np.exp(z) @ r2 - (n + 1) * np.log(1e3 + np.exp(z).sum(1))
    log_p += -0.5 * grid[:, 0] ** 2 / variance - 0.25 * (grid[:, 1] - mean[1]) ** 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    exact, sd = p @ grid, np.sqrt(p @ grid**2 - (p @ grid) ** 2)
    post = ngmp.compile(precision_gated.direct_gate, integrate=("beta",))(**inputs)
    assert post.converged
    np.testing.assert_allclose((post["w"].mean - exact) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(post["w"].std / sd, 1.0, atol=0.05)


def test_the_drifting_consensus_is_a_kalman_filter_where_the_scale_is_known(rng):
    """Three batches by `program.update` in a scan, against dense algebra."""
    batches, n, k, keep, walk = 3, 4, 2, 0.9, 0.02
    spread, centre = rng.standard_normal((batches, n, k)), rng.standard_normal((batches, n))
    y = centre + spread @ np.array([0.5, -0.3]) + 0.3 * rng.standard_normal((batches, n))
    fixed = {"v_variance": np.full(k, 0.3), "u_mean": np.array([2.0]), "u_variance": np.full(1, 1e-10),
             "v_walk": np.full(k, walk), "u_walk": np.full(1, 1e-10), "memory": keep, "c_top": 1e10}  # fmt: skip
    stacked = {"spread": spread, "centre": centre, "psi": np.ones((batches, n, 1)), "y": y}
    program = ngmp.compile(precision_gated.drifting_consensus, carry=precision_gated.CARRY)
    start = program.start(**{name: x[0] for name, x in stacked.items()}, **fixed)
    carry, done = jax.lax.scan(lambda c, x: _converged(program.update(c, {**x, **fixed})), start, stacked)
    mean, cov = np.zeros(k), 0.3 * np.eye(k)
    for d, c, seen in zip(spread, centre, y, strict=True):
        mean, cov = keep * mean, keep**2 * cov + walk * np.eye(k)
        gain = cov @ d.T @ np.linalg.inv(d @ cov @ d.T + np.exp(-2.0) * np.eye(n))
        mean, cov = mean + gain @ (seen - c - d @ mean), cov - gain @ d @ cov
    assert np.all(done)
    np.testing.assert_allclose(carry["v0"].mean, mean, rtol=1e-7)
    np.testing.assert_allclose(carry["v0"].covariance, cov, rtol=1e-7, atol=1e-12)


def _converged(step):
    return step[0], step[1].converged


def test_predictions_are_products_of_gaussians_and_mixtures_over_the_scale():
    precision, forecasts = jnp.asarray([[1.0, 3.0]]), jnp.asarray([[0.0, 4.0]])
    fused = precision_gated.fuse(precision, forecasts)
    np.testing.assert_allclose((fused.mean[0], fused.variance[0]), (3.0, 0.25))
    g = precision_gated.gates(jnp.ones((1, 1)), jnp.asarray([[0.4]]), jnp.asarray([[[0.2]]]), jnp.asarray([0.1]), 0.3)
    np.testing.assert_allclose(g, 1.0 / (np.exp(-0.4 + 0.15) + 0.3))
    s = np.random.default_rng(0).normal(0.5, 0.6, 400_000)  # by Monte Carlo
    total = 0.2 + np.exp(-s)
    expected = np.log(np.mean(np.exp(-0.5 * 1.3**2 / total) / np.sqrt(2 * np.pi * total)))
    found = precision_gated.log_scale_mixture(jnp.ones(1) * 1.3, 0.0, 0.2, jnp.full(1, 0.5), jnp.full(1, 0.36))
    np.testing.assert_allclose(found, expected, atol=3e-3)


@pytest.mark.parametrize("model", [precision_gated.precision_gate, precision_gated.direct_gate])
def test_a_context_of_the_wrong_width_is_named(rng, model):
    inputs = small(rng) | {"w_mean": np.zeros(3)}
    with pytest.raises(ValueError, match=r"context has 2 columns, and w_mean the shape \(3,\)"):
        ngmp.compile(model, families=precision_gated.FAMILIES)(**inputs)


def test_widths_of_the_consensus_are_named(rng):
    inputs = {"spread": np.ones((5, 2)), "centre": np.zeros(5), "psi": np.ones((5, 1)), "y": rng.standard_normal(5),
              "v_variance": np.ones(3), "u_mean": np.zeros(1), "u_variance": np.ones(1)}  # fmt: skip
    for model, more in (
        (precision_gated.consensus, {}),
        (precision_gated.drifting_consensus, {"v_walk": np.ones(2), "u_walk": np.ones(1)}),
    ):
        with pytest.raises(ValueError, match=r"context has 2 columns, and v_variance the shape \(3,\)"):
            ngmp.compile(model)(**inputs, **more)


def test_predicting_at_a_context_of_another_width_is_an_error():
    with pytest.raises(ValueError, match="context has 3 columns; the weights of the gates have 2"):
        precision_gated.gates(jnp.ones((1, 3)), jnp.ones((7, 2)), jnp.ones((7, 2, 2)), jnp.ones(7), jnp.ones(7))
    with pytest.raises(ValueError, match="a precision for each forecast"):
        precision_gated.fuse(jnp.ones((3, 6)), jnp.ones((3, 7)))


# -- data --------------------------------------------------------------------------------------------------------------


def test_a_cell_is_what_the_study_used(data_dir):
    del data_dir
    task = etth.cell("ETTh1", 96)
    assert task.forecasts.shape == (6892, 7) and task.fitted == 3446 and task.start[0] == 10337
    error = np.sqrt(np.mean((task.forecasts - task.y[:, None])[task.fitted :] ** 2, axis=0))
    np.testing.assert_allclose(error, [0.675, 0.384, 0.642, 0.396, 0.425, 0.782, 0.775], atol=6e-4)  # published
    window = task.windows(task.start[:1])
    assert window.shape == (1, 96, 7) and task.y[0] == task.series[task.start[0] + 95 + 96, -1]
    last = np.quantile(task.series[task.start[: task.fitted] + 95, -1], [0.1, 0.9])
    np.testing.assert_allclose(task.forecasts[0, 5:], last, atol=1e-3)


def test_the_context_is_standardised_on_what_is_fitted(rng):
    features = np.c_[rng.normal(3.0, 2.0, (50, 2)), np.full(50, 7.0)]
    context = etth.gate_context(features, 30)
    np.testing.assert_allclose(context[:30].mean(0), [0, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(context[:30].std(0, ddof=1), [1, 1, 0, 0], atol=1e-12)
    with pytest.raises(ValueError, match="60 fitted"):
        etth.gate_context(features, 60)


def test_missing_and_corrupted_experts_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"ett/ETTh1.csv: not found.*zhouhaoyi"):
        etth.cell("ETTh1", 96)
    experts = etth.files("ETTh1", 96)[1]
    path = tmp_path / experts.name
    path.parent.mkdir()
    path.write_text("split,start_row\nval,0\n")
    wrong = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"not the expected file: sha256 {wrong}.*PrecisionGatedExperts"):
        data.locate(experts)
    shutil.rmtree(path.parent)
    with pytest.raises(FileNotFoundError, match="etth_experts/ETTh1_h96.csv: not found"):
        data.locate(experts)
    with pytest.raises(ValueError, match="no cell 'ETTh3', 96"):
        etth.cell("ETTh3", 96)
