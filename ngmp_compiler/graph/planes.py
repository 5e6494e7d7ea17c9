"""Planes: where the variables of a program are stored."""

from typing import Any, NamedTuple

from ngmp_kernels.families import AbstractFamily


class Plane(NamedTuple):
    """All variables of one family and event shape; a program stores a plane as one array per natural parameter."""

    family: type[AbstractFamily]
    event_shape: tuple[int, ...]

    def __str__(self) -> str:
        size = "x".join(map(str, self.event_shape))
        return self.family.__name__ + (f"[{size}]" if size else "")

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)  # any order does, for dictionaries by plane
