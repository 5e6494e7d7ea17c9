"""Factors made of another one: a base in another place, or only in part."""

from ..factor import AbstractFactor, Families


class AbstractAround(AbstractFactor):
    """A factor with the interfaces of its base, until it says otherwise."""

    base: AbstractFactor

    @property
    def interfaces(self) -> tuple[str, ...]:
        return self.base.interfaces

    @property
    def families(self) -> Families:
        return self.base.families

    @property
    def support(self) -> str | None:
        return self.base.support

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.base.label})"
