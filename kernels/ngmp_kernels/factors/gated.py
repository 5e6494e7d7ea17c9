r"""Gates: a factor that counts only where a categorical variable has a given class.

A site whose parameters a selector z picks, `Normal(take(m, z), precision=take(w, z))`, is a product over classes,

$$ f(x_1, \dots, x_K, z) = \prod_k f_k(x_k)^{[z = k]}, $$

exactly, so it is declared as K gated sites (see `ngmp_compiler.declare.gates`). Each is an ordinary factor with the
interfaces of its base and one more, z. Classes with the same parameters share a gate, which is open at all of them.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..factor import (
    AbstractConjugate,
    AbstractFactor,
    AbstractProjected,
    AbstractQuadrature,
    Cavities,
    Families,
    LogMessage,
    Values,
)
from ..families import AbstractFamily, Categorical
from .around import AbstractAround
from .mixture import Mixture


class Gated(AbstractAround, AbstractProjected):
    r"""`f(x, z) = base(x)^{[z in k]}` for a set k of classes.

    With $\pi_k$ the cavity probability of these classes and $\ell$ the log-messages of the base:
    toward an interface of the base, $\log(1 - \pi_k + \pi_k e^{\ell(x)})$;
    toward z, the log-evidence of the base at the classes of k and zero elsewhere.
    Under mean-field rules: $q(z \in k)$ times the message of the base, and $E[\log \mathrm{base}]$ at the classes of k.

    Attributes:
        base: the factor that counts where z is in k.
        k: ones at the classes of every factor, zeros elsewhere; the cells of their table where there are several z.
        parts: how many gates one outcome has.
        tied: whether the outcome is latent, so that the core may need a first leaf to be proper.
    """

    k: Float[Values, "#n K"]
    parts: int = eqx.field(static=True)
    tied: bool = eqx.field(static=True, default=False)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (*self.base.interfaces, "selector")

    @property
    def families(self) -> Families:
        return (*self.base.families, Categorical)

    def _log_gate(self, z: Categorical) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """`log pi_k` and `log(1 - pi_k)`, each as a sum over its classes."""
        log_probs = jax.nn.log_softmax(z.eta1, axis=-1)
        own = self._own()
        # Far below any log-probability: in single precision the evidence of a datum is soon less than log(tiny).
        never = jnp.asarray(-1e30, log_probs.dtype)
        open_ = jax.nn.logsumexp(jnp.where(own, log_probs, never), axis=-1)
        return open_, jax.nn.logsumexp(jnp.where(own, never, log_probs), axis=-1)

    def _own(self) -> Bool[Array, "#n K"]:
        return jnp.asarray(self.k) > 0.0

    def _open(self, z: Categorical) -> Float[Array, " n"]:
        """`q(z in k)`."""
        return jnp.sum(jnp.where(self._own(), z.probs, 0.0), axis=-1)

    def log_density(self, *x: Array) -> Array:
        *values, z = x
        return jnp.where(_holds(self.k, z), self.base.log_density(*values), 0.0)

    def _at_class(self, value: Array) -> LogMessage:
        return lambda z: jnp.where(_holds(self.k, z), value, 0.0)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == len(self.base.interfaces):
            return self._at_class(self.base.predictive_log_density(cavities[:-1]))
        open_, shut = self._log_gate(cavities[-1])
        base: Any = self.base
        inner = base.log_message(j, cavities[:-1]) if isinstance(base, AbstractProjected) else base.log_density
        return lambda x: jnp.logaddexp(shut, open_ + inner(x))

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        open_, shut = self._log_gate(cavities[-1])
        return jnp.logaddexp(shut, open_ + self.base.predictive_log_density(cavities[:-1]))

    # -- mean field ---------------------------------------------------------------------------------------------------

    def _expected(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " n"]:
        """`E[log base]`."""
        base: Any = self.base
        if isinstance(base, AbstractConjugate):
            eta, log_scale = base.message()
            assert eta is not None
            return eta.dot(marginals[0].to_mean()) + log_scale
        if len(base.interfaces) == 1:
            return base.expected_log_message(0, marginals[0], marginals[:-1], quadrature)
        return base.expected_log_density(marginals[:-1], quadrature)

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == len(self.base.interfaces):
            return self._at_class(self._expected(marginals, quadrature))
        base: Any = self.base
        unary = len(base.interfaces) == 1
        inner = base.log_density if unary else base.mean_field_message(j, marginals[:-1], quadrature)
        weight = self._open(marginals[-1])
        return lambda x: weight * inner(x)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        base: Any = self.base
        if j == len(base.interfaces):
            return Categorical(jnp.where(self._own(), self._expected(marginals, quadrature)[..., None], 0.0))
        if isinstance(base, AbstractConjugate):
            eta, _ = base.message()
            eta = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), eta, marginals[0])
        elif len(base.interfaces) == 1:
            eta = base.project(0, marginals[0], marginals[:-1], quadrature)
        else:
            eta = base.mean_field_projection(j, marginals[:-1], quadrature)
        return eta * self._open(marginals[-1])

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        return self._open(marginals[-1]) * self._expected(marginals, quadrature)

    def in_family(self) -> tuple[bool, ...]:
        own = self.base.in_family() if isinstance(self.base, AbstractProjected) else (True,)
        return (*own, True)

    def has_projection(self) -> bool:
        return all(f.integrated == "always" for f in self.families)

    def leading(self) -> tuple[int, ...]:
        return (len(self.base.interfaces),)

    def features(self, out: Array) -> Array:
        # The spread of counts and of positive outcomes grows with their size.
        stable = {"count": lambda x: jnp.sqrt(jnp.abs(x)), "positive": lambda x: jnp.log(jnp.maximum(x, 1e-30))}
        return stable.get(self.support or "", lambda x: x)(super().features(out))

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        # Data speak of all classes alike: a start at the data would be the symmetric fixed point of a mixture.
        hints = self.base.initial() if isinstance(self.base, AbstractProjected) else (None,)
        if isinstance(self.base, AbstractConjugate) and self.tied:
            hints = (self.base.message()[0],)
        return (*(hints if self.tied else (None,) * len(hints)), None)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, *x: Array) -> tuple[Array, Array]:
        """Of the outcome given that z = k."""
        return self.base.moments(*x[:-1])

    def predictive(self, repeats: int) -> "Mixture":
        return Mixture(gated=self, repeats=repeats)  # type: ignore[call-arg]

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        return self.base.predictive_moments(marginals[:-1])

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        return self.base.predictive_cdf(out, marginals[:-1])

    def predictive_log_density(self, marginals: Cavities) -> Array:
        return self.base.predictive_log_density(marginals[:-1])


def _holds(k: Float[Values, "#n K"], z: Array) -> Bool[Array, "... n"]:
    """Whether classes z (..., n) are in the sets k."""
    return jnp.any((z[..., None] == jnp.arange(k.shape[-1])) & (jnp.asarray(k) > 0.0), -1)


class GatedConstant(AbstractConjugate):
    """`f(z) = base(values)^{[z in k]}` with all interfaces of the base constant: `log base` at the classes of k.

    With several selectors the message keeps their axes, `shape`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("selector",)
    families: ClassVar[Families] = (Categorical,)
    base: AbstractFactor
    values: tuple[Array, ...]
    k: Float[Values, "#n K"]
    parts: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def support(self) -> str | None:
        return self.base.support

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.base.label})"

    def _value(self) -> Float[Array, " #n"]:
        return jnp.asarray(self.base.log_density(*self.values))

    def log_density(self, z: Array) -> Array:
        return jnp.where(_holds(self.k, z), self._value(), 0.0)

    def message(self) -> tuple[Categorical, Array]:
        eta = jnp.where(jnp.asarray(self.k) > 0.0, self._value()[..., None], 0.0)
        return Categorical(eta.reshape(-1, *self.shape)), jnp.zeros_like(eta[..., 0])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, z: Array) -> tuple[Array, Array]:
        """Of the outcome given that z = k."""
        mean, variance = self.base.moments(*self.values)
        shape = (*z.shape, *mean.shape[1:])
        return jnp.broadcast_to(mean, shape), jnp.broadcast_to(variance, shape)

    def predictive(self, repeats: int) -> "Mixture":
        return Mixture(gated=self, repeats=repeats)  # type: ignore[call-arg]

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        mean, variance = self.base.moments(*self.values)
        shape = (*marginals[0].batch_shape, *mean.shape[1:])
        mean, variance = jnp.broadcast_to(mean, shape), jnp.broadcast_to(variance, shape)
        return mean, jnp.zeros_like(mean), variance

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        return self.base.cdf(out, *self.values)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        return jnp.broadcast_to(self._value(), marginals[0].batch_shape)
