"""Programs in files: compiled for given shapes, run without the source of the model.

A file holds the StableHLO of a whole run (`jax.export`), the names and shapes of its inputs, and the structure of its
result. It runs wherever jax and this package are installed, on the platforms it was exported for.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters import mlir
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from ngmp_kernels import families
from ngmp_kernels.families import AbstractFamily

from ..errors import ConvergenceWarning, DataError, FileError, listed, warn
from ..integrate.run import NodeTable
from ..pipeline import split
from ..results.mixture import Mixture
from ..results.numeric import Numeric
from ..results.posterior import Members, Posterior, not_converged
from ..solve import solver as _solve
from ..solve.solver import INVALID, REASONS, State
from .archive import read_archive, write_archive

VERSION = 2  # 1 had no checksums of its parts, and places of source files in it
_FORMAT = "ngmp program"
# Of the nodes of an integral, all but the run at each, whose marginals are those of the mixtures.
_MODULES: dict[str, Any] = {"Mixture": Mixture, "Numeric": Numeric, "NodeTable": NodeTable}


def traced_and_fixed(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a model that stay inputs of what is exported, and those that are fixed in it."""
    traced, fixed = {}, {}
    for name, value in inputs.items():
        rest, arrays = split({name: value})
        if arrays and len(arrays) < len(rest.static):
            works = "give what is traced and what is static as inputs of their own"
            raise TypeError(f"input '{name}' holds arrays and other values; to export, {works}")
        (traced if arrays else fixed)[name] = value
    return traced, fixed


def export_run(
    run: Callable[..., Posterior], path: str | Path, bound: dict[str, Any], platforms: Any,
    contents: Collection[tuple] = (),
) -> None:  # fmt: skip
    """Write `run(static, dynamic)` of a program, for these inputs by name, to a file; `contents` are as for `split`."""
    traced, fixed = traced_and_fixed(bound)
    tree = jax.tree.structure(bound)
    places = jax.tree.unflatten(tree, range(tree.num_leaves))
    known = {i for of, i in contents if of == tree}
    for name in [name for name in traced if known.intersection(jax.tree.leaves(places[name]))]:
        fixed[name] = traced.pop(name)

    def whole(inputs: dict[str, Any]) -> Posterior:
        return run(*split({name: {**fixed, **inputs}[name] for name in bound}, contents=contents))

    export(whole, path, traced, fixed, platforms)


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
    write_archive(path, header, {"program.bin": bytes(_without_places(exported).serialize())})


def _without_places(exported: jax.export.Exported) -> jax.export.Exported:
    """The same program without the places in source files that its operations came from."""
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        module.operation.walk(_without_sharding)
        oldest = stablehlo.StablehloCompatibilityRequirement.WEEK_4  # as jax.export itself does
        version = stablehlo.get_version_from_compatibility_requirement(oldest)
        bare = stablehlo.serialize_portable_artifact(module, version)
    return dataclasses.replace(exported, mlir_module_serialized=bare)


def _without_sharding(operation: Any) -> Any:
    """Drop how a call of LAPACK could be sharded: a hint that is not of this dialect, which cannot be written."""
    if "sdy.sharding_rule" in operation.attributes:
        del operation.attributes["sdy.sharding_rule"]
    return ir.WalkResult.ADVANCE


class ExportedProgram:
    """A program from a file; call it with the inputs it was exported for, by name. It composes with `jit`."""

    def __init__(self, path: str | Path):
        self.path = path
        _needs_flatbuffers()
        header, parts = read_archive(path, _FORMAT, VERSION)
        here = jax.default_backend()
        try:
            self._inputs, self._defaults = header["inputs"], header["defaults"]
            self._static, self._result = header["static"], header["result"]
            elsewhere = here not in (platforms := [str(p) for p in header["platforms"]])
            self._exported = jax.export.deserialize(bytearray(parts["program.bin"]))
            self._check_header()
        except Exception as error:  # flatbuffers, and headers of any form, raise anything
            raise FileError(f"{path} is damaged: the program cannot be read ({error})") from error
        if elsewhere:
            works = f"export it again with platforms=('{here}',)"
            raise FileError(f"{path} was exported for {platforms}, and this is {here}; {works}")
        self._run = jax.jit(self._exported.call)

    def _check_header(self) -> None:
        """Raise something if the header does not fit the program: inputs as many and of the kinds it takes, a result
        that can be made of what it returns, numbers for defaults."""
        described = [(tuple(shape), dtype) for name in sorted(self._inputs) for shape, dtype in self._inputs[name]]
        if described != [(a.shape, a.dtype.name) for a in self._exported.in_avals]:
            raise ValueError("its inputs are not those of the header")
        if not (set(self._defaults) <= set(self._inputs) and all(type(x) is float for x in self._defaults.values())):
            raise ValueError("a default is no number, or of no input")
        if not all(isinstance(x, str) for x in self._static.values()):
            raise ValueError("a static input is not described in words")
        outputs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self._exported.out_avals]
        jax.eval_shape(self._posterior, outputs)

    def _posterior(self, outputs: list[Any]) -> Posterior:
        arrays = iter(outputs)
        post = _posterior(_decode(self._result, arrays))
        if len(list(arrays)):
            raise ValueError("it returns more than the header says")
        return post

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
        post = self._posterior(self._run(*leaves))
        if not isinstance(post.status, Tracer) and (codes := np.asarray(post.status)).any():
            if (codes == INVALID).any():
                raise DataError(f"no posterior can be computed: {REASONS[INVALID]}")
            warn(not_converged(str(self.path), post), ConvergenceWarning)
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
    names = ("marginals", "free_energy", "converged", "sweeps", "residual", "status", "neighbours", "jitter", "nodes")
    state = {f.name: getattr(post.state, f.name) for f in dataclasses.fields(post.state) if f.name != "memory"}
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
    if value is None:
        return "none"
    if type(value).__name__ in _MODULES:
        own = [(f.name, bool(f.metadata.get("static"))) for f in dataclasses.fields(value) if f.name != "runs"]
        fixed = {name: getattr(value, name) for name, static in own if static}
        fields = {name: _encode(getattr(value, name), arrays) for name, static in own if not static}
        return {"module": type(value).__name__, "fixed": fixed, "fields": fields}
    if isinstance(value, AbstractFamily):
        return {"family": type(value).__name__, "blocks": [_encode(x, arrays) for x in value.natural]}
    if isinstance(value, tuple):
        kind = type(value).__name__ if hasattr(value, "_fields") else None
        return {"tuple": [_encode(x, arrays) for x in value], "kind": kind}
    arrays.append(value)
    return "array"


def _decode(described: Any, arrays: Any) -> Any:
    if described == "array":
        return next(arrays)
    if described == "none":
        return None
    if "module" in described:
        kind = _MODULES[described["module"]]
        fixed = {name: tuple(x) if isinstance(x, list) else x for name, x in described["fixed"].items()}
        fields = {name: _decode(x, arrays) for name, x in described["fields"].items()}
        return kind(**fields, **fixed, **({"runs": None} if kind is NodeTable else {}))
    if "fixed" in described:
        return described["fixed"]
    if "dict" in described:
        return {key: _decode(x, arrays) for key, x in described["dict"].items()}
    if "tuple" in described:
        items = tuple(_decode(x, arrays) for x in described["tuple"])
        return items if described["kind"] is None else _checked_kind(_solve, described["kind"], tuple)(*items)
    family = _checked_kind(families, described["family"], AbstractFamily)
    return family(*(_decode(x, arrays) for x in described["blocks"]))


def _checked_kind(module: Any, name: str, kind: type) -> Any:
    found = getattr(module, name)
    if not issubclass(found, kind):
        raise TypeError(f"{name} is no {kind.__name__}")
    return found


def _posterior(plain: dict[str, Any]) -> Posterior:
    fixed = plain["fixed"]
    members = Members({})
    members.where = {name: tuple(where) for name, where in fixed["members"].items()}
    return Posterior(
        **plain["post"], state=State(**plain["state"], memory=()), members=members,
        approximate=tuple(fixed["approximate"]), topology=fixed["topology"],
    )  # fmt: skip
