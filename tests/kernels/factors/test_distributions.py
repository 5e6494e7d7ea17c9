"""Declarations: constructors, signatures and what they lower to, with stand-ins for the compiler's expressions."""

import timeit

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

from ngmp_kernels import (
    REGISTRY,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Distribution,
    Gamma,
    MvNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    register,
)
from ngmp_kernels.distribution import Signature
from tests.kernels.factors.stand_ins import Expression, G, Take, X, lower

TAU = Expression("tau", "gamma")
P = Expression("p", "beta")


# -- declarations -----------------------------------------------------------------------------------------------------


def test_registry():
    names = "Normal MvNormal Gamma InverseGamma Wishart Beta Dirichlet Poisson Bernoulli Binomial NegativeBinomial "
    names += "StudentT Categorical HalfNormal HalfCauchy Cauchy Laplace LogNormal Exponential Uniform PCScale "
    names += "LogOfHalfNormal LogOfHalfCauchy MvStudentT "
    names += "LogGamma Weibull Pareto Logistic Multinomial DirichletMultinomial OrderedLogistic OrderedProbit "
    names += "BetaBinomial VonMises"
    assert set(REGISTRY) == set(names.split())
    with pytest.raises(ValueError, match="registered already"):
        register(Normal)


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY)
def test_signatures(cls):
    """Every signature names the outcome and arguments whose event axes are declared."""
    assert issubclass(cls, Distribution) and set(cls.__slots__) <= {"constraint"}  # they are many, and small
    for signature in cls.signatures:
        assert isinstance(signature, Signature)
        assert "out" in signature.arguments
        assert set(signature.arguments) <= set(cls.event_ndims)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Normal(0.0), ["variance=", "precision=", "std=", "none"]),
        (lambda: Normal(0.0, variance=1.0, std=1.0), ["got variance= and std="]),
        (lambda: MvNormal(np.zeros(2)), ["covariance=", "precision="]),
        (lambda: MvNormal(np.zeros(2), covariance=1.0, precision=1.0), ["got covariance= and precision="]),
        (lambda: Gamma(2.0), ["rate=", "scale="]),
        (lambda: Gamma(2.0, rate=1.0, scale=1.0), ["got rate= and scale="]),
        (lambda: Bernoulli(), ["probs=", "logits="]),
        (lambda: Binomial(3, probs=0.5, logits=0.0), ["got probs= and logits="]),
        (lambda: Categorical(), ["probs=", "logits="]),
        (lambda: StudentT(3.0, 0.0), ["scale"]),
        (lambda: NegativeBinomial(mean=1.0), ["dispersion"]),
        (lambda: Normal(0.0, 1.0), ["positional"]),
        (lambda: Gamma(1.0, 1.0), ["positional"]),
    ],
)
def test_scale_given_once(make, words):
    with pytest.raises(TypeError) as error:
        make()
    assert all(word in str(error.value) for word in words)


def test_contract_keywords():
    assert Gamma(concentration=2.0, rate=1.0).arguments == {"concentration": 2.0, "rate": 1.0}
    with pytest.raises(TypeError, match=r"got shape= \(did you mean concentration=\?\)"):
        Gamma(shape=2.0, rate=1.0)  # type: ignore[call-arg]
    assert Normal(mean=X, precision=TAU).arguments == {"mean": X, "precision": TAU}
    assert repr(Beta(1, b=2)) == "Beta(a=1, b=2)"
    assert Poisson(rate=1.0).key == Poisson(2.0).key != Beta(1.0, 1.0).key


def test_declaration_is_cheap():
    """A Python loop over ten thousand data declares as many distributions: microseconds each, no arrays made."""
    for make in (lambda: Normal(X, variance=0.1), lambda: Poisson(G), lambda: Categorical(probs=P)):
        seconds = min(timeit.repeat(make, number=1000, repeat=5)) / 1000
        assert seconds < 5e-6
    assert Normal(X, variance=0.1).arguments["variance"] == 0.1


# -- lowering ---------------------------------------------------------------------------------------------------------


def test_normal_signatures():
    lowered = {
        "noise": lower(Normal(X, variance=0.5), Expression("y")),
        "data": lower(Normal(X, std=2.0), 1.0),
        "constants": lower(Normal(1.0, precision=2.0), 3.0),
        "tau": lower(Normal(1.0, precision=TAU), 3.0),
        "r, tau": lower(Normal(X, precision=TAU), 3.0),
        "s": lower(Normal(1.0, variance=G), 3.0),
        "r, s": lower(Normal(X, std=G), Expression("y")),
    }
    texts = {k: [getattr(i, "text", "array") for i in v.interfaces] for k, v in lowered.items()}
    assert texts == {
        "noise": ["(y - x)"],
        "data": ["(c - x)"],
        "constants": ["array"],
        "tau": ["tau"],
        "r, tau": ["(c - x)", "tau"],
        "s": ["-1.0*g"],
        "r, s": ["(y - x)", "-2.0*g"],
    }
    assert lower(Normal(X, precision=G), 1.0).interfaces[1] is G
    np.testing.assert_allclose(lowered["noise"].factor.precision, 2.0)
    np.testing.assert_allclose(lowered["data"].factor.precision, 0.25)
    np.testing.assert_allclose(lowered["constants"].interfaces[0], 2.0)


@pytest.mark.parametrize("scale", ["variance", "precision", "std"])
def test_bad_scales_are_reported(scale):
    """A negative std is not squared away, and a zero warns nobody but the check."""
    for bad in (-1.0, 0.0):
        for wrap in (jnp.asarray, np.asarray):
            signature = next(s for s in Normal.signatures if scale in s.arguments)
            factor = signature.lower(out=X, mean=wrap([0.0]), **{scale: wrap([bad])}).factor
            (ok,) = factor.checks().values()
            assert not bool(ok[0])


def test_numpy_stays_known_while_compiling():
    """Under jit, checks on numpy constants can be evaluated at once."""

    @jax.jit
    def run(y):
        factor = Normal.signatures[1].lower(out=y, mean=np.zeros(1), variance=np.array([-1.0])).factor
        with jax.ensure_compile_time_eval():
            (ok,) = factor.checks().values()
            assert not bool(ok[0])
        return factor.log_density(y)

    run(jnp.ones(3))


@pytest.mark.parametrize(
    ("declare", "out", "frozen"),
    [
        (lambda: Gamma(2.5, rate=np.array([1.0, 3.0])), [0.7, 2.0], st.gamma(2.5, scale=1 / np.array([1.0, 3.0]))),
        (lambda: Gamma(2.5, scale=2.0), [0.7, 2.0], st.gamma(2.5, scale=2.0)),
        (lambda: Beta(2.0, 0.5), [0.1, 0.9], st.beta(2.0, 0.5)),
        (lambda: Poisson(np.array([0.5, 4.0, 0.0])), [0, 7, 0], st.poisson([0.5, 4.0, 0.0])),
        (lambda: Bernoulli(probs=0.3), [0, 1], st.bernoulli(0.3)),
        (lambda: Bernoulli(logits=0.3), [0, 1], st.bernoulli(sp.expit(0.3))),
        (lambda: Binomial(5, probs=0.3), [0, 2, 5], st.binom(5, 0.3)),
        (lambda: Binomial(np.array([5, 6, 7]), logits=0.3), [0, 2, 7], st.binom([5, 6, 7], sp.expit(0.3))),
        (lambda: NegativeBinomial(mean=3.0, dispersion=2.0), [0, 2, 9], st.nbinom(2.0, 0.4)),
        (lambda: StudentT(4.0, 1.0, scale=2.0), [0.0, 9.0], st.t(4.0, 1.0, 2.0)),
    ],
)
def test_constants_against_scipy(declare, out, frozen, x64):
    """With constants everywhere a factor is a number, predicts its outcome, and accepts sound data."""
    factor, interfaces = lower(declare(), np.asarray(out))
    assert interfaces == ()
    logs = frozen.logpmf(out) if hasattr(frozen, "logpmf") else frozen.logpdf(out)
    tol = 1e-10 if x64 else 1e-5
    np.testing.assert_allclose(factor.message()[1], logs, rtol=tol, atol=tol)
    mean, variance = factor.moments()
    np.testing.assert_allclose(mean, np.broadcast_to(frozen.mean(), np.shape(out)), rtol=tol)
    np.testing.assert_allclose(variance, np.broadcast_to(frozen.var(), np.shape(out)), rtol=tol)
    assert all(bool(jnp.all(ok)) for ok in factor.checks().values())


def test_constant_vectors_against_scipy(x64):
    alpha, p = np.array([1.0, 2.0, 3.5]), np.array([0.2, 0.3, 0.5])
    factor, _ = Dirichlet.signatures[1].lower(out=jnp.asarray(p[None]), concentration=jnp.asarray(alpha[None]))
    np.testing.assert_allclose(factor.value, st.dirichlet(alpha).logpdf(p), rtol=1e-5)
    assert all(bool(jnp.all(ok)) for ok in factor.checks().values())
    (signature,) = [s for s in Categorical.signatures if s.arguments.get("probs") == s.arguments["out"] == {"constant"}]
    factor, _ = signature.lower(out=jnp.array([2.0, 0.0]), probs=jnp.asarray(p[None]))
    np.testing.assert_allclose(factor.value, np.log([0.5, 0.2]), rtol=1e-6)
    np.testing.assert_allclose(factor.mean, np.stack([p, p]), rtol=1e-6)


@pytest.mark.parametrize(
    ("declare", "bad"),
    [
        (lambda: Gamma(1.0, rate=1.0), -1.0),
        (lambda: Beta(1.0, 1.0), 1.5),
        (lambda: Poisson(1.0), 0.5),
        (lambda: Poisson(-1.0), 0),
        (lambda: Bernoulli(probs=1.2), 1),
        (lambda: Bernoulli(probs=0.2), 2),
        (lambda: Binomial(3, probs=0.2), 4),
        (lambda: NegativeBinomial(mean=-1.0, dispersion=1.0), 0),
        (lambda: StudentT(0.0, 0.0, scale=1.0), 0.0),
    ],
)
def test_bad_constants_are_reported(declare, bad):
    checks = lower(declare(), bad).factor.checks()
    assert not all(bool(jnp.all(ok)) for ok in checks.values())


@pytest.mark.parametrize("name", ["covariance", "precision"])
def test_mv_normal(name, x64):
    """Scalar, vector and matrix scales, against scipy; wrong shapes are refused."""
    r = np.array([[0.3, -1.0, 2.0]])
    root = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.2, 0.7]])
    signature = next(s for s in MvNormal.signatures if name in s.arguments)
    for scale in (np.array(2.0), np.array([1.0, 2.0, 3.0]), root @ root.T):
        given = jnp.asarray(scale)[None]
        factor, (residual,) = signature.lower(out=jnp.asarray(r) + 1.0, mean=jnp.ones((1, 3)), **{name: given})
        full = scale * np.eye(3) if scale.ndim < 2 else scale
        full = full if name == "covariance" else np.linalg.inv(full)
        expected = st.multivariate_normal(np.zeros(3), full)
        tol = 1e-10 if x64 else 1e-5
        np.testing.assert_allclose(factor.log_density(residual), expected.logpdf(r[0]), rtol=tol)
        np.testing.assert_allclose(factor.moments(-residual)[1][0], np.diag(full), rtol=10 * tol)
        assert bool(jnp.all(next(iter(factor.checks().values()))))
    for indefinite in (-jnp.ones(1), jnp.array([[1.0, -1.0, 1.0]]), -jnp.eye(3)[None]):
        factor, _ = signature.lower(out=jnp.asarray(r), mean=jnp.ones((1, 3)), **{name: indefinite})
        assert not bool(next(iter(factor.checks().values()))[0])
    with pytest.raises(ValueError, match="a vector of 3"):
        signature.lower(out=jnp.asarray(r), mean=jnp.ones((1, 3)), **{name: jnp.ones((1, 4))})


def test_links_and_conjugate_partners():
    """Interfaces of the likelihoods are the variables themselves."""
    assert lower(Poisson(G), np.array([1, 2])).interfaces == (G,)
    assert lower(Poisson(TAU), np.array([1, 2])).interfaces == (TAU,)
    assert lower(NegativeBinomial(mean=G, dispersion=2.0), np.array([1])).interfaces == (G,)
    assert lower(Bernoulli(logits=X), np.array([True, False])).interfaces == (X,)
    assert lower(Bernoulli(probs=P), np.array([1, 0])).interfaces == (P,)
    assert lower(Binomial(3, logits=X), np.array([1, 0])).interfaces == (X,)
    assert lower(Binomial(3, probs=P), np.array([1, 0])).interfaces == (P,)
    assert lower(StudentT(3.0, X, scale=1.0), 2.0).interfaces[0].text == "(c - x)"
    b = Expression("b", "bernoulli")
    assert lower(Bernoulli(probs=0.5), b).interfaces == (b,)
    for distribution, kind in ((Gamma(1.0, rate=2.0), "gamma"), (Beta(1.0, 1.0), "beta")):
        out = Expression("v", kind)
        assert lower(distribution, out).interfaces == (out,)
    with pytest.raises(LookupError):
        lower(Poisson(X), np.array([1]))


def test_categorical(x64):
    table = jnp.array([[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]])
    z, out = Expression("z", "categorical"), Expression("k", "categorical")
    take = Take(table)
    take.indices = (z,)
    factor, interfaces = lower(Categorical(probs=take), out)
    assert interfaces == ((z, out),)
    assert factor.message()[0].eta1.shape == (1, 2, 3)
    assert bool(jnp.all(jnp.isfinite(factor.message()[0].eta1)))  # structural zeros too
    factor, interfaces = lower(Categorical(probs=take), np.array([0, 2, 1]))
    assert interfaces == (z,)
    np.testing.assert_allclose(jnp.exp(factor.message()[0].eta1), [[0.9, 0.2], [0.0, 0.5], [0.1, 0.3]], rtol=1e-6)
    assert all(bool(jnp.all(ok)) for ok in factor.checks().values())
    # Logits of a table are normalised row by row.
    logits = Take(jnp.log(table + 1e-3) + 5.0)
    factor, _ = lower(Categorical(logits=logits), out)
    np.testing.assert_allclose(jnp.exp(factor.log_table).sum(-1), 1.0, rtol=1e-6)
    probs = Expression("p", "dirichlet", (3,))
    factor, interfaces = lower(Categorical(probs=probs), np.array([0.0, 2.0, 3.0, 0.5]))
    assert interfaces == (probs,)
    (ok,) = factor.checks().values()
    np.testing.assert_array_equal(ok, [True, True, False, False])


def test_placeholders_are_valid():
    """The outcome put where data are masked passes the checks of the data."""
    for distribution in (
        Gamma(1.0, rate=1.0),
        Beta(1.0, 1.0),
        Poisson(1.0),
        Bernoulli(probs=0.5),
        Binomial(3, probs=0.5),
        NegativeBinomial(mean=1.0, dispersion=1.0),
        StudentT(3.0, 0.0, scale=1.0),
    ):
        factor = lower(distribution, distribution.placeholder).factor
        assert all(bool(jnp.all(ok)) for ok in factor.checks().values())
        assert bool(jnp.isfinite(factor.value[0]))
