"""Functions of expressions that a model may use: `dot`, `stack`, `exp`, `log`, `take`, `broadcast_to`."""

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .affine import Affine, Arithmetic, Term, broadcast, contract
from .compound import Exp, Product, Take
from .inputs import as_constant, unwrap
from .links import InverseLink
from .naming import label, refuse
from .smooth import EXP, LOG, Smooth, as_node, is_function
from .variables import Variable


def dot(features: Any, w: Any) -> Any:
    """Linear functionals `features @ w` of a vector variable.

    Args:
        features: constants of shape (..., D); or another vector variable, for the mean of a Normal.
        w: a vector (MvNormal) variable or affine expression of event shape (D,).

    Returns:
        A scalar-valued expression of batch shape (...).
    """
    features, w = as_node(features), as_node(w)
    if not isinstance(w, Arithmetic):
        if isinstance(features, Arithmetic):
            features, w = w, features
        else:
            return jnp.sum(unwrap(features) * unwrap(w), axis=-1)
    if isinstance(features, Arithmetic):
        return _random_dot(features.affine(), w.affine())
    if np.ndim(features) < 1:
        refuse(f"dot of a scalar and {label(w)}", "features have shape (..., D)")
    x = w.affine()
    return contract(x, features, "dot", ()) if x.event_shape else features @ x  # type: ignore[operator]


def scalars(x: Any) -> Any:
    """A vector-valued expression as a plate of its entries, which is a last axis of the batch: `X @ w` as n numbers."""
    if isinstance(x, Exp):
        return Exp(scalars(x.inner))
    if isinstance(x, InverseLink):
        return InverseLink(x.name, scalars(x.inner))
    if isinstance(x, Take) and x.random:
        return x.each(scalars)
    if not isinstance(x, Arithmetic) or not getattr(x, "event_shape", ()):
        return x
    x = x.affine()
    (width,) = x.event_shape
    terms = []
    for variable, op, c in x.terms:
        if op == "scale":
            rows = np.eye(width) if c is None else jnp.asarray(unwrap(c))[..., None, None] * np.eye(width)
        else:
            rows = unwrap(c)
        variable = variable.at(variable.index[..., None])
        stacked = not variable.event_shape
        terms.append(Term(variable, "scale", rows[..., 0]) if stacked else Term(variable, "dot", rows))
    return Affine(tuple(terms), x.offset, (*x.batch_shape, width), ())


def alike(x: Affine, y: Affine) -> tuple[Affine, Affine]:
    """A number and a vector that are added: the number stands for every entry; of several, each is added to one."""
    if x.event_shape:
        other, own = alike(y, x)
        return own, other
    if x.batch_shape:
        return x, scalars(y)
    return contract(stack([x]), np.ones((*y.event_shape, 1)), "matmul", y.event_shape), y


def _random_dot(a: Affine, b: Affine) -> Product:
    if not a.event_shape or a.event_shape != b.event_shape:
        given = f"dot({label(a)}, {label(b)}) of shapes {a.event_shape} and {b.event_shape}"
        refuse(given, "give vectors (MvNormal variables) of equal length, or multiply numbers: a * b")
    broadcast("dot", a, b, a.batch_shape, b.batch_shape)
    return Product(((a, b),))


def concatenate(vectors: list[Affine]) -> Affine:
    """Vector-valued expressions, and scalar ones, one below the other."""
    vectors = [x if x.event_shape else stack([x]) for x in vectors]
    sizes = [x.event_shape[0] for x in vectors]
    eye, ends = np.eye(sum(sizes)), np.cumsum([0, *sizes])
    placed = [eye[:, ends[i] : ends[i + 1]] @ x for i, x in enumerate(vectors)]
    return functools.reduce(operator.add, placed)


def sides(product: Product) -> tuple[Affine, Affine]:
    """The left and right sides of products as two vectors; of a random matrix the first is its rows in order."""
    right = concatenate([b for _, b in product.pairs])
    if product.rows is None:
        return concatenate([a for a, _ in product.pairs]), right
    rows = [concatenate([a[..., i, :] for a, _ in product.pairs]) for i in range(product.rows)]
    return concatenate(rows), right


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, (int, float)) else unwrap(x)


def stack(entries: Any) -> Any:
    """Scalars as the entries of a vector, a linear functional of them: `MvNormal(stack([a, b]), covariance=...)`.

    Args:
        entries: scalar Gaussian variables, affine expressions of them, and constants, whose batch shapes broadcast; or
            a variable whose first axis is iterated over. Vectors such as `X @ w` are plates of their entries.

    Returns:
        A vector-valued expression; an array if all entries are constant.
    """
    entries = [as_node(x) for x in entries]
    if not any(isinstance(e, Arithmetic) for e in entries):
        return jnp.stack(jnp.broadcast_arrays(*map(unwrap, entries)), axis=-1)
    entries = [scalars(e) for e in entries]
    size, terms, offset = len(entries), [], None
    for i, entry in enumerate(entries):
        unit = np.eye(size)[i]
        if not isinstance(entry, Arithmetic):
            shift = _array(entry)
        else:
            x = entry.affine()
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


def as_vector(x: Affine) -> Affine:
    """Scalar expressions along the last plate axis as one of vectors."""
    if x.event_shape or not x.batch_shape:
        return x
    return stack([x[..., k] for k in range(x.batch_shape[-1])])


def exp(x: Any) -> Any:
    """`exp` of an array, or the exponential link of an affine expression of Gaussian variables."""
    if isinstance(x, Take):
        return x.each(exp)
    if is_function(x) or isinstance(x, Product):
        return Smooth(EXP, x)
    return Exp(x.affine()) if isinstance(x, Arithmetic) else jnp.exp(unwrap(x))


def log(x: Any) -> Any:
    """`log` of an array, of `exp(z)`, which is z, or of another positive function."""
    if isinstance(x, Exp):
        return x.inner
    if isinstance(x, Arithmetic):
        refuse(f"log({label(x)})", "a Gaussian variable may be negative; log undoes ngmp.exp, or takes such a function")
    if is_function(x):
        return Smooth(LOG, x)
    return jnp.log(unwrap(x))


def take(table: Any, *indices: Any) -> Any:
    """`table[i, j, ...]`: the entry (a row of probabilities, say) that categorical variables pick from a table.

    `Normal(take(m, z), precision=take(w, z))` is a mixture or a switching model; arithmetic and `exp` act entrywise.

    Args:
        table: a constant of shape (K1, K2, ..., *event), random variables of batch shape (K1, K2, ...), or, for one
            index, a list of K1 expressions and constants.
        *indices: Categorical variables of K1, K2, ... classes; constant integers index as in NumPy.
    """
    if not indices:
        refuse("take(table) without an index", "give one Categorical variable for each leading axis of the table")
    if isinstance(table, (list, tuple)) and any(getattr(x, "is_expression", False) for x in table):
        return _from_list(tuple(table), indices)
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


def _from_list(entries: tuple[Any, ...], indices: tuple[Any, ...]) -> Any:
    """The one of several expressions that a categorical variable, or a known integer, picks."""
    (index, *more) = indices
    classes = index.plane.event_shape[0] if isinstance(index, Variable) else None
    if more or (classes is not None and classes != len(entries)):
        works = f"one index of {len(entries)} classes picks from a list of as many"
        refuse(f"take from a list of {len(entries)} expressions by {_labels(indices)}", works)
    if classes is None:
        return entries[int(unwrap(index))]
    entries = tuple(map(as_node, entries))
    alike = tuple(1.0 * x if isinstance(x, Arithmetic) else x for x in entries)  # sites that differ in numbers only
    return Take(alike, index)


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
