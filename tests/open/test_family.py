"""A family the package does not know is one new file, never an edit of a pass: this file is one.

It brings the log-normal family on the positive half-line, the distribution that declares such a variable, and its
prior. Everything else, from quadrature over errors to drawings, asks the family.
"""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import ngmp_compiler as ngmp
from ngmp_compiler import InverseGamma, Normal, Poisson, exp
from ngmp_compiler.errors import ModelError
from ngmp_kernels import AbstractConjugate
from ngmp_kernels.distribution import CONSTANT, Distribution, Lowered, Signature, as_float
from ngmp_kernels.families import FAMILIES, AbstractFamily, Gaussian, register


@register
class LogGaussian(AbstractFamily):
    """`log z ~ N(m, v)`: T(z) = (log z, log^2 z), eta = (m/v - 1, -1/(2v)); the 1 is the Jacobian of the logarithm."""

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "loggaussian"
    symbol: ClassVar[str] = "LogN"
    integrated: ClassVar[str] = "always"

    @classmethod
    def of(cls, log: Gaussian) -> Self:
        return cls(log.eta1 - 1, log.eta2)

    @property
    def log(self) -> Gaussian:
        """The distribution of the logarithm."""
        return Gaussian(self.eta1 + 1, self.eta2)

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        return cls(jnp.zeros(batch_shape, dtype), jnp.zeros(batch_shape, dtype))

    @classmethod
    def from_mean(cls, *mu: Any) -> Self:
        return cls.of(Gaussian.from_mean(*mu))

    @property
    def mean(self) -> Array:
        return jnp.exp(self.log.mean + 0.5 * self.log.variance)

    @property
    def variance(self) -> Array:
        return jnp.expm1(self.log.variance) * self.mean**2

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return self.log.statistics(jnp.log(z))

    def log_partition(self) -> Array:
        return self.log.log_partition()

    def to_mean(self) -> tuple[Array, Array]:
        return self.log.to_mean()

    def log_density(self, z: Array) -> Array:
        return self.log.log_density(jnp.log(z)) - jnp.log(z)

    def entropy(self) -> Array:
        return self.log.entropy() + self.log.mean

    def kl(self, other: Self) -> Array:
        return self.log.kl(other.log)

    def is_proper(self) -> Array:
        return self.log.is_proper()

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        return jnp.exp(self.log.sample(key, shape))

    def nodes(self, rule: Any) -> tuple[Array, Array]:
        z, log_weights = self.log.nodes(rule)
        return jnp.exp(z), log_weights

    def inverse_cdf(self, p: Array) -> Array:
        return jnp.exp(self.log.inverse_cdf(p))


class LogNormalPrior(AbstractConjugate):
    """`f(z) = LogNormal(z; location, variance)`."""

    interfaces: ClassVar = ("z",)
    families: ClassVar = (LogGaussian,)
    location: Float[Array, " #n"]
    spread: Float[Array, " #n"]

    def _family(self) -> LogGaussian:
        return LogGaussian.of(Gaussian.from_mean_variance(self.location, self.spread))

    def log_density(self, z: Array) -> Array:
        return self._family().log_density(z)

    def message(self) -> tuple[LogGaussian, Array]:
        return self._family(), -self._family().log_partition()

    def checks(self) -> dict[str, Array]:
        return {"the variance must be positive": self.spread > 0.0}

    def moments(self, z: Array) -> tuple[Array, Array]:
        return jnp.broadcast_to(self._family().mean, z.shape), jnp.broadcast_to(self._family().variance, z.shape)


class LogNormal(Distribution):
    """`LogNormal(location, variance=)`."""

    __slots__ = ()
    family = LogGaussian
    event_ndims: ClassVar = {"out": 0, "location": 0, "variance": 0}
    placeholder = 1.0
    signatures = (
        Signature(
            {"out": frozenset({LogGaussian.kind}), "location": CONSTANT, "variance": CONSTANT},
            lambda out, location, variance: Lowered(LogNormalPrior(as_float(location), as_float(variance)), (out,)),
            LogNormalPrior,
        ),
    )

    def __init__(self, location: Any, *, variance: Any):
        self.arguments = {"location": location, "variance": variance}


def _log_poisson(rate: Array, y: Array) -> Array:
    return y * jnp.log(rate) - rate - jax.scipy.special.gammaln(y + 1.0)


def rates(y):
    rate = ngmp.sample("rate", LogNormal(0.5, variance=2.0))
    ngmp.factor("y", _log_poisson, rate, y)


def log_rates(y):
    z = ngmp.sample("z", Normal(0.5, variance=2.0))
    ngmp.sample("y", Poisson(rate=exp(z)), obs=y)


COUNTS = np.array([3.0, 0.0, 5.0, 2.0])


def test_the_same_model_in_the_logarithm_has_the_same_posterior():
    """Projections do not depend on how a variable is written: this is the Gaussian edge, seen through exp."""
    ours, theirs = ngmp.compile(rates)(y=COUNTS), ngmp.compile(log_rates)(y=COUNTS)
    rate, z = ours["rate"], theirs["z"]
    assert ours.converged and isinstance(rate, LogGaussian)
    np.testing.assert_allclose([rate.log.mean, rate.log.variance], [z.mean, z.variance], rtol=1e-6)
    np.testing.assert_allclose(ours.free_energy, theirs.free_energy, rtol=1e-5)
    np.testing.assert_allclose(rate.quantile(0.25), jnp.exp(z.quantile(0.25)), rtol=1e-6)
    assert rate.std.shape == () and rate.std > 0


def test_it_is_described_and_drawn():
    lowered = ngmp.compile(rates).lower(y=COUNTS)
    assert "product: 1 LogGaussian variable(s)" in lowered.describe()
    svg = lowered.draw()
    assert "LogGaussian" in svg and "LogN*" in svg and "product" in svg


def test_errors_name_it():
    def model(y):
        ngmp.sample("y", Normal(ngmp.sample("z", LogNormal(0.0, variance=1.0)), variance=1.0), obs=y)

    with pytest.raises(ModelError, match="no kernel where mean is a LogGaussian variable"):
        ngmp.compile(model)(y=COUNTS)


def test_a_family_that_lacks_a_method_is_refused():
    with pytest.raises(TypeError, match="Half lacks from_mean, .*statistics.*variance, kind, nodes"):

        @register
        class Half(AbstractFamily):
            event_ndim: ClassVar[int] = 0
            integrated: ClassVar[str] = "always"


def test_two_families_of_one_name_are_refused():
    for name, kind in (("LogGaussian", "another"), ("Another", "loggaussian")):
        with pytest.raises(ValueError, match="LogGaussian, of kind 'loggaussian', is registered already"):
            register(type(name, (LogGaussian,), {"__annotations__": {}, "kind": kind}))
    assert FAMILIES["loggaussian"] is LogGaussian


def test_any_scalar_family_may_stand_in_a_log_density():
    """An inverse Gamma variable with its own conjugate likelihood, written as a log-density: the exact posterior."""

    def model(y):
        v = ngmp.sample("v", InverseGamma(3.0, scale=2.0))
        ngmp.factor("y", lambda v, y: -0.5 * jnp.log(v) - 0.5 * y * y / v, v, y)

    program = ngmp.compile(model)
    v: Any = program(y=COUNTS)["v"]
    np.testing.assert_allclose(v.concentration, 3.0 + 0.5 * len(COUNTS), rtol=1e-6)
    np.testing.assert_allclose(v.scale, 2.0 + 0.5 * np.sum(COUNTS**2), rtol=1e-6)
    assert "InverseGamma*" in program.lower(y=COUNTS).draw()
