"""`ngmp.functional`: an energy of the marginals of whole variables, declared as one factor of all their elements."""

import math
from collections.abc import Callable
from typing import Any

from ngmp_kernels import EnergyOf
from ngmp_kernels.families import FAMILIES

from .arguments import checked_arguments, site_name
from .expressions import Expression, OnArray, Shape
from .frame import Site, current_frame, refuse
from .redirect import redirected
from .renewed import touches_new


class Whole(Expression):
    """All elements of an expression, as one interface: its batch axes are rows of one factor, not factors."""

    __slots__ = ("inside", "whole")
    batch_shape = ()

    def __init__(self, inside: Any, whole: Shape):
        self.inside = inside
        self.whole: Shape = whole  # the batch shape of what is inside, also once that is flat

    @property
    def rows(self) -> int:
        """How many elements there are."""
        return math.prod(self.whole)

    @property
    def kind(self) -> str:
        return self.inside.kind

    @property
    def leaves(self) -> tuple[Any, ...]:
        return self.inside.leaves

    @property
    def structure(self) -> Any:
        return self.inside.structure, self.whole

    @property
    def eta_shape(self) -> Shape:
        return self.inside.eta_shape

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        return Whole(self.inside.map(on_array, on_variable, on_batch, ndim), self.whole)

    def parameter(self) -> Any:
        return Whole(self.inside.parameter(), self.whole)

    def __repr__(self) -> str:
        return f"Whole({self.inside!r})"


@redirected
def functional(name: str, energy: Callable[..., Any], *arguments: Any) -> None:
    """Declare an energy of marginals: a term of the free energy that no density of values gives.

    At the fixed point the free energy, this term included, is stationary in the marginals. Entropies, information
    gain, risk measures and constraints on moments are such terms.

    Args:
        name: the site's name, of one energy.
        energy: a function of the arguments, in the same order, that returns one number, in nats. In the place of a
            variable it is given the marginals of all its elements, in the variable's batch shape, with `mean`,
            `variance`, `entropy()`, `expect(f)`, ...; written with `jax.numpy`, and differentiable.
        arguments: whole variables (a path of a chain, a plate), affine expressions of Gaussian ones, and constants.
            Data belong here rather than in a closure.
    """
    frame = current_frame("ngmp.functional")
    name = site_name(frame, "ngmp.functional(name, energy, *variables)", name)
    if not callable(energy):
        refuse(name, "energy", f"{energy!r} cannot be called", "give a function of marginals")
    if frame is not frame.root:
        works = "declare it after the scan, of the path that the scan returns"
        refuse(name, None, "an energy of whole variables was declared inside the body of an ngmp.scan", works)
    if any(site.name == name for site in frame.sites):
        refuse(name, None, "the name is taken, and an energy is one term", "give it a name of its own")
    found = checked_arguments(name, EnergyOf(name, energy, arguments))
    if frame.root.fresh is not None and not touches_new(frame.root, found):
        return
    values = {k: _whole(name, k, x) if getattr(x, "is_expression", False) else x for k, x in found.items()}
    if not any(isinstance(x, Whole) for x in values.values()):
        works = "give it the variables themselves; a site that integrate= names stands as a number, without a marginal"
        refuse(name, None, "the energy touches no random variable", works)
    density = EnergyOf(name, energy, tuple(values.values()))
    frame.sites.append(Site(name, density, values, density.event_ndims, None, (), False))


def _whole(name: str, argument: str, x: Any) -> Whole:
    if x.kind not in FAMILIES:
        works = "give the variables themselves, or affine expressions of Gaussian ones, and use their marginals"
        refuse(name, f"argument {argument}", f"an expression of kind {x.kind} has no marginal of its own", works)
    return Whole(x, x.batch_shape)
