"""Specialisations: the compiled functions of a program, one for every static value and shape it was called with.

`jax.jit` keeps what it compiles for as long as its function lives. Here every specialisation is a jitted function of
its own, so that those not used for longest can be dropped, executable and all, and memory stays bounded however often
shapes change.
"""

import functools
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ngmp_kernels.factors.low_rank import root_of

from .declare.failures import TRACED
from .declare.numbers import LAZY, Structural
from .errors import CompilationWarning, ContentsError, warn
from .pipeline import Static, split

_LARGEST = 64  # rows of a matrix up to which it may be the covariance of a state
_OFTEN = 5  # compilations for values of one input after which to say so
_MANY = 64  # specialisations dropped after which to look for what else they have left
_OURS = ("jax", "equinox", "ngmp_kernels", "ngmp_compiler")


class Specialisations:
    """Jitted functions by what they are specialised on; of more than `most`, the least recently used go.

    Threads may share it. A function that was dropped while another thread runs it lives until that has ended.
    """

    def __init__(self, most: int):
        self.most = most
        self._functions: OrderedDict[tuple, Callable] = OrderedDict()
        self._staged: OrderedDict[tuple, Callable] = OrderedDict()
        self._dropped = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._functions)

    def find(self, function: Callable, fixed: tuple[Any, ...], arrays: list[Any]) -> Callable:
        """`jit` of `partial(function, *fixed)`, to be called with inputs of the shapes of these arrays."""
        # Types and shardings need not be part of the key: jit tells them apart, and there are few.
        key = (function, fixed, tuple([getattr(x, "shape", ()) for x in arrays]))
        if self._process != os.getpid():
            self._check_fork()
        with self._lock:
            found = self._functions.get(key)
            if found is not None:
                self._functions.move_to_end(key)
                return found
            others = [k for k in self._functions if k[0] == function and k[2] == key[2]]
            found = self._functions[key] = jax.jit(functools.partial(function, *fixed))
            while len(self._functions) > self.most:
                self._functions.popitem(last=False)
                self._dropped += 1
            forget, self._dropped = self._dropped >= _MANY, self._dropped % _MANY
        if forget:
            forget_traces()
        _say_why(key, others)
        return found

    def _check_fork(self) -> None:
        """Refuse what would hang: the threads that jax has started in a process are not in its forks (jax 0.10)."""
        if self._functions:
            works = "fork before the first call, or start workers by 'spawn' or 'forkserver': programs can be pickled"
            raise RuntimeError(f"this program was used before os.fork(), and jax does not run in a fork then; {works}")
        self._process = os.getpid()

    def stage(self, key: tuple, make: Callable[[], Callable]) -> Callable:
        """What `make` has made for a key, the inputs of a program by type: a model that has been run for them."""
        with self._lock:
            found = self._staged.get(key)
            if found is not None:
                self._staged.move_to_end(key)
                return found
        found = make()
        with self._lock:
            self._staged[key] = found
            while len(self._staged) > self.most:
                self._staged.popitem(last=False)
        return found

    def clear(self) -> None:
        """Drop all of them."""
        with self._lock:
            self._functions.clear()
            self._staged.clear()
        forget_traces()


class Numbers:
    """Which integers, and arrays of them, among the inputs of a program are structure; all others are data."""

    def __init__(self) -> None:
        self._structural: set[tuple[Any, int]] = set()  # by the tree of the inputs and the place among its leaves
        self._contents: set[tuple[Any, int]] = set()  # the same, of indices whose contents the schedule depends on
        self._known: set[tuple] = set()  # inputs that the model was declared with while all others were traced

    @property
    def contents(self) -> frozenset[tuple[Any, int]]:
        """The arrays whose contents are structure, by the tree of the inputs and the place among its leaves."""
        return frozenset(self._contents)

    def split(self, inputs: dict[str, Any], declare: Callable[[Static, list[Any]], None]) -> tuple[Static, list[Any]]:
        """`pipeline.split`, with those integers traced that `declare` goes through without the value of."""
        while True:
            static, dynamic = split(inputs, lambda tree, i: (tree, i) not in self._structural, self._contents)
            singular = {(static.tree, i) for i, x in enumerate(jax.tree.leaves(inputs)) if _is_singular(x)}
            if singular - self._contents:
                self._contents |= singular
                continue
            arrays = {i for i, x in enumerate(jax.tree.leaves(inputs)) if _may_index(x)}
            key = static, tuple([np.shape(x) for x in dynamic])
            if key in self._known:
                return static, dynamic
            try:
                declare(static, dynamic)
                self._known.add(key)
            except ContentsError as error:
                places: set[int] = arrays if None in error.places else _known_arrays(inputs).intersection(error.places)
                new = {(static.tree, i) for i in places} - self._contents
                if not new:
                    raise
                self._contents |= new
            except Structural as needed:
                self._structural.add((static.tree, needed.place))
            except Exception as error:  # what goes wrong may do so because of them; if not, it will again
                if LAZY not in static.static:
                    known = self._contents | {(static.tree, i) for i in arrays}
                    if known == self._contents or not _of_tracing(error) or not _works(declare, inputs, known):
                        return static, dynamic
                    self._contents = known
                    continue
                self._structural |= {(static.tree, i) for i, x in enumerate(static.static) if x is LAZY}


def _may_index(x: Any) -> bool:
    """Whether an input is an array of integers that is known."""
    return _is_known(x) and x.ndim > 0 and np.dtype(x.dtype).kind in "iu"


def _is_known(x: Any) -> bool:
    return isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, Tracer)


def _is_singular(x: Any) -> bool:
    """Whether an input is a singular covariance: its rank is structure. Of large ones nobody asks."""
    square = _is_known(x) and x.ndim == 2 and 1 < x.shape[0] == x.shape[1] <= _LARGEST
    return square and np.dtype(x.dtype).kind == "f" and root_of(x) is not None


def _known_arrays(inputs: dict[str, Any]) -> set[int]:
    """The places of all arrays among the inputs whose contents may be asked for."""
    return {i for i, x in enumerate(jax.tree.leaves(inputs)) if _is_known(x)}


def _of_tracing(error: BaseException | None) -> bool:
    """Whether an error came of a value that is traced: an index given to numpy, the length of a loop."""
    seen = error is not None and (isinstance(error, TRACED) or "Input(" in str(error))
    return seen or (error is not None and _of_tracing(error.__cause__))


def _works(declare: Callable[[Static, list[Any]], None], inputs: dict[str, Any], contents: set[tuple]) -> bool:
    """Whether the model gets over what it needs to know of its inputs if it knows the contents of these arrays."""
    try:
        declare(*split(inputs, lambda tree, i: False, contents))
    except Exception as error:
        return not _of_tracing(error)
    return True


def forget_traces() -> None:
    """Have jax drop what it keeps of tracing its own functions.

    `jnp.where` and a few hundred others are jitted functions of jax, and every shape they are traced with, inside of
    programs that are long gone, stays with them for ever (jax 0.10: a quarter of a megabyte for each shape of a small
    model). Functions of the user keep what they have compiled; those of jax compile again where they are called alone.
    """
    # Found in the modules, and in what stands there (ufuncs keep theirs in a dictionary). Not by gc.get_objects, which
    # hands out tuples that other threads are still building, which breaks them.
    kind = type(jax.jit(forget_traces))
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _OURS:
            for thing in list(getattr(module, "__dict__", {}).values()):
                kept = list(getattr(thing, "__dict__", {}).values())
                inside = [x for d in kept if isinstance(d, dict) for x in list(d.values())]
                for function in (thing, *kept, *inside):
                    if type(function) is kind:
                        function.clear_cache()  # type: ignore[attr-defined]


def _static(key: tuple) -> Static | None:
    return next((x for x in key[1] if isinstance(x, Static)), None)


def _say_why(key: tuple, others: list[tuple]) -> None:
    """Warn if this is the fifth specialisation of the same inputs in which one static value is another."""
    own = _static(key)
    if own is None or len(others) + 1 < _OFTEN:
        return
    alike = [s for s in map(_static, others) if s is not None and s.tree == own.tree]
    for i, value in enumerate(own.static):
        rest = own.static[:i] + own.static[i + 1 :]
        values = [s.static[i] for s in alike if s.static[:i] + s.static[i + 1 :] == rest]
        if len(values) + 1 != _OFTEN:
            continue
        places = jax.tree.unflatten(own.tree, range(len(own.static)))
        path = next(path for path, k in jax.tree_util.tree_leaves_with_path(places) if k == i)
        name = str(getattr(path[0], "key", path[0])) + "".join(map(str, path[1:]))
        works = "the structure of the model depends on it: give the same one again where you can"
        shown = ", ".join(repr(v)[:40] for v in [*values, value])
        warn(
            f"compiled for the {_OFTEN}th time for the same shapes, because input '{name}' is a static "
            f"{type(value).__name__} with a new value each time (lately {shown}); {works}",
            CompilationWarning,
        )
