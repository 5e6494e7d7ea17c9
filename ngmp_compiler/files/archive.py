"""Files: a zip archive of a JSON header and named parts; results and exported programs are such.

Nothing in a file is compressed, so that what it claims to hold can be checked against its length before any of it is
read. The header holds the length and SHA-256 of every part, and the comment of the archive that of the header: a file
that was cut, changed or mixed with another is refused before its content is looked at.
"""

import contextlib
import hashlib
import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError

_HEADER = "header.json"
Bytes = bytes | memoryview


def write_archive(path: str | Path, header: dict[str, Any], parts: Mapping[str, Bytes]) -> None:
    """Write a header and named parts, with checksums.

    All is written to a file of another name beside it, which then takes its place: whoever reads the path, and whenever
    this process ends, it holds the old file or the new one, also when several write to it at once.
    """
    sums = {name: [memoryview(data).nbytes, hashlib.sha256(data).hexdigest()] for name, data in parts.items()}
    text = json.dumps({**header, "parts": sums}).encode()
    target = Path(os.path.realpath(path))  # where a link points to, which stays one
    partial = target.with_name(f".ngmp-{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.comment = hashlib.sha256(text).hexdigest().encode()
                for name, data in {_HEADER: text, **parts}.items():
                    with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as part:
                        part.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make a change of names last; not every system opens folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_archive(path: str | Path, format: str, version: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header and parts of an archive; FileError if it is damaged, or of another format or version."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(_Bounded(file, size)) as archive:  # type: ignore[arg-type]
                entries = _entries(archive, size)
                text = archive.read(entries.pop(_HEADER))
                header = json.loads(text)
                found, was = header["format"], header["version"]
                if (found, was) == (format, version):
                    _check(archive.comment.decode() == hashlib.sha256(text).hexdigest(), "its header was changed")
                    return header, _parts(archive, entries, header["parts"])
        except Exception as error:  # zipfile, zlib and json raise a dozen kinds on damaged bytes
            raise FileError(f"{path} is damaged, or not written by ngmp: {error}") from error
    if found != format:
        raise FileError(f"{path} holds an {str(found)[:40]!r}, not an '{format}'")
    raise FileError(f"{path} has format version {str(was)[:40]}; this version of ngmp reads {version}: save it again")


class _Bounded:
    """A file that is never asked for more than it has: for a length that is wrong, memory would be found first."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._size = file, size
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, n: int = -1) -> bytes:
        left = max(self._size - self._file.tell(), 0)
        return self._file.read(left if n < 0 else min(n, left))


def _check(fine: bool, problem: str) -> None:
    if not fine:
        raise ValueError(problem)


def _entries(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The entries by name, once it is clear that reading all of them takes no more than the file has."""
    entries = {entry.filename: entry for entry in archive.infolist()}
    _check(len(entries) == len(archive.infolist()), "several parts have one name")
    _check(all(e.compress_type == zipfile.ZIP_STORED for e in entries.values()), "it is compressed; ours never are")
    _check(sum(e.file_size for e in entries.values()) <= size, "it claims to hold more than its length")
    return entries


def _parts(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], sums: dict[str, Any]) -> dict[str, bytes]:
    _check(set(entries) == set(sums), "it lacks parts, or has others")
    parts = {}
    for name, (length, digest) in sums.items():
        _check(entries[name].file_size == length, f"part {name} has another length than was written")
        parts[name] = archive.read(entries[name])
        _check(hashlib.sha256(parts[name]).hexdigest() == digest, f"part {name} was changed")
    return parts
