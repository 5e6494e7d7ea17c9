"""Inputs as people keep them: lists, tables, integers."""

import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, MvNormal, Normal, sample

pd = pytest.importorskip("pandas")
FRAME = pd.DataFrame({"a": [1.0, 2.0, -1.0], "b": [0.5, 0.0, 1.5], "y": [1.0, 2.5, -2.0]})


def regression(data):
    w = sample("w", MvNormal(np.zeros(2), covariance=4.0))
    sample("y", Normal(data[["a", "b"]] @ w, std=1.0), obs=data.y)


def test_columns_by_name():
    X, y = FRAME[["a", "b"]].to_numpy(), FRAME["y"].to_numpy()
    expected = np.linalg.solve(X.T @ X + np.eye(2) / 4.0, X.T @ y)
    np.testing.assert_allclose(ngmp.compile(regression)(FRAME)["w"].mean, expected, rtol=1e-9)


def test_series_lists_and_arrays_are_the_same():
    def model(y):
        sample("y", Normal(sample("m", Normal(0.0, std=1.0)), std=1.0), obs=y)

    program, xr = ngmp.compile(model), pytest.importorskip("xarray")
    means = [float(program(y)["m"].mean) for y in ([1.0, 2.0], pd.Series([1, 2]), xr.DataArray([1.0, 2.0]))]
    np.testing.assert_allclose(means, 1.0, rtol=1e-6)


def test_what_no_table_may_hold():
    program = ngmp.compile(regression)
    with pytest.raises(TypeError, match=r"input 'data\['b'\]' has values of type .*'x' in row 1"):
        program(FRAME.assign(b=[0.5, "x", 1.0]))
    with pytest.raises(ValueError, match=r"input 'data\['b'\]' has a missing value in row 2"):
        program(FRAME.assign(b=[0.5, 1.0, np.nan]))
    with pytest.raises(KeyError, match="no column 'a'"):
        program(FRAME[["y"]])
    more = FRAME.assign(who=["Ann", "Bob", "Cy"], late=[np.nan, 1.0, 2.0])  # no business of the model
    np.testing.assert_array_equal(program(more)["w"].mean, program(FRAME)["w"].mean)


def test_integers_are_data_unless_structure_depends_on_them():
    calls = []

    def model(y, n, steps):
        calls.append(1)
        z = sample("z", Normal(0.0, std=1.0))
        for _ in range(steps):
            sample("u", Normal(z, std=1.0), obs=0.5)
        sample("y", Binomial(n, logits=z), obs=y)

    program = ngmp.compile(model)
    first = program(y=3, n=10, steps=2)["z"].mean
    count = len(calls)
    again = program(y=4, n=11, steps=2)["z"].mean
    assert len(calls) == count and again > first
    program.lower(y=4, n=11, steps=3)
    assert len(calls) > count
