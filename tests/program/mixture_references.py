"""Clusters of data, and what the tests of mixtures share."""

import numpy as np
import pytest

import ngmp_compiler as ngmp

LOG_2PI = np.log(2 * np.pi)


def two_clusters(n=60, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.3
    return np.where(first, rng.normal(-3.0, 0.7, n), rng.normal(2.0, 1.0, n))


SCALAR = {"variance": 10.0, "shape": 2.0, "rate": 1.0, "concentration": 1.5}


def refused(model, *texts, **inputs):
    """The model raises one of our errors, whose text has all of these."""
    with pytest.raises((ngmp.ModelError, ngmp.DataError)) as caught:
        ngmp.compile(model)(**inputs)
    for text in texts:
        assert text in str(caught.value), str(caught.value)
