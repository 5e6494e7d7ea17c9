"""Values: what passes hand to each other, as pytrees.

The arrays of jax among the fields of a value, however deep, are its leaves; everything else, numpy arrays included, is
its structure: what is known while a program is compiled. So a value can be printed, compared, passed to a jitted
function and differentiated, and no pass need run again for any of it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer


class Structure:
    """What of a value is no array: the tree of its fields and the leaves that are not traced, compared by content."""

    __slots__ = ("fixed", "tree")

    def __init__(self, tree: Any, fixed: tuple[Any, ...]):
        self.tree, self.fixed = tree, fixed

    def __hash__(self) -> int:
        return hash((self.tree, len(self.fixed)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Structure) or self.tree != other.tree or len(self.fixed) != len(other.fixed):
            return False
        return all(map(same, self.fixed, other.fixed))


_LEAF = object()  # in the place of an array


def same(a: Any, b: Any) -> bool:
    """Whether two leaves are equal; arrays in all of their entries."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return type(a) is type(b) and bool(a == b)


_ASIDE = ("_structure", "_subject")  # no fields: what it was flattened to, and where a value for people came from


class _Ordered:
    """A dictionary that keeps its order: jax sorts the keys of plain ones."""

    def __init__(self, items: dict[Any, Any]):
        self.items = {key: _wrapped(x) for key, x in items.items()}


def _unordered(keys: tuple[Any, ...], values: Any) -> _Ordered:
    out = object.__new__(_Ordered)
    out.items = dict(zip(keys, values, strict=True))
    return out


jax.tree_util.register_pytree_node(_Ordered, lambda x: (list(x.items.values()), tuple(x.items)), _unordered)


_registered: set[type] = set()  # values inside of a value see to their own dictionaries


def _plain(x: Any) -> bool:
    """Whether nothing inside of a field can be a dictionary of its own: most are asked, thousands of times."""
    return x is None or isinstance(x, (str, int, float, np.ndarray, jax.Array)) or type(x) in _registered


def _wrapped(tree: Any) -> Any:
    if _plain(tree):
        return tree

    def stop(x: Any) -> bool:
        return type(x) is dict or type(x) in _registered

    return jax.tree.map(lambda x: _Ordered(x) if type(x) is dict else x, tree, is_leaf=stop)


def _unwrapped(tree: Any) -> Any:
    if _plain(tree):
        return tree

    def stop(x: Any) -> bool:
        return type(x) is _Ordered or type(x) in _registered

    def plain(x: Any) -> Any:
        return {k: _unwrapped(v) for k, v in x.items.items()} if type(x) is _Ordered else x

    return jax.tree.map(plain, tree, is_leaf=stop)


def _flatten(fields: Any, known: Structure | None) -> tuple[list[Any], Structure]:
    fields = _wrapped(fields)
    if known is not None:  # what stands in the place of an array may be anything: tree utilities put flags there
        leaves = known.tree.flatten_up_to(fields)
        return [x for x, kept in zip(leaves, known.fixed, strict=True) if kept is _LEAF], known
    leaves, tree = jax.tree.flatten(fields)
    traced = [isinstance(x, (jax.Array, jax.ShapeDtypeStruct)) for x in leaves]
    fixed = tuple(_LEAF if t else x for x, t in zip(leaves, traced, strict=True))
    return [x for x, t in zip(leaves, traced, strict=True) if t], Structure(tree, fixed)


def _fields(structure: Structure, leaves: Any) -> Any:
    left = iter(leaves)
    fields = jax.tree.unflatten(structure.tree, [next(left) if x is _LEAF else x for x in structure.fixed])
    return _unwrapped(fields)


_Class = TypeVar("_Class", bound=type)


def register(cls: _Class) -> _Class:
    """Class decorator: instances are pytrees, as described above, of what is in their dictionary or slots."""
    slots = vars(cls).get("__slots__")
    names = None if slots is None else tuple(name for name in slots if name not in _ASIDE)

    def flatten(x: Any) -> tuple[list[Any], Structure]:
        own = vars(x).items() if names is None else ((name, getattr(x, name)) for name in names)
        return _flatten({k: v for k, v in own if k not in _ASIDE}, getattr(x, "_structure", None))

    def unflatten(structure: Structure, leaves: Any) -> Any:
        found, x = _fields(structure, leaves), object.__new__(cls)
        for name, value in found.items():
            object.__setattr__(x, name, value)
        object.__setattr__(x, "_structure", structure)
        return x

    _registered.add(cls)
    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


class Value:
    """Base class of values; see the module docstring. Fields are set by `__init__`, and never after it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = jax.tree.flatten(self), jax.tree.flatten(other)
        return mine[1] == theirs[1] and all(map(_equal, mine[0], theirs[0]))

    def __hash__(self) -> int:
        return hash(jax.tree.structure(self))

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: the fields. (The structure compares what jax and equinox hold by identity.)"""
        return {name: value for name, value in vars(self).items() if name != "_structure"}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_shown(value)}" for name, value in vars(self).items() if name[0] != "_")
        return f"{type(self).__name__}({inside})"


def replaced(value: Any, **fields: Any) -> Any:
    """A value with some fields replaced, by others of any structure."""
    out = object.__new__(type(value))
    for name, x in {**vars(value), **fields}.items():
        if name not in _ASIDE:
            object.__setattr__(out, name, x)
    return out


def _equal(a: Any, b: Any) -> bool:
    if a is b or isinstance(a, Tracer) or isinstance(b, Tracer):
        return a is b
    if isinstance(a, jax.ShapeDtypeStruct) or isinstance(b, jax.ShapeDtypeStruct):
        return a == b
    return a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b))


def _shown(x: Any) -> str:
    if isinstance(x, (np.ndarray, jax.Array, jax.ShapeDtypeStruct)):
        return f"{x.dtype}{list(x.shape)}"
    if isinstance(x, list) and len(x) > 3:
        return f"[{_shown(x[0])}, ... {len(x)} of them]"
    if isinstance(x, list):
        return f"[{', '.join(map(_shown, x))}]"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in x.items()) + "}"
    return repr(x)


def distinct(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays of a tree, each once however often it occurs, and how to put others in their places."""
    leaves, structure = jax.tree.flatten(tree)
    number: dict[int, int] = {}
    where = [number.setdefault(id(x), len(number)) for x in leaves]
    found = list({id(x): x for x in leaves}.values())
    return found, lambda arrays: jax.tree.unflatten(structure, [arrays[i] for i in where])
