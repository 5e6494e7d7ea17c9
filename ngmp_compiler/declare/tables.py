"""Inputs as people keep them: lists of numbers, sparse matrices, series and frames of pandas and polars, xarray's.

None of these libraries is imported: what they hand out is told by the package its class comes from.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PACKAGES = ("pandas", "polars", "xarray")


@jax.tree_util.register_pytree_with_keys_class
class Table:
    """Columns by name, as a frame has them: `t["x"]`, `t.x`; `t[["a", "b"]]` and `t @ w` take them as a matrix.

    Columns that no model can use (names, missing values) are refused where one is asked for: frames hold more than
    models read.
    """

    __array_ufunc__ = None  # `matrix @ table` is ours to refuse

    def __init__(self, columns: dict[str, Any], unfit: tuple[tuple[str, tuple[type, str]], ...] = ()):
        self._columns, self._unfit = columns, dict(unfit)

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        names = tuple(self._columns), tuple(self._unfit.items())
        return [(jax.tree_util.DictKey(k), x) for k, x in self._columns.items()], names

    @classmethod
    def tree_unflatten(cls, names: Any, arrays: Any) -> "Table":
        return cls(dict(zip(names[0], arrays, strict=True)), names[1])

    def without(self, unfit: dict[str, tuple[type, str]]) -> "Table":
        """The table with columns, by name, that are refused with these errors."""
        rest = {k: x for k, x in self._columns.items() if k not in unfit}
        return Table(rest, tuple({**self._unfit, **unfit}.items()))

    def _refuse(self, names: Any) -> None:
        for k in names:
            if k in self._unfit:
                error, words = self._unfit[k]
                raise error(words)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        self._refuse(self._unfit)
        return len(self), len(self._columns)

    def __len__(self) -> int:
        return next(iter(self._columns.values())).shape[0]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, key: Any) -> Any:
        names = key if isinstance(key, list) else [key]
        self._refuse(names)
        unknown = [k for k in names if k not in self._columns]
        if unknown:
            raise KeyError(f"no column {unknown[0]!r}; there are {', '.join(map(repr, self._columns))}")
        return Table({k: self._columns[k] for k in key}) if isinstance(key, list) else self._columns[key]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._refuse([name])
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(f"no column {name!r}; there are {', '.join(map(repr, self._columns))}")
        return self._columns[name]

    def to_numpy(self) -> jax.Array:
        """The matrix of all columns, in order."""
        self._refuse(self._unfit)
        return jnp.stack([jnp.asarray(x) for x in self._columns.values()], axis=-1)

    values = property(to_numpy)
    __jax_array__ = to_numpy

    def __matmul__(self, other: Any) -> Any:
        return self.to_numpy() @ other


def plain(name: str, value: Any) -> Any:
    """An input as arrays; what is no table, series or list of numbers is left as it is."""
    if isinstance(value, (np.ndarray, jax.Array, float, int, str)) or value is None:
        return value
    if type(value) is list:
        return _from_list(name, value)
    if type(value) is dict:
        return {k: plain(f"{name}[{k!r}]", x) for k, x in value.items()}
    package = type(value).__module__.split(".")[0]
    if package == "scipy" and hasattr(value, "toarray"):  # a sparse matrix: structures look at its contents
        return _column(name, value.toarray())
    if package not in _PACKAGES:
        return value
    if package == "xarray":
        variables = getattr(value, "data_vars", None)
        if variables is None:
            return _column(name, value.values)
        return Table({str(k): _column(f"{name}[{k!r}]", x.values) for k, x in variables.items()})
    if not hasattr(value, "columns"):
        return _column(name, _values(value))
    columns, unfit = {}, {}
    for k in value.columns:
        try:
            columns[str(k)] = _column(f"{name}[{k!r}]", _values(value[k]))
        except TypeError as error:
            unfit[str(k)] = TypeError, str(error)
    if not columns:
        raise TypeError(next((words for _, words in unfit.values()), f"input '{name}' has no columns"))
    return Table(columns).without(unfit)


def _values(series: Any) -> np.ndarray:
    """A series as an array; what a nullable type calls missing is NaN."""
    kind = str(series.dtype)
    if kind in ("Int8", "Int16", "Int32", "Int64", "Float32", "Float64", "UInt8", "UInt16", "UInt32", "UInt64"):
        missing = series.is_null() if hasattr(series, "is_null") else series.isna()  # polars and pandas
        if missing.any() and hasattr(series, "isna"):
            return series.to_numpy(float, na_value=np.nan)
    return np.asarray(series.to_numpy())


def _column(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fiub":
        return values
    text = values.dtype.kind in "OUST"
    at = next((i for i, x in enumerate(values.reshape(-1)) if not isinstance(x, (int, float, np.number))), 0)
    found = f"{values.reshape(-1)[at]!r} in row {at}" if values.size else "nothing"
    works = "give numbers; of categories their codes, integers from 0" if text else "give numbers"
    if values.dtype.kind in "mM":
        works = "give times as numbers, such as days since the first"
    raise TypeError(f"input '{name}' has values of type {values.dtype} ({found}); {works}")


def _from_list(name: str, value: list[Any]) -> Any:
    """A list of numbers, or of such lists, as an array; tuples are structure, and lists of other things stay lists."""
    first = value
    while type(first) is list and first:
        first = first[0]
    if isinstance(first, (bool, int, float, np.generic)):
        try:
            array = np.asarray(value)
        except ValueError as error:
            works = "give rows of equal length, or one list for each"
            raise ValueError(f"input '{name}' is a list of lists of unequal lengths; {works}") from error
        return array if array.dtype.kind in "fiub" else value
    return [plain(f"{name}[{i}]", x) for i, x in enumerate(value)] if value else value


def check_missing(given: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Refuse missing values in series, and columns of frames that have some, where no mask could say so."""
    if any(np.dtype(getattr(x, "dtype", float)).kind == "b" for x in jax.tree.leaves(inputs)):
        return
    for name, value in given.items():
        if type(value).__module__.split(".")[0] not in _PACKAGES:
            continue
        unfit = {}
        for path, x in jax.tree_util.tree_leaves_with_path(inputs[name]):
            if x.dtype.kind == "f" and np.isnan(x).any():
                row = int(np.argwhere(np.isnan(x))[0][0])
                works = "leave such rows out, or give the model a mask, True where the value was seen"
                column = jax.tree_util.keystr(path)
                words = f"input '{name}{column}' has a missing value in row {row}; {works}"
                if not path:
                    raise ValueError(words)
                unfit[path[0].key] = ValueError, words
        if unfit:
            inputs[name] = inputs[name].without(unfit)
