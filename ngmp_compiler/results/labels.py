"""Labels of axes: the index of a series or frame, the coordinates of an xarray, kept for the results.

Axes are told by their length. Where several inputs label axes of one length differently, none of them is used.
"""

from typing import Any, NamedTuple

import numpy as np

QUANTILES = ("5%", "50%", "95%")


class Axis(NamedTuple):
    """The name and the labels of an axis."""

    name: str
    labels: Any  # a pandas index, or an array


Labels = dict[int, Axis | None]  # by length; None where it is not known which


def labels_of(inputs: dict[str, Any]) -> Labels:
    """The labels that inputs bring along, as they were given."""
    found: Labels = {}
    for value in inputs.values():
        for axis in _axes(value):
            known = found.get(len(axis.labels), axis)
            same = known is not None and np.array_equal(np.asarray(known.labels), np.asarray(axis.labels))
            found[len(axis.labels)] = (known if known and known.name else axis) if same else None
    return found


def _axes(value: Any) -> list[Axis]:
    if isinstance(value, dict):
        return [axis for x in value.values() for axis in _axes(x)]
    package = type(value).__module__.split(".")[0]
    if package == "pandas" and hasattr(value, "index"):
        return [Axis(str(value.index.name or ""), value.index)]
    if package == "xarray":
        return [Axis(str(dim), value.coords[dim].values) for dim in value.dims if dim in value.coords]
    return []


def dims_of(name: str, shape: tuple[int, ...], labels: Labels) -> tuple[list[str], dict[str, Any]]:
    """Names of the axes of a variable, and the labels of those that have some."""
    dims, coords = [], {}
    for i, n in enumerate(shape):
        axis = labels.get(n)
        dim = f"{name}_dim_{i}" if axis is None else axis.name or f"index_{n}"
        dim = f"{name}_dim_{i}" if dim in dims else dim
        dims.append(dim)
        coords[dim] = np.arange(n) if axis is None else np.asarray(axis.labels)
    return dims, coords


def element(name: str, at: tuple[int, ...], shape: tuple[int, ...], labels: Labels) -> str:
    """What an element of a variable is called: `theta[Choate]`, or `theta[3]` where its axis has no labels."""
    if not at:
        return name
    dims, coords = dims_of(name, shape, labels)
    words = (coords[dim][i] for dim, i in zip(dims, at, strict=True))
    short = (np.datetime_as_string(x, unit="auto") if isinstance(x, np.datetime64) else x for x in words)
    return f"{name}[{', '.join(map(str, short))}]"


def frame(columns: dict[str, np.ndarray], labels: Labels) -> Any:
    """Columns of one shape as a `pandas.DataFrame`, a row for every element."""
    pandas = _module("pandas", "to_frame")
    shape = columns["mean"].shape
    axes = [labels.get(n) for n in shape]
    each = [pandas.RangeIndex(n) if a is None else pandas.Index(a.labels) for n, a in zip(shape, axes, strict=True)]
    if not shape:
        index = pandas.RangeIndex(1)
    elif len(shape) == 1:
        index = each[0] if axes[0] is None else each[0].rename(axes[0].name or None)
    else:
        index = pandas.MultiIndex.from_product(each, names=[None if a is None else a.name or None for a in axes])
    return pandas.DataFrame({c: np.ravel(x) for c, x in columns.items()}, index=index)


def dataset(name: str, columns: dict[str, np.ndarray], labels: Labels) -> Any:
    """The same as an `xarray.Dataset`, quantiles along an axis of their own."""
    xarray = _module("xarray", "to_xarray")
    dims, coords = dims_of(name, columns["mean"].shape, labels)
    wanted = [float(q.rstrip("%")) / 100 for q in QUANTILES]
    data = {
        "mean": (dims, columns["mean"]), "sd": (dims, columns["sd"]),
        "quantile": (["probability", *dims], np.stack([columns[q] for q in QUANTILES])),
    }  # fmt: skip
    return xarray.Dataset(data, coords={**coords, "probability": wanted}, attrs={"variable": name})


def _module(name: str, what: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"{what} needs {name}: pip install {name}") from error
