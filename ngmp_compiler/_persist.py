"""Results in files: posteriors, solver states and carries, saved and loaded.

A file is a zip archive of `header.json` (format version, kind, topology, the path, shape and dtype of every array) and
one `.npy` per array; no code is stored, and none is run by loading. Loading needs a value of the same structure, or the
program and inputs that make one, and refuses a file of another version, structure or topology, or a damaged one.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ngmp_kernels.families import AbstractFamily

from ._archive import read_archive, write_archive
from ._errors import FileError
from ._posterior import Posterior
from ._program import Program
from ._solve import State

VERSION = 1
_FORMAT = "ngmp result"


def save(path: str | Path, value: Any) -> None:
    """Write a posterior, a state (`post.state`, `program.init(...)`) or a carry to a file.

    Programs are not saved: they compile again from the declaration (or see `program.export`).
    """
    arrays = [np.asarray(x) for x in jax.tree.leaves(value)]
    header = {"format": _FORMAT, "version": VERSION, **_structure(value)}
    write_archive(path, header, {f"{i}.npy": _npy(x) for i, x in enumerate(arrays)})


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
    if isinstance(like, Program):
        like = like.like(header["kind"], *args, **kwargs)
    expected = _structure(like)
    problems = _differences(header, expected)
    if problems:
        raise FileError(f"{path} does not hold what was asked for:\n" + "\n".join(f"  {p}" for p in problems))
    arrays = [_array(path, parts, i, entry) for i, entry in enumerate(header["arrays"])]
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
    if found["families"] != expected["families"]:
        return ["the families of its variables or leaves are others"]
    if found["topology"] != expected["topology"]:
        was, now = str(found["topology"])[:12], str(expected["topology"])[:12]
        return [f"it was computed with another model (topology {was}, expected {now}): same names, other factors"]
    return []


def _npy(x: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x, allow_pickle=False)
    return buffer.getvalue()


def _array(path: str | Path, parts: dict[str, bytes], i: int, entry: list) -> np.ndarray:
    try:
        x = np.load(io.BytesIO(parts[f"{i}.npy"]), allow_pickle=False)
    except (KeyError, ValueError, EOFError) as error:
        raise FileError(f"{path} is damaged: {entry[0]} cannot be read") from error
    if [list(x.shape), x.dtype.name] != entry[1:]:
        raise FileError(f"{path} is damaged: {entry[0]} is {x.dtype.name}{list(x.shape)}, the header says otherwise")
    return x
