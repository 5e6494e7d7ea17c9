"""Hourly ETT series with a bank of frozen forecasters: the cells of the ensemble study, and a context for its gates.

A cell is a data set (ETTh1, ETTh2) and a horizon H (96, 192, 336, 720). From a window of 96 hours of seven variables
the oil temperature H hours after its last hour is to be told; 60/20/20 % of the windows in time order are train,
validation and test. Everything is in units standardised on the training windows. Files are found through NGMP_DATA.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .data import DataFile, locate

DATASETS, HORIZONS = ("ETTh1", "ETTh2"), (96, 192, 336, 720)
VARIABLES = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
EXPERTS = ("CNN", "NLinear", "LSTM", "DLinear", "NConv", "q10", "q90")
WINDOW = 96

_SERIES = {
    "ETTh1": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
_EXPERTS = {
    ("ETTh1", 96): "343a1b47e441df17ad4bb75c2713dfa85f0eb59fd2a8a999fc1cf8e373c45972",
    ("ETTh1", 192): "2f2bdb7ec502997a1ff4300c5584e78261c6241ee8d92448914a8dd24c1c1b93",
    ("ETTh1", 336): "3817a6a088ac2f5165a444420d887a1071dd4b87d13df50b0c35e58432ea2925",
    ("ETTh1", 720): "321b297862173a5b884a37aa7ef952a40b5e30ef4336c84c91b4d9867c6fb99b",
    ("ETTh2", 96): "d60d3141f57c6e113b7d40bd766b96bcebc6fe13096620dad588ce5cd70cf93b",
    ("ETTh2", 192): "4c5138b1e114d91b3a5c32356ab1e38980403a85dcf0553c746d31b56f73bae0",
    ("ETTh2", 336): "0a426aecac19fb521028984515c1d1ef21e12a4fb143908c06262a85707b5ea7",
    ("ETTh2", 720): "e67265afcb1e9091888c33e08fd9b5c40574cdf31753848fa204fc2ded6d9aa1",
}
_CELLS = "4e6bff693bfcb0701ad7c9965ed7b7cf1311a4f04f0f10cbb5be0a54350d3ee7"


class Cell(NamedTuple):
    """One task. Rows of y and forecasts are the validation windows, then the test windows, in time order."""

    dataset: str
    horizon: int
    series: Float[np.ndarray, "t 7"]
    """Standardised."""
    start: Int[np.ndarray, " n"]
    """Row of the series where a window starts; its last hour is start + 95, its target start + 95 + horizon."""
    y: Float[np.ndarray, " n"]
    forecasts: Float[np.ndarray, "n 7"]
    """In the order of `EXPERTS`."""
    fitted: int
    """So many rows are validation, on which gates are fitted; training windows start at 0 ... start[0] - 1."""

    def windows(self, start: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k 96 7"]:
        """The windows that start at these rows of the series."""
        return self.series[start[:, None] + np.arange(WINDOW)]


def cell(dataset: str, horizon: int) -> Cell:
    """A cell, from files whose checksums are verified.

    Raises:
        ValueError: there is no such cell, or a file is another one.
        FileNotFoundError: a file is not there; says where it comes from.
    """
    if (dataset, horizon) not in _EXPERTS:
        raise ValueError(f"no cell {dataset!r}, {horizon!r}; data sets: {DATASETS}, horizons: {HORIZONS}")
    series, experts, cells = (locate(f) for f in files(dataset, horizon))
    known = np.genfromtxt(cells, delimiter=",", names=True, dtype=None, encoding="utf8")
    row = known[(known["dataset"] == dataset) & (known["horizon"] == horizon)][0]
    mean, sd = (np.array([row[f"{k}_{v}"] for v in VARIABLES]) for k in ("mean", "sd"))
    values = (np.loadtxt(series, delimiter=",", skiprows=1, usecols=range(1, 8)) - mean) / sd
    split = np.loadtxt(experts, delimiter=",", skiprows=1, usecols=0, dtype=str)
    numbers = np.loadtxt(experts, delimiter=",", skiprows=1, usecols=range(1, 8))
    constant = np.broadcast_to([row["q10"], row["q90"]], (len(numbers), 2))
    start, target = numbers[:, 0].astype(int), numbers[:, 1].astype(int)
    forecasts = np.concatenate([numbers[:, 2:], constant], axis=1)
    return Cell(dataset, horizon, values, start, values[target, -1], forecasts, int(np.sum(split == "val")))


def files(dataset: str, horizon: int) -> tuple[DataFile, DataFile, DataFile]:
    """The files behind a cell: the series, the forecasts, the table of splits and scalers."""
    address = (
        "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small/"
    )
    origin = "Electricity transformer temperature, Zhou et al. (Informer, AAAI 2021), CC BY-ND 4.0"
    drawn = "forward passes of the checkpoints (MIT) of github.com/biaslab/PrecisionGatedExperts, commit 6c0a4832"
    return (
        DataFile(f"ett/{dataset}.csv", _SERIES[dataset], origin, address + f"{dataset}.csv"),
        DataFile(f"etth_experts/{dataset}_h{horizon}.csv", _EXPERTS[dataset, horizon], drawn),
        DataFile("etth_experts/cells.csv", _CELLS, drawn),
    )


def principal_components(task: Cell, k: int = 64, every: int = 3) -> Float[np.ndarray, "n k"]:
    """Scores of the windows on the first k principal components of every third training window."""
    train = task.windows(np.arange(0, task.start[0], every)).reshape(-1, WINDOW * len(VARIABLES))
    mean = train.mean(0)
    _, basis = np.linalg.eigh(np.cov(train.T))
    return (task.windows(task.start).reshape(len(task.start), -1) - mean) @ basis[:, ::-1][:, :k]


def gate_context(features: Float[np.ndarray, "n k"], fitted: int) -> Float[np.ndarray, "n k+1"]:
    """Features less their mean over their sd, both of the first `fitted` rows, with a last column of ones.

    Columns that are constant there become zero.
    """
    if features.ndim != 2 or not 1 < fitted <= len(features):
        raise ValueError(
            f"features must be a matrix with a row for each window and at least two of them fitted; got shape "
            f"{features.shape} and {fitted} fitted"
        )
    mean, sd = features[:fitted].mean(0), features[:fitted].std(0, ddof=1)
    scaled = np.where(sd > 1e-9, (features - mean) / np.maximum(sd, 1e-9), 0.0)
    return np.concatenate([scaled, np.ones((len(features), 1))], axis=1)
