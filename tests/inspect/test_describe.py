"""`describe()`: what a plan says of itself, for arrays and for shapes alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, MvNormal, Normal, Poisson, dot, exp, take


def chain(y, mask=None, sigma2=0.1):
    def step(z, x):
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=x[0], mask=x[1])
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=10.0)), (y, mask))


def mean_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def regression(x, y):
    w = ngmp.sample("w", MvNormal(np.zeros(x.shape[-1]), covariance=1.0))
    ngmp.sample("y", Normal(dot(x, w), variance=1.0), obs=y)


def hidden_markov(y):
    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=take(np.full((2, 2), 0.5), z)))
        ngmp.sample("y", Categorical(probs=take(np.full((2, 3), 1 / 3), z)), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.full(2, 0.5))), y)


def dense(y):
    x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
    ngmp.sample("y", Normal(x - x[np.array([1, 2, 0])], variance=1.0), obs=y)


def shape(*sizes: int, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype or jnp.result_type(float))


def row(text: str, *start: str) -> str:
    """The line of a table that starts with these cells."""
    lines = [line for line in text.splitlines() if line.split()[: len(start)] == list(start)]
    assert len(lines) == 1, f"{start} in\n{text}"
    return lines[0]


def section(text: str, title: str) -> str:
    return text.split(f"\n{title}\n")[1].split("\n\n")[0]


def test_a_chain():
    text = ngmp.compile(chain).lower(y=shape(50), mask=shape(50, dtype=bool)).describe()
    assert text.startswith("program chain (float")
    assert row(section(text, "variables"), "z").split() == ["z", "Gaussian", "(50,)"]
    factors = section(text, "factors")
    assert factors.split("\n")[0].split() == ["site", "count", "kernel", "interface", "family", "rule", "touches"]
    assert row(factors, "z0", "1").split()[2:6] == ["NormalNoise", "r", "Gaussian", "conjugate"]
    assert "50" in row(factors, "z") and "shift(1)" in row(factors, "z") and "shift(0)" in row(factors, "z")
    seen = row(factors, "y")
    assert "50 masked" in seen and "PoissonLog" in seen and "NGMP" in seen
    core = section(text, "conjugate core")
    assert "chain: 1 chain of 51 variables" in core and "O(" in core and "a sweep" in core
    assert "y.z: projected at the marginal the data suggest" in section(text, "initialisation")
    assert "at most 500 sweeps" in text and "relative residual of" in text


def test_two_interfaces_of_one_factor():
    program = ngmp.compile(mean_precision, method=ngmp.NGMP(projection=ngmp.Unscented()), max_sweeps=7, tol=1e-3)
    text = program.lower(shape(12)).describe()
    factors = section(text, "factors").split("\n")
    first = next(i for i, line in enumerate(factors) if line.split()[0] == "y")
    assert factors[first].split()[1:5] == ["12", "NoisePrecision", "r", "Gaussian"]
    assert factors[first + 1].split()[:2] == ["tau", "Gamma"]
    assert "Unscented" in factors[first] and "one(0)" in factors[first]
    assert "y.r: " in text and "y.tau: " in text
    assert "at most 7 sweeps, to a relative residual of 0.001" in text
    assert "product: 1 Gamma variable(s)" in text and "independent" in text
    assert "approximate: y" in section(text + "\n\n", "warnings")


def test_conjugate_models_need_no_iteration():
    text = ngmp.compile(regression).lower(x=shape(10, 3), y=shape(10)).describe()
    assert "MvGaussian[3]" in text and "dot MvGaussian[3]" in text and "Cholesky" in text
    assert "exact in one sweep" in text and "none needed: every factor is conjugate" in text
    text = ngmp.compile(hidden_markov).lower(y=shape(10, dtype=int)).describe()
    assert "CategoricalTransition" in text and "CategoricalEmission" in text and "chain of 11 categorical" in text
    assert "warnings" not in text


def test_a_model_without_variables():
    text = ngmp.compile(lambda y: ngmp.sample("y", Poisson(2.0), obs=y)).lower(y=shape(3)).describe()
    assert section(text, "variables").strip() == "none"
    assert row(section(text, "factors"), "y").split() == ["y", "3", "ConstantFactor", "-", "-", "constant", "-"]


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (chain, {"y": (1500,)}, "float32 on a chain of over 1000 variables"),
        (mean_precision, {"y": (5,)}, "float32 with Gamma variables"),
        (dense, {"y": (3,)}, "float32 Cholesky"),
    ],
)
def test_float32_is_warned_of_where_it_is_risky(model, inputs, words, x64):
    single = {k: shape(*v, dtype=jnp.float32) for k, v in inputs.items()}
    text = ngmp.compile(model).lower(**single).describe()
    assert "(float32)" in text and words in section(text + "\n\n", "warnings")
    if x64:
        double = {k: shape(*v) for k, v in inputs.items()}
        text = ngmp.compile(model).lower(**double).describe()
        assert "(float64)" in text and words not in text


def test_arrays_and_shapes_give_the_same_text():
    program = ngmp.compile(chain)
    assert program.lower(y=np.zeros(5)).describe() == program.lower(y=shape(5)).describe()
    assert repr(program.lower(y=shape(5))) == program.lower(y=shape(5)).describe()


def test_size_is_no_matter():
    """The text, like the program, has as many lines for 5 steps as for 500."""
    program = ngmp.compile(chain)
    short, long = (program.lower(y=shape(n)).describe() for n in (5, 500))
    assert short.count("\n") == long.count("\n")


def test_rules_by_site():
    def model(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        ngmp.sample("a", Poisson(exp(z)), obs=y)
        ngmp.sample("b", Poisson(exp(z)), obs=y)

    rules = {"b": ngmp.NGMP(projection=ngmp.GaussHermite(5))}
    factors = section(ngmp.compile(model, rules=rules).lower(y=shape(3)).describe(), "factors")
    assert "GaussHermite(n=5)" in row(factors, "b") and "GaussHermite" not in row(factors, "a")


def test_lowering_reports_problems_too():
    def model(y):
        ngmp.sample("y", Poisson(ngmp.sample("z", Normal(0.0, variance=1.0))), obs=y)

    with pytest.raises(ngmp.ModelError, match="site 'y', interface rate"):
        ngmp.compile(model).lower(y=shape(3))
    with pytest.raises(TypeError, match="'y'"):
        ngmp.compile(model).lower()
