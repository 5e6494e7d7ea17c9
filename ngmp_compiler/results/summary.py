"""Posteriors in words: tables of marginals, one line for each, and the same as data frames and HTML."""

import html
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from .labels import Labels, element

_ROWS = 6  # elements of a long array that are shown: the first and the last of them
_COLUMNS = ("mean", "sd", "5%", "50%", "95%")
_NONE = (None,) * len(_COLUMNS)
_PROBABILITIES = np.array([0.05, 0.5, 0.95])


class Row(NamedTuple):
    """One element of a marginal, or what is left out between two."""

    label: str
    values: tuple[float, ...]
    family: str
    shape: str


class Table:
    """A summary: printed it is aligned text, in a notebook HTML; `rows` are all of its rows."""

    def __init__(self, title: str, rows: list[Row]):
        self.title, self.rows = title, rows

    def __str__(self) -> str:
        cells = [["", *_COLUMNS, "family", "shape"]]
        cells += [[r.label, *(_number(x) for x in r.values or _NONE), r.family, r.shape] for r in self.rows]
        wide = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        left = {0, len(wide) - 2, len(wide) - 1}
        lines = []
        for row in cells:
            each = enumerate(zip(row, wide, strict=True))
            lines.append("  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in each).rstrip())
        return "\n".join([self.title, *lines] if self.title else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in ("", *_COLUMNS, "family", "shape"))
        body = "".join(
            "<tr><th style='text-align:left'>" + html.escape(r.label) + "</th>"
            + "".join(f"<td>{_number(x)}</td>" for x in r.values or _NONE)
            + f"<td>{html.escape(r.family)}</td><td>{html.escape(r.shape)}</td></tr>"
            for r in self.rows
        )  # fmt: skip
        return f"<p>{html.escape(self.title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def to_frame(self) -> Any:
        """The same as a `pandas.DataFrame`."""
        pandas = needs_pandas("summary(...).to_frame")
        data = {c: [r.values[i] if r.values else np.nan for r in self.rows] for i, c in enumerate(_COLUMNS)}
        return pandas.DataFrame(data, index=[r.label for r in self.rows])


def needs_pandas(what: str) -> Any:
    """The module pandas."""
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"{what} needs pandas: pip install pandas") from error
    return pandas


def columns(q: Any) -> dict[str, np.ndarray]:
    """Mean, standard deviation and quantiles of a marginal, each of the shape of its mean."""
    mean, sd = np.asarray(q.mean), np.asarray(q.std)
    found = {"mean": mean, "sd": sd}
    try:
        quantiles = np.asarray(q.quantile(_PROBABILITIES), float)
        fits = quantiles.shape[1:] == mean.shape
    except (NotImplementedError, TypeError, ValueError):
        quantiles, fits = None, False
    for i, name in enumerate(_COLUMNS[2:]):
        found[name] = quantiles[i] if fits and quantiles is not None else np.full(mean.shape, np.nan)
    return found


def family_of(q: Any) -> str:
    """The name of its family; of a mixture over nodes, that of its components."""
    return f"mixture of {type(q.components).__name__}" if hasattr(q, "components") else type(q).__name__


def rows_of(name: str, q: Any, labels: Labels, most: int = _ROWS) -> list[Row]:
    """The rows of a marginal; of a long one the first and the last."""
    found = columns(q)
    shape = found["mean"].shape
    places = list(np.ndindex(*shape))
    shown = places if len(places) <= most else [*places[: most // 2], None, *places[-(most - most // 2) :]]
    out = []
    for k, at in enumerate(shown):
        if at is None:
            out.append(Row(f"  ... {len(places) - most} more", (), "", ""))
            continue
        label = element(name, at, shape, labels)
        first = k == 0
        values = tuple(float(found[c][at]) for c in _COLUMNS)
        out.append(Row(label, values, family_of(q) if first else "", str(shape) if first and shape else ""))
    return out


def headline(post: Any) -> str:
    """Whether to believe a posterior, in one line."""
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(post)):
        return "Posterior (traced)"
    energy, converged = np.asarray(post.free_energy), np.asarray(post.converged)
    if energy.ndim:
        return f"Posterior, a batch of shape {energy.shape}: {int(converged.sum())} of {converged.size} converged"
    state = "converged" if converged else f"NOT CONVERGED ({post.reason.splitlines()[0]})"
    exact = (
        "exact" if bool(np.asarray(post.exact)) else f"approximate ({len(post.approximate)} named in post.approximate)"
    )
    exact = exact if converged else "not to be trusted"
    return f"Posterior: {state} after {int(post.sweeps)} sweeps, free energy {float(energy):.4f}, {exact}"


def summary(post: Any, names: tuple[str, ...], most: int = _ROWS) -> Table:
    """The table of some marginals."""
    title = headline(post)
    if title == "Posterior (traced)" or np.ndim(post.free_energy):
        return Table(title, [])
    return Table(title, [row for name in names for row in rows_of(name, post[name], post._labels, most)])


def _number(x: float | None) -> str:
    if x is None:
        return ""
    if np.isnan(x):
        return "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.3e}"
