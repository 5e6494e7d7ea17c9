"""Specialisations: the compiled functions of a program, one for every static value and shape it was called with.

`jax.jit` keeps what it compiles for as long as its function lives. Here every specialisation is a jitted function of
its own, so that those not used for longest can be dropped, executable and all, and memory stays bounded however often
shapes change.
"""

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax

from .errors import CompilationWarning, warn
from .pipeline import Static

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

    def __len__(self) -> int:
        return len(self._functions)

    def find(self, function: Callable, fixed: tuple[Any, ...], arrays: list[Any]) -> Callable:
        """`jit` of `partial(function, *fixed)`, to be called with inputs of the shapes of these arrays."""
        # Types and shardings need not be part of the key: jit tells them apart, and there are few.
        key = (function, fixed, tuple([getattr(x, "shape", ()) for x in arrays]))
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
        array = f"if no structure depends on it, give it as an array, {name}=np.asarray({value!r})"
        other = "it is part of the program: give the same one again where you can"
        works = array if isinstance(value, (int, float)) else other
        shown = ", ".join(repr(v)[:40] for v in [*values, value])
        warn(
            f"compiled for the {_OFTEN}th time for the same shapes, because input '{name}' is a static "
            f"{type(value).__name__} with a new value each time (lately {shown}); {works}",
            CompilationWarning,
        )
