"""Small versions of the regression studies under `benchmarks/`: streaming and UCI."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_models import fourier_map, heteroscedastic, matern32

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture(scope="module")
def studies(request):
    """The modules of the studies; they import each other by bare names, as scripts do."""
    if not jax.config.jax_enable_x64:
        pytest.skip("the studies run in float64")
    sys.path.insert(0, BENCHMARKS)
    request.addfinalizer(lambda: sys.path.remove(BENCHMARKS))
    import streaming
    import uci
    import uci_tasks

    return {"streaming": streaming, "uci": uci, "tasks": uci_tasks}


@pytest.fixture
def streaming(studies, monkeypatch):
    """The streaming study with 60 points in 3 batches, 24 features for the mean and 8 for the noise."""
    study = studies["streaming"]
    small = {"TRAIN": 60, "TEST": 40, "BATCHES": 3}
    small["MEAN"] = fourier_map(jax.random.key(1), 1, 24, kernel=matern32, lengthscale=0.25)
    small["NOISE"] = fourier_map(jax.random.key(2), 1, 8, lengthscale=0.5)
    for name, value in small.items():
        monkeypatch.setattr(study, name, value)
    return study


@pytest.mark.slow
def test_mean_field_counts_every_score_as_a_measurement(streaming, monkeypatch):
    """Cov(w) is that of 60 measurements of precision 25, whatever y is, in one batch and as a stream."""
    monkeypatch.setitem(streaming.ARMS, "NCVMP", {"method": ngmp.NCVMP(), "max_sweeps": 5})
    keys = jax.random.split(jax.random.key(0), 2)
    found = streaming.study("NCVMP", keys)
    for i, key in enumerate(keys):
        data = streaming.simulate(key)
        psi = np.asarray(streaming.rows(data.x[:60], data.y[:60])["psi"])
        precision = np.diag(1 / np.append(np.full(8, 2.56), 1.0)) + 25 * psi.T @ psi
        expected = -np.linalg.slogdet(precision)[1]
        np.testing.assert_allclose(found["full"]["log_det"][i], expected, rtol=1e-9)
        np.testing.assert_allclose(found["chain"]["log_det"][i, -1], expected, rtol=1e-9)


def test_ngmp_streams_at_little_cost_and_stays_uncertain(streaming):
    found = streaming.study("NGMP, converged", jax.random.split(jax.random.key(0), 2))
    assert found["full residual"].max() < 1e-6 and found["chain"]["residual"].max() < 1e-6
    assert np.all(np.diff(found["chain"]["log_det"], axis=1) < 0)  # every batch teaches
    assert found["chain"]["log_det"][:, -1].min() > -15  # mean field: about -30
    assert abs(found["stream"]["nll"] - found["full"]["nll"]).max() < 0.4


@pytest.mark.slow
def test_the_scores_are_those_of_the_compiled_prediction(streaming):
    program = ngmp.compile(heteroscedastic, carry=("v", "w"), tol=1e-6)
    data = streaming.simulate(jax.random.key(3))
    carry, _ = streaming.full(program, data)
    test = {**streaming.rows(data.x[60:], data.y[60:]), **streaming.priors(data)}
    prediction = program.predict(carry, "y", **test)
    scores = streaming.scores(carry, data)
    np.testing.assert_allclose(-jnp.mean(prediction.log_density), scores["nll"], atol=1e-4)
    np.testing.assert_allclose(jnp.sqrt(jnp.mean((prediction.mean - test["y"]) ** 2)), scores["rmse"], rtol=1e-6)


# -- UCI --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)], ids=["weights", "functions"])
def test_the_residual_variance_is_that_of_vmp(studies, shape):
    rng = np.random.default_rng(0)
    phi, y = rng.normal(size=shape) / np.sqrt(shape[1]), rng.normal(size=shape[0])
    precision, d = 25.0, shape[1]
    for _ in range(20):
        covariance = np.linalg.inv(np.eye(d) + precision * phi.T @ phi)
        mean = precision * covariance @ phi.T @ y
        rate = 2 / 25 + 0.5 * (np.sum((y - phi @ mean) ** 2) + np.trace(phi @ covariance @ phi.T))
        precision = (2 + len(y) / 2) / rate
    expected = rate / (1 + len(y) / 2)
    found = studies["tasks"].residual_variance(jnp.asarray(phi), jnp.asarray(y))
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_the_evidence_tells_the_inputs_that_matter_and_the_noise(studies):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 3))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=80)
    kernel = studies["tasks"].evidence_kernel(jnp.asarray(x), jnp.asarray(y))
    scale = np.exp(kernel.lengthscales)
    assert scale[0] < 0.5 * min(scale[1], scale[2])
    assert 0.003 < np.exp(kernel.noise) < 0.03


def test_kernel_features_are_the_kernel_at_the_centres(studies):
    tasks, rng = studies["tasks"], np.random.default_rng(2)
    x, z = rng.normal(size=(5, 2)), rng.normal(size=(30, 2))
    kernel = tasks.Kernel(jnp.log(jnp.array([0.5, 2.0])), *jnp.log(jnp.array([0.8, 0.3, 0.4, 0.1])))
    (at_z, none), (at_x, missing) = tasks.kernel_features(kernel, z, z, x)

    def k(a, b):
        r = np.sqrt(np.sum(((a[:, None] - b) / np.array([0.5, 2.0])) ** 2, -1))
        return 0.8 * np.exp(-0.5 * r**2) + 0.3 * (1 + 3**0.5 * r / 0.4) * np.exp(-(3**0.5) * r / 0.4)

    np.testing.assert_allclose(at_z[:, :30] @ at_z[:, :30].T, k(z, z), atol=1e-5)
    np.testing.assert_allclose(at_x[:, :30] @ at_z[:, :30].T, k(x, z), atol=1e-5)
    np.testing.assert_allclose(at_x[:, 30:], np.column_stack([x, np.ones(5)]))
    expected = np.diag(k(x, x) - k(x, z) @ np.linalg.solve(k(z, z), k(z, x)))
    np.testing.assert_allclose(missing, expected, atol=1e-5)
    np.testing.assert_allclose(none, 0, atol=1e-5)


def test_the_weights_of_a_mixture_maximise_its_density(studies):
    log_p = np.random.default_rng(3).normal(size=(2, 40)) + np.array([[0.3], [0.0]])
    w = np.linspace(0.001, 0.999, 999)
    density = np.logaddexp(np.log(w)[:, None] + log_p[0], np.log(1 - w)[:, None] + log_p[1]).sum(1)
    best = w[np.argmax(density + np.log(w) + np.log(1 - w))]
    np.testing.assert_allclose(studies["uci"].mixture_weights(log_p), [best, 1 - best], atol=2e-3)


def test_validation_rows_are_neither_train_nor_test(studies, data_dir):
    del data_dir
    whole = studies["uci"].data.uci("yacht")
    for split in range(20):
        train, held = whole.rows(split, validate=True)
        assert len(train) + len(held) + whole.test.shape[1] == 308
        assert not set(held) & set(whole.test[split]) and not set(train) & set(whole.test[split])
        assert not set(train) & set(held)


@pytest.mark.slow
def test_the_hierarchy_beats_constant_noise_on_yacht(studies, data_dir):
    """The published depth-one fit has an NLL of 1.33 on average; 150 features and one level do better on split 1."""
    del data_dir
    study = studies["uci"]
    small = study.Settings(features=150, levels=1)
    exact = study.fit("yacht", 0, small)
    stopped = study.fit("yacht", 0, small._replace(mean_field=True, student=False))
    assert exact["residual"] <= 1e-5 and stopped["sweeps"] == 60
    assert exact["nll"] < 1.2 and stopped["nll"] < 1.2
