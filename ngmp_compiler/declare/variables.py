"""Random variables, as a model function holds them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph.planes import Plane
from ..value import register
from .affine import Affine, Arithmetic, Term, entry
from .expressions import OnArray, Shape
from .naming import label, refuse, split_key, static_index


@register
class Variable(Arithmetic):
    """Random variables: positions `index` (an integer array of the batch shape) in a plane of a trace frame."""

    __slots__ = ("_structure", "frame", "index", "plane")

    def __init__(self, frame: Any, plane: Plane, index: np.ndarray):
        self.frame = frame
        self.plane = plane
        self.index = index

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        # A categorical value is one integer although its natural parameter is a vector.
        return () if self.plane.family.core == "categorical" else self.plane.event_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape + self.event_shape

    def __getitem__(self, key: Any) -> Any:
        key, component = split_key(self, static_index(self, key))
        if component is not None:
            return entry((self[key] if key else self).affine(), component)
        try:
            return self.at(self.index[key])
        except IndexError as error:
            raise IndexError(f"variable {label(self)} of shape {self.shape}: {error}") from None

    def at(self, index: Any) -> "Variable":
        """Other variables of the same plane."""
        return Variable(self.frame, self.plane, np.asarray(index))

    def affine(self) -> Affine:
        if self.plane.family.core != "gaussian":
            what = f"arithmetic on {label(self)}, a {self.plane.family.__name__} variable"
            refuse(what, "only Gaussian variables form expressions; use it directly as a parameter")
        return Affine((Term(self, "scale", None),), None, self.batch_shape, self.event_shape)

    def parameter(self) -> Any:
        return self.affine() if self.plane.family.core == "gaussian" else self

    @property
    def kind(self) -> str:
        return self.plane.family.kind

    @property
    def leaves(self) -> tuple[Any, ...]:
        return (self,)

    @property
    def structure(self) -> Any:
        return self.plane

    @property
    def eta_shape(self) -> Shape:
        return self.plane.event_shape

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        return on_variable(self)

    def __repr__(self) -> str:
        return f"Variable({self.plane}, shape={self.shape})"
