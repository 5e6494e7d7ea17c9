"""Parts of the Gaussian core, as executors see them when they are chosen."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...graph.components import Shape
from ...graph.planes import Plane
from ..base import AbstractPart
from .core import GaussianCore


@dataclass(eq=False)
class GaussianPart(AbstractPart):
    """Variables that functionals tie together, or those of one plane that none does (`lone`)."""

    core: GaussianCore
    shape: Shape
    lone: bool = False
    number: int = -1  # among the coupled parts
    asked: bool = False
    space: str | None = None  # for vectors, weight or function, where one is asked for

    planes: dict[Plane, np.ndarray] = field(init=False)  # positions by plane
    has_vectors: bool = field(init=False)
    knotted: bool = field(init=False)
    dimensions: int = field(init=False)
    given: bool = field(init=False)
    degenerate: bool = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.shape.nodes
        self.planes = self.core.nodes.split(self.nodes)
        self.has_vectors = any(plane.event_shape for plane in self.planes)
        self.knotted = bool(self.core.knotted[self.nodes].any())
        self.given = bool(self.core.given[self.nodes].any())
        self.degenerate = bool(self.core.degenerate[self.nodes].any())
        self.dimensions = sum(len(x) * math.prod(p.event_shape) for p, x in self.planes.items())


def only(plane: dict[Plane, Any]) -> tuple[Plane, Any]:
    """The only entry of a dictionary."""
    (found,) = plane.items()
    return found
