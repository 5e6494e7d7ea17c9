"""Functions of expressions that a model may use: `dot`, `stack`, `exp`, `log`, `take`, `broadcast_to`."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .affine import Affine, Arithmetic, Term, broadcast, contract
from .compound import Exp, Take
from .inputs import as_constant, unwrap
from .naming import label, not_affine, refuse
from .variables import Variable


def dot(features: Any, w: Any) -> Any:
    """Linear functionals `features @ w` of a vector variable.

    Args:
        features: constants of shape (..., D).
        w: a vector (MvNormal) variable or affine expression of event shape (D,).

    Returns:
        A scalar-valued expression of batch shape (...).
    """
    if not isinstance(w, Arithmetic):
        if isinstance(features, Arithmetic):
            features, w = w, features
        else:
            return jnp.sum(unwrap(features) * unwrap(w), axis=-1)
    if isinstance(features, Arithmetic):
        not_affine(f"dot({label(features)}, {label(w)}), a product of two random variables,")
    if np.ndim(features) < 1:
        refuse(f"dot of a scalar and {label(w)}", "features have shape (..., D)")
    return contract(w.affine(), features, "dot", ())


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, (int, float)) else unwrap(x)


def stack(entries: Any) -> Any:
    """Scalars as the entries of a vector, a linear functional of them: `MvNormal(stack([a, b]), covariance=...)`.

    Args:
        entries: scalar Gaussian variables, affine expressions of them, and constants, whose batch shapes broadcast; or
            a variable whose first axis is iterated over.

    Returns:
        A vector-valued expression; an array if all entries are constant.
    """
    entries = list(entries)
    if not any(isinstance(e, Arithmetic) for e in entries):
        return jnp.stack(jnp.broadcast_arrays(*map(unwrap, entries)), axis=-1)
    size, terms, offset = len(entries), [], None
    for i, entry in enumerate(entries):
        unit = np.eye(size)[i]
        if not isinstance(entry, Arithmetic):
            shift = _array(entry)
        else:
            x = entry.affine()
            if x.event_shape:
                refuse(
                    f"stack of {label(entry)}, a vector of {x.event_shape[0]}", "stack scalars; index a vector first"
                )
            shift = None if x.offset is None else _array(x.offset)
            for variable, op, c in x.terms:  # a column of the entry's coefficient
                c = _array(1.0 if c is None else c)
                rows = c[..., None] if op == "scale" else c
                terms.append(Term(variable, "matmul", unit[:, None] * rows[..., None, :]))
        if shift is not None:
            shift = shift[..., None] * unit
            offset = shift if offset is None else offset + shift
    shapes = [e.affine().batch_shape if isinstance(e, Arithmetic) else np.shape(e) for e in entries]
    return Affine(tuple(terms), offset, broadcast("stack", entries[0], entries[-1], *shapes), (size,))


def exp(x: Any) -> Any:
    """`exp` of an array, or the exponential link of an affine expression of Gaussian variables."""
    if isinstance(x, Take):
        return x.each(exp)
    return Exp(x.affine()) if isinstance(x, Arithmetic) else jnp.exp(unwrap(x))


def log(x: Any) -> Any:
    """`log` of an array, or of `exp(z)`, which is z."""
    if isinstance(x, Exp):
        return x.inner
    if isinstance(x, Arithmetic):
        refuse(f"log({label(x)})", "a Gaussian variable may be negative; log undoes ngmp.exp, and nothing else")
    return jnp.log(unwrap(x))


def take(table: Any, *indices: Any) -> Any:
    """`table[i, j, ...]`: the entry (a row of probabilities, say) that categorical variables pick from a table.

    `Normal(take(m, z), precision=take(w, z))` is a mixture or a switching model; arithmetic and `exp` act entrywise.

    Args:
        table: a constant of shape (K1, K2, ..., *event), or random variables of batch shape (K1, K2, ...).
        *indices: Categorical variables of K1, K2, ... classes; constant integers index as in NumPy.
    """
    if not indices:
        refuse("take(table) without an index", "give one Categorical variable for each leading axis of the table")
    random = isinstance(table, (Arithmetic, Exp))
    table = table if random else as_constant(table)
    if not any(isinstance(i, Arithmetic) for i in indices):
        return _random_entry(table, indices) if random else _constant_entry(table, indices)
    if not all(isinstance(i, Variable) and i.plane.family.core == "categorical" for i in indices):
        works = "indices must be Categorical variables, or all of them constant integers"
        refuse(f"take(table, {_labels(indices)})", works)
    inner = table.inner if isinstance(table, Exp) else table
    lead = inner.batch_shape if random else np.shape(table)[: len(indices)]
    classes = tuple(i.plane.event_shape[0] for i in indices)
    if lead != classes:
        what = f"{label(inner)} has batch shape {lead}" if random else f"the table has {_sizes(lead, 'row')}"
        refuse(f"take(table, {_labels(indices)}): {what}", f"the index has {_sizes(classes, 'class')}")
    if random:
        return Take(tuple(table[at] for at in np.ndindex(*lead)), *indices)
    return Take(table, *indices)


def _labels(indices: tuple[Any, ...]) -> str:
    return ", ".join(label(i) if isinstance(i, Arithmetic) else "a constant" for i in indices)


def _random_entry(table: Any, indices: tuple[Any, ...]) -> Any:
    try:
        return table[indices]
    except IndexError as error:
        works = "give a constant table, or random variables with a leading axis for every index"
        refuse(f"take({label(table)}, ...): {error}", works)


def _constant_entry(table: Any, indices: tuple[Any, ...]) -> Any:
    """`table[indices]` of constants. JAX would take the nearest entry for an index out of range."""
    array, where = unwrap(table), tuple(map(unwrap, indices))
    if len(where) > np.ndim(array):
        refuse(f"take of {len(where)} indices from a table of shape {np.shape(array)}", "give an index for each axis")
    for size, index in zip(np.shape(array), where, strict=False):
        if not isinstance(index, Tracer):
            known = np.asarray(index)
            if known.dtype.kind not in "iu":
                refuse(f"take(table, ...): an index of dtype {known.dtype}", "indices are integers")
            bad = known[(known < -size) | (known >= size)]
            if bad.size:
                works = f"indices are integers from 0 to {size - 1}"
                refuse(f"take(table, ...): index {bad.flat[0]} into {size} rows", works)
    if not any(isinstance(index, Tracer) for index in where):
        where = tuple(map(np.asarray, where))
        return array[where] if isinstance(array, np.ndarray) else jnp.asarray(array)[where]
    # A traced index cannot be looked at here: out of range it gives NaN, which the checks of the site report. Integers
    # have no NaN, so their entries become floats; as indices of another table they become integers again.
    array = jnp.asarray(array)
    array = array if jnp.issubdtype(array.dtype, jnp.inexact) or array.dtype == bool else array.astype(float)
    return array.at[tuple(_whole(i, n) for i, n in zip(where, array.shape, strict=False))].get(mode="fill")


def _whole(index: Any, size: int) -> Any:
    """Integers among floats as such, `size` (which is out of range) where there are none."""
    if not jnp.issubdtype(jnp.asarray(index).dtype, jnp.inexact):
        return index
    return jnp.where(index == jnp.floor(index), index, size).astype(int)


def _sizes(lead: tuple[int, ...], what: str) -> str:
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{' x '.join(map(str, lead)) or 0} {plural}"


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """A variable as a plate of the given batch shape, all elements the same: one Dirichlet vector for many classes."""
    if not isinstance(x, Variable):
        return jnp.broadcast_to(unwrap(x), shape)
    try:
        return Variable(x.frame, x.plane, np.broadcast_to(x.index, shape))
    except ValueError:
        refuse(f"broadcast_to({label(x)}, {shape}) of batch shape {x.batch_shape}", "shapes broadcast as in NumPy")
