"""The contestants of `benchmarks/speed.py` iterate the same maps: their answers are ours."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def cases():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import speed
        import speed_cases
    finally:
        sys.path.remove(str(BENCHMARKS))
    return speed, speed_cases


def check(cases, case):
    ours, *others = (c for c in case.contestants.values() if c.agrees)
    answer = ours.call()
    for other in others:
        assert cases[0].agreement(answer, other.call()) < 1e-8
    return case.error(answer).largest


@pytest.mark.filterwarnings("ignore:.*has not converged")  # a fixed number of sweeps
def test_poisson_chain(cases):
    assert check(cases, cases[1].poisson(np.float64, 60)) < 0.1


def test_hidden_markov_model(cases):
    assert check(cases, cases[1].hidden_markov(np.float64, 3, 40)) < 1e-10


def test_linear_gaussian_chain(cases):
    assert check(cases, cases[1].linear_gaussian(np.float64, 2, 40)) < 1e-8


@pytest.mark.slow
def test_mean_and_precision(cases):
    assert check(cases, cases[1].mean_precision(np.float64, 32)) < 0.2


@pytest.mark.slow
def test_heteroscedastic_regression(cases):
    check(cases, cases[1].heteroscedastic(np.float64, 30, 4, 3))
