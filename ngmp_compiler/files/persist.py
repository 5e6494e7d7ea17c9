"""Results in files: posteriors, solver states and carries, saved and loaded.

A file is an archive (`files.archive`) of a header (format version, kind, topology, the path, shape and dtype of every
array) and the bytes of each array, little-endian, in the order of C; no code is stored, and none is run by loading.
Loading needs a value of the same structure, or the program and inputs that make one, and refuses a file of another
version, structure or topology, or a damaged one.
"""

import hashlib
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ngmp_kernels.families import AbstractFamily

from ..errors import FileError
from ..program import Program
from ..results.posterior import Posterior
from ..solve.solver import State
from .archive import read_archive, write_archive

VERSION = 2  # 1 had no checksums of its parts
_FORMAT = "ngmp result"


def save(path: str | Path, value: Any) -> None:
    """Write a posterior, a state (`post.state`, `program.init(...)`) or a carry to a file.

    Programs are not saved: they compile again from the declaration (or see `program.export`).
    """
    arrays = [np.asarray(x) for x in jax.tree.leaves(value)]
    header = {"format": _FORMAT, "version": VERSION, **_structure(value)}
    write_archive(path, header, {f"{i}.bin": _bytes(x) for i, x in enumerate(arrays)})


def load(path: str | Path, like: Any, *args: Any, **kwargs: Any) -> Any:
    """Read what `save` has written.

    Args:
        path: the file.
        like: a value of the same structure, of arrays or `jax.ShapeDtypeStruct`; or the program, together with inputs
            of the shapes the result was computed for: `ngmp.load("post.ngmp", program, y=counts)`.

    Raises:
        FileError: if the file is damaged, of another version, or of another model, shape or precision than `like`.
    """
    header, parts = read_archive(path, _FORMAT, VERSION)
    _check_header(path, header)
    if isinstance(like, Program):
        like = like.like(header["kind"], *args, **kwargs)
    expected = _structure(like)
    problems = _differences(header, expected)
    if problems:
        raise FileError(f"{path} does not hold what was asked for:\n" + "\n".join(f"  {p}" for p in problems))
    arrays = [_array(path, parts.get(f"{i}.bin", b""), *entry) for i, entry in enumerate(header["arrays"])]
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(x) for x in arrays])


def _structure(value: Any) -> dict[str, Any]:
    """What has to agree between a file and the value it is loaded into."""
    if not isinstance(value, (Posterior, State, dict)):
        given = type(value).__name__
        raise TypeError(f"a {given} cannot be saved or loaded here; give a posterior, a state or a carry")
    families = [
        f"{jax.tree_util.keystr(path)} {type(x).__name__}"
        for path, x in jax.tree_util.tree_leaves_with_path(value, is_leaf=lambda x: isinstance(x, AbstractFamily))
        if isinstance(x, AbstractFamily)
    ]
    arrays = [
        [jax.tree_util.keystr(path), list(np.shape(x)), np.dtype(x.dtype).name]
        for path, x in jax.tree_util.tree_leaves_with_path(value)
    ]
    return {
        "kind": type(value).__name__,
        "topology": value.topology if isinstance(value, Posterior) else None,
        "families": hashlib.sha256("\n".join(families).encode()).hexdigest(),
        "arrays": arrays,
    }


def _differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    if found["kind"] != expected["kind"]:
        return [f"it holds a {found['kind']}, not a {expected['kind']}"]
    old, new = ({p: (s, d) for p, s, d in side["arrays"]} for side in (found, expected))
    changed = [(p, *old[p], *new[p]) for p in old if p in new and old[p] != new[p]]
    out = [f"{p} is {of}{was} in the file, {dtype}{shape} is expected" for p, was, of, shape, dtype in changed]
    out += [f"the file has {p}, which is not expected" for p in old if p not in new]
    out += [f"{p} is expected, and not in the file" for p in new if p not in old]
    if out:
        return out[:8] + ([f"and {len(out) - 8} more"] if len(out) > 8 else [])
    if found["arrays"] != expected["arrays"]:
        return ["its arrays are in another order"]
    if found["families"] != expected["families"]:
        return ["the families of its variables or leaves are others"]
    if found["topology"] != expected["topology"]:
        was, now = str(found["topology"])[:12], str(expected["topology"])[:12]
        return [f"it was computed with another model (topology {was}, expected {now}): same names, other factors"]
    return []


def _check_header(path: str | Path, header: dict[str, Any]) -> None:
    """Refuse a header that lacks what `_structure` writes, or has something of another kind in its place."""
    fine = isinstance(header.get("families"), str) and isinstance(header.get("topology", 0), (str, type(None)))
    fine = fine and header.get("kind") in ["Posterior", "State", "dict"]
    entries = header.get("arrays")
    fine = fine and isinstance(entries, list) and all(isinstance(e, list) and len(e) == 3 for e in entries)
    for where, shape, dtype in entries if fine else ():  # type: ignore[union-attr]
        fine &= isinstance(where, str) and isinstance(dtype, str) and isinstance(shape, list)
        fine &= isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not fine:
        raise FileError(f"{path} is damaged: its header is not that of a result")


def _bytes(x: np.ndarray) -> memoryview:
    x = np.ascontiguousarray(x).reshape(-1)
    return (x.byteswap() if sys.byteorder == "big" else x).view(np.uint8).data


def _array(path: str | Path, data: bytes, where: str, shape: list[int], dtype: str) -> np.ndarray:
    # The header agrees with what is expected by now, so shape and dtype are those of an array that exists.
    kind = jax.numpy.dtype(dtype)
    if len(data) != math.prod(shape) * kind.itemsize:
        raise FileError(f"{path} is damaged: {where} has {len(data)} bytes, not those of {dtype}{shape}")
    x = np.frombuffer(data, np.uint8).view(kind).reshape(shape)
    return x.byteswap() if sys.byteorder == "big" else x
