"""Prediction for other inputs than a posterior was computed from: new rows, new groups, later times.

An eager call remembers its inputs with the posterior it returns (not through `jit`, `vmap` or a file). With them the
model is declared for old and new inputs together (`declare.renewed`), and solved again from where it was: what is
shared is known jointly, and what is new has its prior.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ngmp_kernels.families import AbstractFamily

from ..declare.expressions import leaves_of
from ..declare.renewed import NEW, both, continued
from ..declare.tables import plain
from ..errors import ModelError
from .draws import sourced
from .posterior import Posterior, Prediction


def remembered(post: Any) -> dict[str, Any] | None:
    """The inputs that a posterior was computed from, or None."""
    found = getattr(post, "origin", None)
    traced = found is not None and any(isinstance(x, Tracer) for x in jax.tree.leaves(found.inputs))
    return None if found is None or traced else found.inputs


def renewed(program: Any, old: dict[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """All inputs for a prediction, and the names of the variables that belong to the rows of those that changed.

    What is not given is as it was, unless it has a value for every row of an input that changed; then it is left out.
    """
    given = {name: plain(name, value) for name, value in given.items()}
    changed = frozenset(k for k, x in given.items() if not same(old[k], x))
    if not changed:
        return {**old, **given}, ()
    tied, local = _dependent(program, old, changed)
    return {**{k: None if k in tied else x for k, x in old.items()}, **given}, tuple(sorted(local))


def _dependent(program: Any, old: dict[str, Any], changed: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The other inputs that have the rows of those that changed, and the variables that do.

    Found by what depends on what, and not by equal sizes: the model is declared with one row more of the changed inputs
    and of the fewest others with which it can be; variables whose shapes are then others are those of the rows.
    """
    key = changed, tuple((k, tuple(map(np.shape, jax.tree.leaves(x)))) for k, x in old.items())
    if key in program.variants:
        return program.variants[key]
    rows = {n for k in changed for n in _rows(old[k])}
    others = [k for k, x in old.items() if k not in changed and rows & _rows(x)]
    found = frozenset(others), frozenset()
    before = _shapes(program, old)
    for tied in itertools.chain.from_iterable(itertools.combinations(others, r) for r in range(len(others) + 1)):
        grown = {k: _with_a_row(x) if k in changed or k in tied else x for k, x in old.items()}
        try:
            after = _shapes(program, grown)
        except (ModelError, ValueError, TypeError, IndexError):  # sizes that do not fit each other
            continue
        found = frozenset(tied), frozenset(k for k, shape in after.items() if before.get(k) != shape)
        break
    program.variants[key] = found
    return found


def _shapes(program: Any, inputs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every latent variable for such inputs."""
    front = jax.eval_shape(lambda: program.declared(**inputs))
    return {name: np.shape(at) for name, (_, at) in front.rolled.names.items()}


def _with_a_row(tree: Any) -> Any:
    """Arrays with their last row twice."""
    return jax.tree.map(lambda x: np.concatenate([np.asarray(x), np.asarray(x)[-1:]]) if np.ndim(x) else x, tree)


def same(a: Any, b: Any) -> bool:
    """Whether two inputs are equal, but for entries of the second that are NaN: of those nothing is said."""
    if a is b:
        return True
    first, second = jax.tree.flatten(a), jax.tree.flatten(b)
    if first[1] != second[1] or any(isinstance(x, Tracer) for x in second[0]):
        return False
    return all(x is y or _equal(x, y) for x, y in zip(first[0], second[0], strict=True))


def _equal(x: Any, y: Any) -> bool:
    if np.shape(x) != np.shape(y) or isinstance(x, Tracer):
        return False
    x, y = np.asarray(x), np.asarray(y)
    return bool(np.all((x == y) | np.isnan(y) if y.dtype.kind == "f" else x == y))


def _rows(tree: Any) -> set[int]:
    """The leading sizes of the arrays of an input."""
    return {np.shape(x)[0] for x in jax.tree.leaves(tree) if np.ndim(x)}


def starts(post: Posterior) -> dict[str, AbstractFamily]:
    """Marginals to begin the next run at."""
    return {name: q for name, q in post.marginals.items() if isinstance(q, AbstractFamily) and "*" not in name}


def longer(old: dict[str, Any], future: dict[str, Any], length: int, steps: int) -> tuple[dict[str, Any], list[str]]:
    """Inputs with `steps` more rows, and the names of those whose later values nobody gave."""
    filled = []

    def extend(name: str, x: Any) -> Any:
        if type(x) is int:
            return x + steps if x == length else x
        if not np.ndim(x) or np.shape(x)[0] != length:
            return x
        x = jnp.asarray(x)
        if x.dtype != bool:
            filled.append(name)
            x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
        value = False if x.dtype == bool else jnp.nan
        return jnp.concatenate([x, jnp.full((steps, *x.shape[1:]), value, x.dtype)])

    out = {}
    for name, value in old.items():
        if name not in future:
            out[name] = jax.tree.map(lambda x, name=name: extend(name, x), value)
            continue
        new = plain(name, future[name])
        bad = [np.shape(x) for x in jax.tree.leaves(new) if np.shape(x)[:1] != (steps,)]
        if bad:
            raise ValueError(f"forecast: '{name}' has shape {bad[0]}; give its values at the {steps} steps to come")
        out[name] = jax.tree.map(lambda a, b: jnp.concatenate([jnp.asarray(a), jnp.asarray(b)]), value, new)
    return out, filled


def last(prediction: Prediction, steps: int) -> Prediction:
    """The prediction of the last elements of a site along its first axis."""
    outcome = prediction.outcome
    count = prediction.mean.shape[0]
    each = [x[count - steps :] for x in (prediction.mean, prediction.epistemic, prediction.aleatoric)]
    out = Prediction(*each, prediction.log_density[count - steps :], outcome=outcome.last(steps))  # type: ignore[call-arg]
    known = getattr(prediction, "origin", None)
    return out if known is None else sourced(out, known._replace(last=steps))


def _variant(program: Any, wrap: Callable[[Callable], Callable], **options: Any) -> Any:
    """The program of the wrapped model, kept for the next time."""
    if wrap not in program.variants:
        program.variants[wrap] = type(program)(wrap(program.model), program._options._replace(**options))
    return program.variants[wrap]


def _only_observed(program: Any, inputs: dict[str, Any]) -> str:
    """The name of the observed site, if there is one only."""
    front = jax.eval_shape(lambda: program.declared(**inputs))
    seen = (name for g in front.groups if g.observed for name in g.given.names)
    names = dict.fromkeys(name for name in seen if name not in front.integrated)  # these stand as if observed
    if len(names) != 1:
        raise ValueError(f"the model observes {', '.join(names) or 'nothing'}: say which site, site=...")
    return next(iter(names))


def predict_new(program: Any, post: Posterior, site: str, args: tuple, given: dict[str, Any]) -> Prediction | None:
    """The prediction of a site for other inputs than those of the posterior; None if they are the same."""
    old = remembered(post)
    if old is None:
        return None
    given = dict(program.signature.bind_partial(*args, **given).arguments)
    new, fresh = renewed(program, old, given)
    if not fresh and all(same(old[k], new[k]) for k in old):
        return program.predict(post, site, **{**old, **given}) if given.keys() != old.keys() else None
    other = _variant(program, both, carry={}, schedule=None)
    inputs = {"old": old, "new": new, "fresh": fresh}
    found = other(**inputs) if post.nodes is not None else other(**inputs, init=starts(post))
    return other.predict(found, NEW + site, **inputs)


def _check_known(program: Any, inputs: dict[str, Any], filled: list[str]) -> None:
    """Refuse to forecast where an input that is no observation has no values at the steps to come."""
    for group in program.declared(inputs=inputs).groups:
        arguments = {k: x for k, x in group.given.arguments.items() if k != "out"}
        arrays = [x for values in leaves_of(arguments).values() for x in values if not hasattr(x, "plane")]
        if any(np.asarray(x).dtype.kind == "f" and not np.isfinite(x).all() for x in arrays):
            given = f"forecast: site '{group.given.name}' needs later values of an input that is no observation"
            names = ", ".join(sorted(filled))
            raise ValueError(f"{given}; give them, forecast(..., name=...), of those among {names}")


def forecast(program: Any, post: Posterior, steps: int, site: str | None, future: dict[str, Any]) -> Prediction:
    """The prediction of the steps that follow those of a posterior; see `Program.forecast`."""
    old = remembered(post)
    if old is None:
        works = "give that of an eager call; one that went through jit, vmap or a file has forgotten them"
        raise TypeError(f"forecast continues the inputs that a posterior was computed from; {works}")
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ValueError(f"forecast of {steps!r} steps; give a whole number, at least one")
    if unknown := [k for k in future if k not in old]:
        raise TypeError(f"forecast: the model has no input '{unknown[0]}'; its inputs are {', '.join(old)}")
    site = site or _only_observed(program, old)
    length = jax.eval_shape(lambda: program.predict(post, site, **old).mean).shape[:1]
    if not length:
        raise ValueError(f"forecast: '{site}' is one number, and no series")
    inputs, filled = longer(old, future, length[0], int(steps))
    other = _variant(program, continued, carry={})
    _check_known(other, inputs, [name for name in dict.fromkeys(filled) if name not in future])
    whole = other.predict(other(inputs=inputs), site, inputs=inputs)
    if whole.mean.shape[0] != length[0] + steps:
        works = "a model of which every time step is a row of its inputs can be continued"
        raise ValueError(f"forecast: '{site}' has {whole.mean.shape[0]} elements with longer inputs too; {works}")
    return last(whole, int(steps))
