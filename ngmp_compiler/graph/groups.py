"""Groups: n isomorphic factors at once, as declared and as lowered."""

from typing import Any, NamedTuple

import equinox as eqx

from ngmp_kernels import AbstractConjugate, AbstractFactor


class Group(NamedTuple):
    """n isomorphic factors: expressions have batch shape (n,), constants a leading axis n or 1."""

    name: str  # of the site; of many sites, a pattern such as "z*"
    distribution: Any
    arguments: dict[str, Any]
    mask: Any  # (n,) booleans, or None
    size: int
    shape: tuple[int, ...]  # as the user sees the site: (repeats, *batch) or (*batch)
    observed: bool
    order: tuple[int, ...] = (0,)  # which of the sites of this name the repeats are, in order of declaration
    inner: tuple[int, ...] = ()  # the shape of one declaration, without the axes that scans added
    names: tuple[str, ...] = ()  # the site of every repeat


class FactorGroup(eqx.Module):
    """n factors of one kind, lowered. Interfaces without variables are constants (None in `edges`)."""

    name: str
    factor: AbstractFactor
    edges: tuple[Any, ...]  # an `AbstractEdge`, or None
    constants: tuple[Any, ...]  # the value of an interface without variables, else None
    mask: Any
    n: int
    shape: tuple[int, ...]
    observed: bool
    given: Group  # kept for prediction
    joined: str = ""  # why some of its interfaces are one edge: see `passes.join`
    preferred: str = ""  # why its rule, which nobody asked for, is not NGMP: see `passes.rules`
    conjugate: bool = eqx.field(init=False, static=True)
    constant: bool = eqx.field(init=False, static=True)  # no variables at all
    projected: bool = eqx.field(init=False, static=True)  # it has leaves
    keys: tuple[str, ...] = eqx.field(init=False, static=True)  # names of leaves: site and interface

    def __post_init__(self) -> None:
        self.conjugate = isinstance(self.factor, AbstractConjugate)
        self.constant = all(edge is None for edge in self.edges)
        self.keys = tuple(f"{self.name}.{interface}" for interface in self.factor.interfaces)
        self.projected = not self.conjugate and not self.constant

    def rows(self, j: int) -> int:
        """Of interface j: one for every factor; of an energy, which takes whole variables, one for every element."""
        edge = self.edges[j]
        return self.n if edge is None else edge.n
