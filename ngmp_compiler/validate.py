"""Checks of what `ngmp.compile` and a program are called with, before any model runs."""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ngmp_kernels.families import AbstractFamily
from ngmp_kernels.quadrature.rules import AbstractQuadrature, Quadrature

from .declare.tables import Table, check_missing, plain
from .emit.rules import RULES, AbstractRule
from .emit.rules.base import missing
from .errors import ModelError, Problem
from .options import LOG_GAUSSIAN
from .precision import input_name


def bind(model: Callable, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a model by name, defaults filled in; TypeError, naming the model's inputs, if they do not fit."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(model, "__name__", "model")
        raise TypeError(f"{error}; the model is {name}{signature}") from None
    bound.apply_defaults()
    given = bound.arguments
    inputs = {name: plain(name, value) for name, value in given.items()}
    if any(isinstance(x, Table) or x is not given[k] for k, x in inputs.items()):
        check_missing(given, inputs)
    return inputs


def check_inputs(arguments: dict[str, Any], leaves: list[Any]) -> None:
    """Refuse inputs that can be neither traced nor compared: arrays of strings or objects, unhashable values."""
    for number, x in enumerate(leaves):
        if isinstance(x, np.ndarray):
            if x.dtype.kind not in "OSUMm":
                continue
            given, works = f"an array of dtype {x.dtype}", "give numbers or booleans"
        elif x.__hash__ is None and not hasattr(x, "shape"):  # jax arrays are not hashable, and need not be
            given, works = f"a {type(x).__name__}", "give arrays, numbers, or hashable values (which are static)"
        else:
            continue
        name = input_name(jax.tree_util.tree_leaves_with_path(arguments)[number][0])
        raise TypeError(f"input '{name}' is {given}; {works}")


def check_options(
    model: Any, method: Any, rules: dict[str, Any], families: dict[str, Any], max_sweeps: Any, tol: Any, most: Any
) -> None:
    """Refuse options of the wrong kind; names of sites are checked later, against the model."""
    if not callable(model):
        raise TypeError(f"compile needs a model function, not {type(model).__name__}")
    for name, count in (("max_sweeps", 1 if max_sweeps is None else max_sweeps), ("max_specialisations", most)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise ValueError(f"{name} must be an integer of at least 1, not {count!r}")
    if tol is not None and not tol > 0:
        raise ValueError(f"tol must be positive, not {tol!r}")
    problems = []
    for where, rule in [("method=", method), *((f"rules= of site '{k}'", r) for k, r in rules.items())]:
        if rule is None:
            continue
        if not isinstance(rule, AbstractRule):
            choices = ", ".join(f"{r.__name__}()" for r in RULES)
            lacks = missing(rule)
            why = f"it lacks {', '.join(lacks)}" if lacks else "it is no instance of ngmp.AbstractRule"
            works = f"choose from {choices}, or derive a rule of your own from ngmp.AbstractRule"
            problems.append(Problem(None, None, f"{where} is {rule!r}, not a message rule: {why}", works))
        elif not isinstance(getattr(rule, "projection", _QUADRATURE), AbstractQuadrature):
            choices = "Quadrature(), GaussHermite(n), LogTrapezoid(n), Unscented() or Delta()"
            given = f"{where} has projection={rule.projection!r}, not a quadrature"  # type: ignore[attr-defined]
            problems.append(Problem(None, None, given, f"choose from {choices}"))
    for name, family in families.items():
        if family != LOG_GAUSSIAN and not (isinstance(family, type) and issubclass(family, AbstractFamily)):
            given = f"families= of '{name}' is {family!r}, not a family"
            works = f"choose from ngmp.families, e.g. ngmp.families.Gaussian; or '{LOG_GAUSSIAN}' for a Gamma variable"
            problems.append(Problem(None, None, given, works))
    if problems:
        raise ModelError(problems)


def check_picklable(model: Callable, options: dict[str, Any]) -> None:
    """Refuse to pickle a program that could not be read again, saying what of it stands in the way."""
    top = "define the model function at the top level of a module that can be imported"
    others = ((f"{k}=", value, f"compile it again, with {k}=, where it is needed") for k, value in options.items())
    for what, part, works in (("its model", model, top), *others):
        try:
            pickle.dumps(part)
        except Exception as error:
            name = getattr(model, "__name__", "model")
            text = f"program '{name}' cannot be pickled because of {what} ({error}); {works}"
            raise pickle.PicklingError(text) from error


_QUADRATURE = Quadrature()
