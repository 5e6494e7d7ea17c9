"""Files: a zip archive of a JSON header and named parts, with checksums; results and exported programs are such."""

import json
import zipfile
from pathlib import Path
from typing import Any

from ._errors import FileError


def write_archive(path: str | Path, header: dict[str, Any], parts: dict[str, bytes]) -> None:
    """Write a header and named parts, each with a checksum; a file that was there is replaced once all is written."""
    partial = Path(path).with_name(Path(path).name + ".part")
    with zipfile.ZipFile(partial, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, data in parts.items():
            archive.writestr(name, data)
    partial.replace(path)


def read_archive(path: str | Path, format: str, version: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header and parts of an archive; FileError if it is damaged, or of another format or version."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}  # checks the checksums
        header = json.loads(parts.pop("header.json"))
        found, was = header["format"], header["version"]
    except Exception as error:  # zipfile, zlib and json raise a dozen kinds on damaged bytes
        raise FileError(f"{path} is damaged, or not written by ngmp: {error}") from error
    if found != format:
        raise FileError(f"{path} holds an '{found}', not an '{format}'")
    if was != version:
        raise FileError(f"{path} has format version {was}; this version of ngmp reads {version}: save it again")
    return header, parts
