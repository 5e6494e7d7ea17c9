"""Data files too large, or too restricted in licence, to live in the repository: found through NGMP_DATA.

Set the environment variable NGMP_DATA to the folder that holds the files. Every file is checked against its sha256 when
it is read. `download(SUNSPOTS, folder)` fetches what has a public origin.
"""

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

VARIABLE = "NGMP_DATA"


@dataclass(frozen=True)
class DataFile:
    """What is known of a file before it is here.

    Args:
        name: file name inside the NGMP_DATA folder.
        sha256: checksum of the whole file.
        origin: where it comes from and under which terms, in words.
        url: public address of a byte-identical copy; None where there is none.
    """

    name: str
    sha256: str
    origin: str
    url: str | None = None


SUNSPOTS = DataFile(
    name="sunspots_monthly.csv",
    sha256="657169832a67571b46385046a2966a6056890ad22da82c26f7a26e615adde840",
    origin="Monthly mean sunspot numbers 1749-2022, WDC-SILSO, Royal Observatory of Belgium, Brussels (CC BY-NC 4.0), "
    "as compiled in Instructor/sunspots.csv of github.com/STAT-JET-ASU/Datasets",
    url="https://raw.githubusercontent.com/STAT-JET-ASU/Datasets/"
    "0baa28ef0c1299cdcb385fae28af4d2a2af1289c/Instructor/sunspots.csv",
)

SUNSPOT_MASKS = DataFile(
    name="sunspots_holdout_masks.txt",
    sha256="0b6ef3065499e6fec2380e86ff90f989d403b502a8993b00b2f25e9f1ce79f2d",
    origin="Held-out months: for seed in 42:61, the first 1644 entries of randperm(StableRNG(seed), 3288) in Julia "
    "1.11 with StableRNGs.jl, minus one, one seed a line after two comment lines",
)


def locate(file: DataFile) -> Path:
    """The path of `file` in the NGMP_DATA folder, its checksum verified.

    Raises:
        FileNotFoundError: the variable is not set or the file is not there; says where the file comes from.
        ValueError: the file there is another one.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise FileNotFoundError(f"{file.name}: set {VARIABLE} to the folder that holds it. {_describe(file)}")
    path = Path(folder) / file.name
    if not path.is_file():
        raise FileNotFoundError(f"{file.name}: not found in {VARIABLE}={folder}. {_describe(file)}")
    _verify(path.read_bytes(), file, str(path))
    return path


def download(file: DataFile, folder: str | Path) -> Path:
    """Fetches `file` into `folder`; nothing is written unless the checksum is right.

    Raises:
        ValueError: the file has no public address, or what is there now is another file.
    """
    if file.url is None:
        raise ValueError(f"{file.name} has no public address. {_describe(file)}")
    with urllib.request.urlopen(file.url, timeout=60) as response:
        content = response.read()
    _verify(content, file, file.url)
    path = Path(folder) / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def sunspots() -> Int[np.ndarray, "3288"]:
    """Monthly sunspot numbers, January 1749 to December 2022, as counts (rounded, ties to even)."""
    average = np.loadtxt(locate(SUNSPOTS), delimiter=",", skiprows=1, usecols=3)
    return np.rint(average).astype(int)


def sunspot_masks() -> Int[np.ndarray, "20 1644"]:
    """Held-out months of 20 seeds, zero-based, in draw order; the first 164, 329, 658, 1644 are 5, 10, 20, 50 %."""
    return np.loadtxt(locate(SUNSPOT_MASKS), dtype=int)


def sunspot_seen(fraction: float) -> Bool[np.ndarray, "20 3288"]:
    """The `mask` arguments of the 20 seeds when `fraction` (at most one half) of the months is held out."""
    n, held_out = 3288, sunspot_masks()
    count = round(fraction * n)
    if not 0 <= count <= held_out.shape[1]:
        raise ValueError(f"fraction must lie in [0, 0.5], got {fraction}")
    seen = np.ones((held_out.shape[0], n), dtype=bool)
    np.put_along_axis(seen, held_out[:, :count], False, axis=1)
    return seen


def _describe(file: DataFile) -> str:
    where = "" if file.url is None else f" Address: {file.url} (or call ngmp_models.data.download)."
    return f"Origin: {file.origin}.{where} sha256: {file.sha256}."


def _verify(content: bytes, file: DataFile, source: str) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != file.sha256:
        raise ValueError(f"{source} is not the expected file: sha256 {got}, expected {file.sha256}. {_describe(file)}")
