"""Programs in files: compiled for given shapes, run without the source of the model.

A file holds the StableHLO of a whole run (`jax.export`), the names and shapes of its inputs, and the structure of its
result. It runs wherever jax and this package are installed, on the platforms it was exported for.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ngmp_kernels import families
from ngmp_kernels.families import AbstractFamily

from ._archive import read_archive, write_archive
from ._errors import DataError, FileError, listed
from ._posterior import Members, Posterior
from ._solve import INVALID, REASONS, State

VERSION = 1
_FORMAT = "ngmp program"


def export(run: Any, path: str | Path, inputs: dict[str, Any], static: dict[str, Any], platforms: Any = None) -> None:
    """Write a run to a file.

    Args:
        run: a function of a dictionary of arrays, to a posterior.
        path: the file.
        inputs: the inputs that are traced, by name; pytrees of arrays or `jax.ShapeDtypeStruct`.
        static: those that are not, for messages.
        platforms: such as `("cpu", "cuda")`; by default the one this process runs on.
    """
    floats = [x.dtype for x in jax.tree.leaves(inputs) if jnp.issubdtype(getattr(x, "dtype", int), jnp.floating)]
    precision = jnp.result_type(*floats) if floats else jnp.result_type(float)  # numbers follow the arrays
    _needs_flatbuffers()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), getattr(x, "dtype", precision)), inputs)
    flat, tree = jax.tree.flatten(shapes)
    described: list[Any] = []

    def outputs(*leaves: Any) -> list[Any]:
        arrays: list[Any] = []
        described[:] = [_encode(_plain(run(jax.tree.unflatten(tree, leaves))), arrays)]
        return arrays

    exported = jax.export.export(jax.jit(outputs), platforms=platforms)(*flat)
    header = {
        "format": _FORMAT, "version": VERSION, "result": described[0], "platforms": list(exported.platforms),
        "inputs": {name: [[list(s.shape), s.dtype.name] for s in jax.tree.leaves(x)] for name, x in shapes.items()},
        "defaults": {name: x for name, x in inputs.items() if isinstance(x, float)},
        "static": {name: repr(x)[:80] for name, x in static.items()},
    }  # fmt: skip
    write_archive(path, header, {"program.bin": bytes(exported.serialize())})


class ExportedProgram:
    """A program from a file; call it with the inputs it was exported for, by name. It composes with `jit`."""

    def __init__(self, path: str | Path):
        self.path = path
        _needs_flatbuffers()
        header, parts = read_archive(path, _FORMAT, VERSION)
        self._inputs, self._defaults = header["inputs"], header["defaults"]
        self._static, self._result = header["static"], header["result"]
        here = jax.default_backend()
        if here not in header["platforms"]:
            works = f"export it again with platforms=('{here}',)"
            raise FileError(f"{path} was exported for {header['platforms']}, and this is {here}; {works}")
        try:
            self._exported = jax.export.deserialize(bytearray(parts["program.bin"]))
        except Exception as error:  # flatbuffers raise anything on damaged bytes
            raise FileError(f"{path} is damaged: the program cannot be read") from error

    def __repr__(self) -> str:
        return f"ExportedProgram({', '.join(f'{k}={_words(v)}' for k, v in self._inputs.items())})"

    def __call__(self, **inputs: Any) -> Posterior:
        """Run to the fixed point."""
        unknown = [name for name in inputs if name not in self._inputs]
        if fixed := [name for name in unknown if name in self._static]:
            raise TypeError(f"input '{fixed[0]}' was fixed at {self._static[fixed[0]]} when {self.path} was exported")
        given = {**self._defaults, **inputs}
        if unknown or set(given) != set(self._inputs):
            raise TypeError(f"{self.path} takes {listed(self._inputs)}; got {listed(inputs)}")
        leaves = [leaf for name in sorted(self._inputs) for leaf in self._checked(name, given[name])]
        post = _posterior(_decode(self._result, iter(jax.jit(self._exported.call)(*leaves))))
        if not isinstance(post.status, Tracer) and bool(jnp.any(post.status == INVALID)):
            raise DataError(f"no posterior can be computed: {REASONS[INVALID]}")
        return post

    def _checked(self, name: str, value: Any) -> list[Any]:
        expected = self._inputs[name]
        leaves = [x if isinstance(x, jax.Array) else np.asarray(x) for x in jax.tree.leaves(value)]
        kinds = [np.can_cast(x.dtype, dtype, "same_kind") for x, (_, dtype) in zip(leaves, expected, strict=False)]
        if [list(x.shape) for x in leaves] != [shape for shape, _ in expected] or not all(kinds):
            got = _words([[list(x.shape), x.dtype.name] for x in leaves])
            works = "an exported program does not specialise again; export one for these shapes"
            raise TypeError(f"input '{name}' of {self.path} is {_words(expected)}; got {got}; {works}")
        return [x.astype(dtype) for x, (_, dtype) in zip(leaves, expected, strict=True)]


def load_exported(path: str | Path) -> ExportedProgram:
    """Read what `program.export` has written."""
    return ExportedProgram(path)


def _needs_flatbuffers() -> None:
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError("jax.export writes with flatbuffers: pip install 'ngmp-compiler[export]', or flatbuffers")


def _words(entries: list) -> str:
    return ", ".join(f"{dtype}{shape}" for shape, dtype in entries) or "nothing"


# -- the result as dictionaries, families and arrays: what a file can describe ----------------------------------------


def _plain(post: Posterior) -> dict[str, Any]:
    """A posterior without the memory of its solver, which any optax transformation may lay out as it likes."""
    names = ("marginals", "free_energy", "converged", "sweeps", "residual", "status", "neighbours", "jitter")
    state = {name: getattr(post.state, name) for name in ("leaves", "step", "sweeps", "shrinks")}
    members = {name: list(where) for name, where in post.members.where.items()}
    fixed = {"members": members, "approximate": list(post.approximate), "topology": post.topology}
    return {"post": {name: getattr(post, name) for name in names}, "state": state, "fixed": _Fixed(fixed)}


class _Fixed:
    """Something to be stored as it is, in the header."""

    def __init__(self, value: Any):
        self.value = value


def _encode(value: Any, arrays: list[Any]) -> Any:
    """Append the arrays of a value, and describe where they go."""
    if isinstance(value, _Fixed):
        return {"fixed": value.value}
    if isinstance(value, dict):
        return {"dict": {key: _encode(x, arrays) for key, x in value.items()}}
    if isinstance(value, AbstractFamily):
        return {"family": type(value).__name__, "blocks": [_encode(x, arrays) for x in value.natural]}
    arrays.append(value)
    return "array"


def _decode(described: Any, arrays: Any) -> Any:
    if described == "array":
        return next(arrays)
    if "fixed" in described:
        return described["fixed"]
    if "dict" in described:
        return {key: _decode(x, arrays) for key, x in described["dict"].items()}
    return getattr(families, described["family"])(*(_decode(x, arrays) for x in described["blocks"]))


def _posterior(plain: dict[str, Any]) -> Posterior:
    fixed = plain["fixed"]
    members = Members({})
    members.where = {name: tuple(where) for name, where in fixed["members"].items()}
    return Posterior(
        **plain["post"], state=State(**plain["state"], memory=()), members=members,
        approximate=tuple(fixed["approximate"]), topology=fixed["topology"],
    )  # fmt: skip
