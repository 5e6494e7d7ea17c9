"""Observed outcomes whose parameters are functions of the unknowns behind them, `Poisson(softplus(f))`.

What the outcome's own distribution says at known parameters is known, so the factor is
`f(z_1, ..., z_d) = p(out | g(z_1, ..., z_d))` with all unknowns on it: nothing stands between them and the data.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..distribution import CONSTANT, Distribution, Lowered, Signature
from ..families import Gaussian
from .captured import captured
from .generic import ConstantFactor, GenericDensity, GenericFactor
from .likelihood import at_constants

_TRIALS = (-1.0, -0.1, 0.1, 1.0)
Recipe = Callable[..., tuple[Any, ...]]
"""From the values of all unknowns and constants to the parameters of a distribution; equal ones are the same."""


class Known(eqx.Module):
    """A distribution at known parameters.

    Attributes:
        base: without its parameters.
        place: of its signature for known ones.
    """

    base: Distribution = eqx.field(static=True)
    place: int = eqx.field(static=True)

    def factor(self, out: Any, parameters: Any) -> Any:
        """What the distribution lowers to, all its parameters numbers."""
        given = {k: jnp.asarray(x)[None] for k, x in zip(self.base.arguments, parameters, strict=True)}
        found = self.base.signatures[self.place].lower(out=jnp.asarray(out)[None], **given)
        constant = isinstance(found.factor, ConstantFactor)
        return found.factor if constant else at_constants(found.factor, *found.interfaces).factor

    def log_density(self, out: Any, parameters: Any) -> Array:
        """NaN where the parameters are impossible: a rate that is negative, say."""
        factor = self.factor(out, parameters)
        fine = jnp.all(jnp.stack([jnp.all(x) for x in factor.checks().values()] or [jnp.asarray(True)]))
        return jnp.where(fine, factor.value[0], jnp.nan)


class ThroughFactor(GenericFactor):
    """`f(z) = p(out | g(z))`; its constants are the outcome and those of g, in this order."""

    known: Known | None = None
    parameters: Any = None  # g, stacked in one vector
    even: bool = eqx.field(static=True, default=False)  # whether g is, as f ** 2

    @property
    def support(self) -> str | None:  # type: ignore[override]
        return self.example().support

    @property
    def label(self) -> str:
        assert self.known is not None
        return f"Through({self.known.base.label})"

    def example(self) -> Any:
        """The factor of one outcome at some parameters, for what does not depend on them."""
        ones = jnp.ones(len(self.known.base.arguments))  # type: ignore[union-attr]
        return jax.eval_shape(lambda: self.known.factor(jnp.ones(()), ones))  # type: ignore[union-attr]

    def initial(self) -> tuple[Any, ...]:
        found = super().initial()
        if not self.even:
            return found
        # Of an even function the data do not say which side is meant; the prior may, if it is let.
        q: Any = found[0]
        n = q.mean.shape[0]
        return (Gaussian.from_mean_variance(jnp.abs(q.mean), n * 100.0 * (0.01 + q.mean**2)),)

    def _ordered(self, values: tuple[Array, ...]) -> list[Array]:
        """Outcome, and what g takes, in its order."""
        return [values[i] for i in self.order]  # type: ignore[union-attr]

    def _of(self, read: Callable[[Any], Array], still: bool = False) -> Callable[..., Array]:
        """What is read off the factor at the parameters; `still`: at outcome zero, as moments are."""

        def single(*values: Array) -> Array:
            out, *given = self._ordered(values)
            out = jnp.full_like(out, self.known.base.placeholder) if still else out  # type: ignore[union-attr]
            return read(self.known.factor(out, self.parameters(*given)))  # type: ignore[union-attr, misc]

        return single

    def moments(self, *z: Array) -> tuple[Array, Array]:
        mean = self.each(self._of(lambda f: f.mean[0], still=True), *z)
        return mean, self.each(self._of(lambda f: f.variance[0], still=True), *z)

    def cdf(self, out: Array, *z: Array) -> Array:
        d = len(self.families)

        def single(*values: Array) -> Array:
            own, others = values[d], (*values[:d], *values[d + 1 :])
            return self._of(lambda f: f.cdf(own[None])[0], still=True)(*others)

        return self.each(single, *z, jnp.asarray(out))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        """What is wrong with the outcome is wrong whatever the unknowns are."""
        found = {}
        for sentence in self.example().checks():
            holds = self._of(lambda f, own=sentence: jnp.all(f.checks()[own]))
            tried = [self.each(holds, *(self._trial(k, at) for k in range(len(self.families)))) for at in _TRIALS]
            found[sentence] = functools.reduce(jnp.logical_or, tried)
        return found

    def _trial(self, k: int, at: float) -> Array:
        real = self.families[k] is Gaussian
        return jnp.full(1, at if real else abs(at))


class Through(Distribution):
    """`base` with parameters that are functions; not declared by users, and not in the registry.

    Args:
        base: the distribution; its arguments are not read.
        place: of its signature for known parameters.
        recipe: see `Recipe`.
        values: unknowns and constants that the recipe takes, in order.
    """

    __slots__ = ("base", "place", "recipe")
    family = None

    def __init__(self, base: Distribution, place: int, recipe: Recipe, values: tuple[Any, ...]):
        self.base, self.place, self.recipe = base.blank(), place, recipe
        self.arguments = {f"z{i + 1}": value for i, value in enumerate(values)}

    event_ndims: ClassVar = {"out": 0}

    @property
    def placeholder(self) -> float | int:  # type: ignore[override]
        return self.base.placeholder

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def key(self) -> Hashable:
        return Through, self.base.key, self.place, self.recipe

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        (own,) = GenericDensity(self.recipe, tuple(self.arguments)).signatures  # type: ignore[arg-type]
        kinds = {k: own.arguments[k] for k in self.arguments}
        return (Signature({"out": CONSTANT, **kinds}, self._lower, ThroughFactor),)

    def _lower(self, out: Any, **given: Any) -> Lowered:
        names, known = tuple(given), Known(self.base, self.place)
        values = tuple(given[k] for k in names)

        def log_density(out: Any, *values: Any) -> Array:
            return known.log_density(out, self.recipe(*values))

        if all(hasattr(x, "dtype") for x in values):
            return self._numbers(out, values)
        lowered = GenericDensity(log_density, ()).at(out, *values)
        factor: Any = lowered.factor
        scalars = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) if hasattr(x, "dtype")
                   else jax.ShapeDtypeStruct((), jnp.result_type(float)) for x in values]  # fmt: skip
        parameters = captured(lambda *v: jnp.stack(self.recipe(*v)), *scalars)
        fields = factor.log_density_fn, factor.constants, factor.families, factor.order
        even = len(factor.families) == 1 and _is_even(self.recipe, [hasattr(x, "dtype") for x in values])
        return Lowered(ThroughFactor(*fields, known, parameters, even), lowered.interfaces)  # type: ignore[arg-type]

    def _numbers(self, out: Any, values: tuple[Any, ...]) -> Lowered:
        """Of numbers only: the base itself."""
        found = self._plain(dict(zip(self.arguments, values, strict=True)))
        return self.base.signatures[self.place].lower(out=out, **found)

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        n = max(jnp.shape(x)[0] for x in given.values())
        rows = [jnp.broadcast_to(x, (n, *jnp.shape(x)[1:])) for x in given.values()]
        found = jax.vmap(self.recipe)(*rows)
        return dict(zip(self.base.arguments, found, strict=True))

    def draw(self, key: Any, like: Any, **given: Any) -> Any:
        return self.base.draw(key, like, **self._plain(given))


def _is_even(recipe: Recipe, constant: list[bool]) -> bool:
    """Whether parameters are the same at an unknown and at minus it, with all constants one."""
    try:
        with jax.ensure_compile_time_eval():
            here, there = (recipe(*(1.0 if known else side * 0.7 for known in constant)) for side in (1.0, -1.0))
            return all(bool(jnp.allclose(a, b)) for a, b in zip(here, there, strict=True))
    except (TypeError, jax.errors.JAXTypeError):  # of arrays that it has captured
        return False
