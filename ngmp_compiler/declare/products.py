"""Products in an argument of an observed site, as in `Bernoulli(logits=a * (theta - b))`: its density as a factor.

A Normal has kernels for products in its mean. Of any other outcome the log-density at known arguments is known, and a
factor of the unknowns behind the products is made of it, with all of them on one edge where that is the rule.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from ngmp_kernels import GenericDensity
from ngmp_kernels.distribution import GAUSSIAN

from .arguments import checked_arguments, checked_mask, common_batch_shape
from .compound import Product
from .expressions import kinds_of
from .frame import Frame, Site, outermost, refuse
from .gates import gates
from .renewed import touches_new


@dataclasses.dataclass(frozen=True)
class _LogDensity:
    """The log-density of an outcome, as a function of its value, of the arguments, and of the sides of products.

    Attributes:
        kind, place: of the distribution and, in it, of the signature of known arguments.
        names: of the arguments.
        pairs: how many products each has; after its rest follow their sides.
    """

    kind: Any
    place: int
    names: tuple[str, ...]
    pairs: tuple[int, ...]

    def __call__(self, out: Any, *values: Any) -> Any:
        found, rest = {}, iter(values)
        for name, count in zip(self.names, self.pairs, strict=True):
            found[name] = next(rest) + sum(next(rest) * next(rest) for _ in range(count))
        given = {k: jnp.asarray(x)[None] for k, x in {"out": out, **found}.items()}
        factor = self.kind.signatures[self.place].lower(**given).factor
        fine = jnp.all(jnp.stack([jnp.all(x) for x in factor.conditions.values()] or [jnp.asarray(True)]))
        return jnp.where(fine, factor.value[0], jnp.nan)


def as_density(name: str, distribution: Any, obs: Any) -> GenericDensity | None:
    """The density of an observed site as a factor, if an argument that has no kernel for products holds some."""
    held = {k: v for k, v in distribution.arguments.items() if type(v) is Product}
    # Where no Gaussian may stand, as for a rate, no product of them may: it can be negative.
    real = all(any(GAUSSIAN <= s.arguments.get(k, frozenset()) for s in distribution.signatures) for k in held)
    if obs is None or not held or not real or any("lefts" in s.arguments for s in distribution.signatures):
        return None
    names = tuple(distribution.arguments)
    known = [i for i, s in enumerate(distribution.signatures)
             if all("constant" in s.arguments.get(k, ()) for k in ("out", *names))]  # fmt: skip
    vectors = [k for k in names if distribution.event_ndims.get(k)] or [k for k, v in held.items() if v.rows]
    if vectors or not known:
        works = "write it with ngmp.factor"
        refuse(name, f"argument {next(iter(held))}", f"a product of unknowns in a {distribution.label}", works)
    values: list[Any] = [obs]
    for value in distribution.arguments.values():
        values += [value.rest, *(side for pair in value.pairs for side in pair)] if type(value) is Product else [value]
    counts = tuple(len(held[k].pairs) if k in held else 0 for k in names)
    return GenericDensity(_LogDensity(type(distribution), known[0], names, counts), tuple(values))


def declare(frame: Frame, name: str, density: GenericDensity, mask: Any = None) -> None:
    """Record a factor that is given by its log-density."""
    constant = all(kind == "constant" for kind in kinds_of(checked_arguments(name, density)).values())
    if constant and outermost().coordinates is None:
        refuse(name, None, "the factor touches no random variable", "give it one to three, after the log-density")
    if outermost().fresh is not None and not touches_new(density.arguments):
        return
    every = gates(density, True)
    batch = common_batch_shape(name, every[0], every[0].arguments)
    if batch is not None:
        mask = checked_mask(name, mask, batch, True)
        frame.sites.extend([Site(name, d, dict(d.arguments), d.event_ndims, mask, batch, False) for d in every])
