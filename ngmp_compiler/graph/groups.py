"""Groups: n isomorphic factors at once, as declared and as lowered."""

from typing import Any, NamedTuple

from ngmp_kernels import AbstractConjugate, AbstractFactor

from .edges import Edge


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


class FactorGroup(NamedTuple):
    """n factors of one kind, lowered. Interfaces without variables are constants (None in `edges`)."""

    name: str
    factor: AbstractFactor
    edges: tuple[Edge | None, ...]
    constants: tuple[Any, ...]  # the value of an interface without variables, else None
    mask: Any
    n: int
    shape: tuple[int, ...]
    observed: bool
    given: Group  # kept for prediction

    @property
    def conjugate(self) -> bool:
        return isinstance(self.factor, AbstractConjugate)

    def key(self, j: int) -> str:
        """The name of a leaf: site and interface."""
        return f"{self.name}.{self.factor.interfaces[j]}"
