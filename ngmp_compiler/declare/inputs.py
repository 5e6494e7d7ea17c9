"""Inputs of a model function, wrapped so that `y[k]` in a Python loop costs no XLA operation."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


class Input:
    """A lazily indexed array.

    `y[k]` with a static integer only remembers `k`; the pass that rolls the loop reads all the remembered
    positions with one slice or gather. In any other use the object behaves as the array it stands for
    (`jnp` functions, operators, `vmap`, `scan`), at the usual cost of an operation each.
    """

    __slots__ = ("index", "place", "root", "shape")
    __array_priority__ = 1000
    is_expression = False  # looked up often: `__getattr__` would read the array to answer

    def __init__(
        self, root: Any, index: tuple[int, ...] = (), shape: tuple[int, ...] | None = None, place: int | None = None
    ):
        self.root = root
        self.index = index
        self.place = place  # among the leaves of all inputs, if it is one
        self.shape = np.shape(root) if shape is None else shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> Any:
        return self.root.dtype

    def __jax_array__(self) -> jax.Array:
        return self.root[self.index] if self.index else self.root

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # Without this method numpy would walk the object as a sequence and complain about that instead.
        return np.asarray(self.__jax_array__(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        """`np.log(x)` of an input is `jnp.log(x)`; a random expression among the arguments sees to it itself."""
        if any(getattr(x, "is_expression", False) for x in args):
            return NotImplemented
        if method == "__call__":
            return _by_jax(ufunc, ufunc.__name__, args, options)
        return _by_jax(getattr(ufunc, method), f"{ufunc.__name__}.{method}", args, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """`np.stack([x, ones])` of inputs is `jnp.stack([x, ones])`."""
        if function in _SIZES and len(args) == 1 and not options:
            return _SIZES[function](args[0])  # of `y[k]` in a loop: no operation
        inside = "linalg." if function.__module__ == "numpy.linalg" else ""
        return _by_jax(function, inside + function.__name__, args, options)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar input")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int or isinstance(key, np.integer):
            if not self.shape:
                raise IndexError("an input of shape () cannot be indexed")
            length = self.shape[0]
            if not -length <= key < length:
                raise IndexError(f"index {key} is out of range for an input of length {length}")
            return Input(self.root, (*self.index, int(key) % length), self.shape[1:], self.place)
        if isinstance(key, tuple) and key and all(type(k) is int for k in key):
            out = self
            for k in key:
                out = out[k]
            return out
        return Input(_entries(self.__jax_array__(), key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__jax_array__(), name)

    def __repr__(self) -> str:
        return f"Input(shape={self.shape}, dtype={self.dtype})"


_SIZES = {np.shape: lambda x: x.shape, np.ndim: lambda x: x.ndim, np.size: lambda x: x.size}


def _by_jax(function: Any, name: str, args: Any, options: Any) -> Any:
    """A function of NumPy at inputs: itself where all are known, its namesake of jax where some are traced."""

    def each(f: Any) -> Any:
        return jax.tree.map(f, (args, options), is_leaf=lambda x: hasattr(x, "is_expression"))

    args, options = each(unwrap)
    if not any(isinstance(x, Tracer) for x in jax.tree.leaves((args, options))):
        args, options = each(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x)
        return function(*args, **options)
    found: Any = jnp
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise TypeError(f"np.{name} of an input: jax.numpy has no such function; compute it before the call")
    return wrap(found(*args, **options))


def _entries(array: Any, key: Any) -> Any:
    """`array[key]`. For an index out of range jax would take the nearest entry; here it is an error if it is known, and
    NaN, which the checks of a site report, if it is traced."""
    keys = tuple(unwrap(k) for k in (key if isinstance(key, tuple) else (key,)))
    if len(keys) > array.ndim or not all(_is_integers(k) for k in keys):  # slices, masks and the like
        return array[keys if isinstance(key, tuple) else keys[0]]
    for size, k in zip(array.shape, keys, strict=False):
        known = np.zeros(0) if isinstance(k, Tracer) else np.asarray(k)
        bad = known[(known < -size) | (known >= size)]
        if bad.size:
            raise IndexError(f"index {bad.flat[0]} is out of range for an input with an axis of length {size}")
    inexact = jnp.issubdtype(array.dtype, jnp.inexact)
    return jnp.asarray(array).at[keys].get(mode="fill") if inexact else array[keys]


def _is_integers(key: Any) -> bool:
    return type(key) is int or (hasattr(key, "dtype") and np.dtype(key.dtype).kind in "iu")


def _forward(name: str):
    def method(self, *args):
        if args and getattr(args[0], "is_expression", False):
            return NotImplemented  # `y[k] * x` is the business of x, which keeps y[k] as it is
        args = [a.__jax_array__() if isinstance(a, Input) else a for a in args]
        return getattr(jnp.asarray(self.__jax_array__()), name)(*args)

    method.__name__ = name
    return method


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_OTHERS = ("neg", "pos", "abs", "invert", "lt", "le", "gt", "ge", "eq", "ne", "bool", "float", "int", "index")
for _name in (*_BINARY, *(f"r{n}" for n in _BINARY), *_OTHERS):
    setattr(Input, f"__{_name}__", _forward(f"__{_name}__"))
Input.__hash__ = object.__hash__  # type: ignore[method-assign]  # identity: __eq__ is elementwise


jax.tree_util.register_pytree_node(
    Input, lambda x: ((x.__jax_array__(),), None), lambda _, children: Input(children[0], (), _shape(children[0]))
)


def _shape(x: Any) -> tuple[int, ...]:
    # Tree utilities unflatten with placeholder objects that have no shape.
    return tuple(getattr(x, "shape", ()))


def wrap(tree: Any, leaves: Sequence[Any] = ()) -> Any:
    """Wrap the arrays of a plain container (dict, list, tuple) of inputs; leave modules such as networks alone.

    `leaves` are those of all inputs, in order.
    """
    if isinstance(tree, jax.Array):
        return Input(tree, place=next((i for i, x in enumerate(leaves) if x is tree), None))
    if type(tree) in (list, tuple):
        return type(tree)(wrap(x, leaves) for x in tree)
    if type(tree) is dict:
        return {k: wrap(x, leaves) for k, x in tree.items()}
    return tree


def unwrap(x: Any) -> Any:
    """The array behind an `Input`; anything else unchanged."""
    return x.__jax_array__() if isinstance(x, Input) else x


def is_array(x: Any) -> bool:
    """Whether an object is a number or an array, wrapped or not."""
    return isinstance(x, (int, float, Input, np.ndarray, np.generic, jax.Array)) or hasattr(x, "__jax_array__")


def as_constant(value: Any) -> Any:
    """A parameter, observation or mask as an array or number; lists become arrays, expressions are kept.

    Raises TypeError, saying what was given, for anything that is neither.
    """
    if isinstance(value, (float, int, Input, jax.Array)) or getattr(value, "is_expression", False):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        if not (jnp.issubdtype(value.dtype, np.number) or value.dtype == bool):
            taken = any(getattr(x, "is_expression", False) for x in value.flat) if value.dtype == object else False
            said = ", by a function of NumPy from random variables: use its namesake of jax.numpy" if taken else ""
            raise TypeError(f"an array of dtype {value.dtype}{said}")
        return value
    if isinstance(value, (list, tuple)):
        items = [as_constant(v) for v in value]
        if any(getattr(v, "is_expression", False) for v in items):
            raise TypeError("a list of random variables")
        if len({np.shape(v) for v in items}) > 1:
            raise TypeError(f"a list of entries of unequal shapes {sorted({np.shape(v) for v in items})}")
        static = all(isinstance(v, (float, int, np.ndarray, np.generic)) for v in items)
        return np.asarray(items) if static else jnp.stack([jnp.asarray(unwrap(v)) for v in items])
    if hasattr(value, "__jax_array__"):
        return jnp.asarray(value)
    raise TypeError(f"{value!r} ({type(value).__name__})")
