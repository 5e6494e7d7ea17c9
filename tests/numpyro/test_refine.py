"""`program.refine` and `program.loo` of NumPyro models: their own NUTS, from our posterior."""

import sys
from pathlib import Path

import numpy as np
import pytest
from jax.scipy.special import logsumexp

import ngmp_compiler as ngmp

pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
infer = pytest.importorskip("numpyro.infer")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import numpyro_more_cases  # noqa: E402, F401
from numpyro_cases import CASES  # noqa: E402

sys.path.pop(0)


@pytest.mark.parametrize(
    "name", ["logistic", "mean_precision", pytest.param("schools_noncentred", marks=pytest.mark.slow)]
)
def test_draws_are_of_the_model_itself_and_leaving_one_out_agrees_with_them(name, key):
    model, inputs, sites, options, _ = CASES[name]
    program = ngmp.compile(ngmp.from_numpyro(model), **options)
    post = program(**inputs)
    found = program.refine(post, key, draws=500, chains=4, warmup=150, **inputs)
    assert found.ok, found
    for site in sites:
        draws = found.draws[site].reshape(2000, *found.draws[site].shape[2:])
        np.testing.assert_allclose(post[site].mean, draws.mean(0), atol=0.2 * float(np.max(draws.std(0))))
        np.testing.assert_allclose(post[site].std, draws.std(0), rtol=0.15)
    values = {k: x.reshape(2000, *x.shape[2:]) for k, x in found.draws.items()}
    likelihood = np.asarray(infer.log_likelihood(model, values, **inputs)["y"])
    left_out = np.log(len(likelihood)) - np.asarray(logsumexp(-likelihood, axis=0))  # by importance sampling
    np.testing.assert_allclose(program.loo(post, "y", **inputs).elpd, left_out.sum(), atol=0.4)


def test_one_chain_and_a_missing_half(key):
    import numpyro
    import numpyro.distributions as dist

    def model(y, seen):
        m = numpyro.sample("m", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(m, 1.0).expand([len(y)]), obs=y, obs_mask=seen)

    y, seen = np.array([1.0, 2.0, 0.5, 9.0]), np.array([True, True, True, False])
    program = ngmp.compile(ngmp.from_numpyro(model))
    found = program.refine(program(y=y, seen=seen), key, draws=4000, chains=1, warmup=200, y=y, seen=seen)
    variance = 1 / (3 + 0.25)
    np.testing.assert_allclose(found.draws["m"].mean(), 3.5 * variance, atol=0.1)
    np.testing.assert_allclose(found.draws["m"].std(), np.sqrt(variance), rtol=0.1)
    assert set(found.draws) == {"m"} and found.draws["m"].shape == (1, 4000) and found.leapfrogs < 20
