"""Random variables, as a model function holds them.

Where an index is an input of the model, `theta[student]`, which variables a factor touches is known only when the
program runs; that they are of the plate is known before. Such a *picked* variable is an ordinary one whose positions
count the entries of the index, so that broadcasting, slicing and stacking it is what it is for any other; in the place
of its frame is a `Picked`, which has the index itself.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..graph.planes import Plane
from ..value import register
from .affine import Affine, Arithmetic, Term, entry
from .expressions import OnArray, Shape
from .inputs import Input, is_array, unwrap
from .multiple import multiple
from .naming import label, refuse, split_key, static_index


@register
class Variable(Arithmetic):
    """Random variables: positions `index` (an integer array of the batch shape) in a plane of a trace frame."""

    __slots__ = (
        "_structure", "batch_shape", "eta_shape", "event_shape", "frame", "index", "kind", "picked", "plane", "shape",
    )  # fmt: skip

    def __init__(self, frame: Any, plane: Plane, index: np.ndarray):
        self.frame, self.plane, self.index = frame, plane, index
        self.kind, self.eta_shape = plane.family.kind, plane.event_shape  # type: ignore[misc]
        # A categorical value is one integer although its natural parameter is a vector.
        self.event_shape: Shape = () if plane.family.core == "categorical" else plane.event_shape
        self.batch_shape: Shape = index.shape
        self.shape: Shape = index.shape + self.event_shape
        self.picked = type(frame) is Picked
        """Whether which variables these are is known only when the program runs; see the module docstring."""

    def __getitem__(self, key: Any) -> Any:
        key, component = split_key(self, static_index(self, key))
        if component is not None:
            return entry((self[key] if key else self).affine(), component)
        if is_traced(key):
            return pick(self, key)
        try:
            return self.at(self.index[key])
        except IndexError as error:
            raise IndexError(f"variable {label(self)} of shape {self.shape}: {error}") from None

    def at(self, index: Any) -> "Variable":
        """Other variables of the same plane."""
        return Variable(self.frame, self.plane, np.asarray(index))

    def __mul__(self, other: Any) -> Any:
        return multiple(self, other) if self.plane.family.kind == "gamma" else super().__mul__(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        gamma = self.plane.family.kind == "gamma" and is_array(other)
        return multiple(self, 1.0 / unwrap(other)) if gamma else super().__truediv__(other)

    def affine(self) -> Affine:
        if self.plane.family.core != "gaussian":
            what = f"arithmetic on {label(self)}, a {self.plane.family.__name__} variable"
            refuse(what, "only Gaussian variables form expressions; use it directly as a parameter")
        return Affine((Term(self, "scale", None),), None, self.batch_shape, self.event_shape)

    def parameter(self) -> Any:
        return self.affine() if self.plane.family.core == "gaussian" else self

    @property
    def leaves(self) -> tuple[Any, ...]:
        return (self,)

    @property
    def structure(self) -> Any:
        return self.plane, self.picked

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        return on_variable(self)

    def __repr__(self) -> str:
        return f"Variable({self.plane}, shape={self.shape})"


@register
class Picked:
    """Variables `source[at]`: `source` is a variable with the candidates, flat; `at` an array of integers, flat, of
    which negative ones count from the end. Messages read its `nodes`, as of a frame."""

    __slots__ = ("_structure", "at", "place", "source")

    def __init__(self, source: "Variable", at: Any, place: int | None = None):
        self.source, self.at = source, at
        self.place = at.place if isinstance(at, Input) else place  # of the index among the leaves of all inputs

    @property
    def nodes(self) -> dict[str, Any]:
        return getattr(self.source.frame, "nodes", {})


def is_traced(key: Any) -> bool:
    """Whether an index, or one of a tuple, is known only when the program runs."""
    return any(isinstance(k, (Input, Tracer)) for k in (key if isinstance(key, tuple) else (key,)))


def pick(x: Variable, key: Any) -> Variable:
    """`x[key]` for integers that are traced, one array for each leading axis of the plate."""
    items = key if isinstance(key, tuple) else (key,)
    if not all(_is_integers(k) for k in items) or len(items) > len(x.batch_shape):
        given = f"{label(x)}, of batch shape {x.batch_shape}, was indexed with a traced array that is no plain index"
        refuse(given, "an index that is an input is an array of integers, one for each leading axis of a plate")
    if isinstance(x.frame, Picked):
        at = _flat_index(items, x.batch_shape)
        entries = jnp.asarray(unwrap(x.frame.at)).reshape(-1)[x.index.reshape(-1)]
        # Out of the entries of the first index is out of the candidates as well.
        far = jnp.full((1,), x.frame.source.index.size, entries.dtype)
        return _picked(x.frame.source, jnp.concatenate([entries, far])[_wrapped(at, entries.size)])
    source = x.at(x.index.reshape(-1))
    if len(items) == 1 and len(x.batch_shape) == 1:
        return _picked(source, items[0])  # a lazily indexed input stays one
    return _picked(source, _flat_index(items, x.batch_shape))


def _picked(source: "Variable", at: Any) -> Variable:
    shape = at.shape if isinstance(at, Input) else np.shape(at)
    return Variable(Picked(source, at), source.plane, np.arange(int(np.prod(shape))).reshape(shape))


def _is_integers(key: Any) -> bool:
    return type(key) is int or (hasattr(key, "dtype") and np.dtype(key.dtype).kind in "iu")


def _wrapped(at: Any, size: int) -> Any:
    """Integers with negative ones counted from the end, and `size` in place of all that are out of range."""
    at = jnp.asarray(unwrap(at))
    at = jnp.where(at < 0, at + size, at)
    return jnp.where((at < 0) | (at > size), size, at)


def _flat_index(items: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """The indices of the leading axes as one into the flattened plate, with its other axes at the end."""
    lead, rest = shape[: len(items)], shape[len(items) :]
    at, fine = 0, True
    for k, size in zip(items, lead, strict=True):
        own = _wrapped(k, size)
        at, fine = at * size + own, fine & (own < size)
    inner = int(np.prod(rest))
    at = jnp.where(fine, at, int(np.prod(lead)))
    at = at[(..., *(None,) * len(rest))] * inner + np.arange(inner).reshape(rest)
    return jnp.minimum(at, int(np.prod(shape)))
