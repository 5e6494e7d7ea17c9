"""A NumPyro model as a model function: recorded, read by the interpreter, declared site by site."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..declare.frame import current_frame, outermost
from ..declare.inputs import unwrap
from ..declare.report import deterministic
from ..declare.sample import factor
from ..errors import ModelError, Problem
from ..lift import structural, sums  # noqa: F401  # their rules
from ..lift.arguments import as_arrays, known
from ..lift.axes import contracted
from ..lift.deferred import Deferred, only_scaled, settled
from ..lift.general import General, Whole, general
from ..lift.interpret import Broken, Interpreter, Stuck
from ..lift.linear import Linear
from ..lift.values import (
    Linked,
    Native,
    Unlifted,
    Vectors,
    expression,
    is_random,
    whole_shape,
)
from .latent import declare, declare_scaled, is_standard
from .observed import observe
from .record import Record, record
from .scan import declare_scan
from .site import Site, declare_general, words

_SUMS = {"reduce_sum": 1.0, "add": 1.0, "add_any": 1.0, "sub": 1.0, "neg": -1.0, "convert_element_type": 1.0}
"""Equations that make one number of several, with the sign of the first."""


class NumPyroModel:
    """What `ngmp.from_numpyro` returns: a model function with the signature of the NumPyro model."""

    def __init__(self, model: Callable[..., Any]):
        if not callable(model):
            raise TypeError(f"ngmp.from_numpyro takes a model function; got {model!r}")
        self.numpyro = model
        self.__name__ = getattr(model, "__name__", "model")
        self.__doc__ = getattr(model, "__doc__", None)
        self.__signature__ = inspect.signature(model)

    def __call__(self, **inputs: Any) -> None:
        arrays, shapes, rebuilt = as_arrays(inputs)
        recorded = record(lambda *x: self.numpyro(**rebuilt(*x)), shapes)
        problems = list(recorded.problems)
        consts = [known(c) for c in recorded.closed.consts]
        Reading(recorded.records, recorded.closed.jaxpr, [*consts, *arrays], problems).declare()
        if problems:
            raise ModelError(problems)

    def refine(self, *given: Any) -> Any:
        """NumPyro's own NUTS on the model; see `numpyro.refine`."""
        from .refine import nuts

        return nuts(self.numpyro, *given)


class Reading:
    """The records of one run, declared in order."""

    def __init__(self, records: list[Record], jaxpr: Any, values: list[Any], problems: list[Problem]):
        self.records, self.problems = records, problems
        self.latents: dict[str, Any] = {}
        self.run = Interpreter(jaxpr, values, lambda p: self.latents[p["name"]])
        self.contracted = contracted(jaxpr)
        reports = [r for r in records if r.kind == "deterministic" and r.stop - r.start == 1]
        outputs = [(jaxpr.outvars[r.start], r.name) for r in reports]
        reported = {v: name for v, name in outputs if not hasattr(v, "val")}
        products = only_scaled(jaxpr).items()
        self.scaled = {name: (reported.get(v, f"{name}_scaled"), shifted) for name, (v, shifted) in products}

    def declare(self) -> None:
        notes = outermost().notes
        for r in self.records:
            site = None
            try:
                value = self.values(r)
                if r.kind == "sample":
                    fn, seen, scale = value
                    site = Site(r.name, fn, seen, scale, r.line)
                    self._sample(site, r)
                elif r.kind == "scan":
                    declare_scan(self, r, value)
                elif r.kind == "factor":
                    self._factor(r, value)
                else:
                    self._deterministic(r, value)
                notes.append((r.name, r.line, "; ".join(site.notes) if site else r.kind))
            except (Stuck, Unlifted) as error:
                self._report(r, site, error)
            except ModelError as error:
                for p in error.problems:
                    self.problems.append(p._replace(site=p.site or r.name, given=f"{p.given} ({r.line})"))
                self._stand_in(r, site)

    def values(self, r: Record) -> Any:
        outputs = self.run.jaxpr.outvars[r.start : r.stop]
        return jax.tree.unflatten(r.tree, [settled(self.run.read(v)) for v in outputs])

    def _sample(self, site: Site, r: Record) -> None:
        if not r.latent:
            observe(site)
            return
        axis = len(site.shape) - 1
        if r.name in self.scaled and is_standard(site):
            name, shifted = self.scaled[r.name]
            self.latents[r.name] = Deferred(site.shape, functools.partial(declare_scaled, site, name), shifted)
            site.notes.append(f"standard; times a random scale it is '{name}'")
            return
        self.latents[r.name] = declare(site, (r.name, axis) in self.contracted, lambda name: True)

    def _factor(self, r: Record, value: Any) -> None:
        if not self._declared(r.name, value):
            self._sum(r)

    def _declared(self, name: str, value: Any) -> bool:
        """Whether a log-density, or an array of them, could be declared as a factor of what it depends on."""
        if isinstance(value, (Linear, Linked, Native)):
            function, of = _split(value)
            value = General(value.shape, function, of)
        if isinstance(value, General):
            declare_general(name, value)
        elif isinstance(value, Whole):
            factor(name, lambda *z: jnp.sum(value.function(*z)), *(expression(s) for s in value.scalars))
        elif not is_random(value) and outermost().coordinates is not None:
            factor(name, lambda x: x, jnp.sum(value))
        return not is_random(value) or isinstance(value, (General, Whole))

    def _sum(self, r: Record) -> None:
        """A log-density that is a sum over rows, of too many unknowns for one function: a factor for every row."""
        parts = self._parts(self.run.jaxpr.outvars[r.start], 1.0)
        values = [(sign, self.run.read(atom)) for sign, atom in parts]
        broken = next((x for _, x in values if isinstance(x, Broken)), None)
        if broken is not None:
            raise broken.error
        if len(values) == 1 and not np.shape(values[0][1]):
            raise Unlifted
        for k, (sign, x) in enumerate(values):
            x = settled(x)
            signed = general(lambda v, c=sign: c * v, [x], np.shape(x)) if is_random(x) else sign * unwrap(x)
            if not self._declared(f"{r.name}_{k + 1}" if k else r.name, signed):
                raise Unlifted

    def _parts(self, atom: Any, sign: float) -> list[tuple[float, Any]]:
        """The arrays whose entries add up to a number of the jaxpr, each with its sign."""
        equation = None if hasattr(atom, "val") else self.run.made.get(atom)
        name = "" if equation is None or atom.aval.shape else equation.primitive.name
        if equation is None or name not in _SUMS:
            return [(sign, atom)]
        if name == "reduce_sum":
            return [(sign, equation.invars[0])]
        signs = (sign, -sign if name == "sub" else sign) if len(equation.invars) == 2 else (_SUMS[name] * sign,)
        return [part for s, v in zip(signs, equation.invars, strict=True) for part in self._parts(v, s)]

    def _deterministic(self, r: Record, value: Any) -> None:
        if r.name in current_frame("numpyro.deterministic").nodes:
            return  # declared in the place of a standard normal variable
        if isinstance(value, Linear):
            if value.plain and len(value.shape) == value.terms[0].index.ndim and value.terms[0].axis is None:
                deterministic(r.name, whole_shape(value, value.shape).affine())
            else:
                deterministic(r.name, value.affine())
        elif isinstance(value, (Linked, Native, Vectors)):
            try:
                deterministic(r.name, value.expression())
            except Unlifted:
                return

    def _report(self, r: Record, site: Site | None, error: Exception) -> None:
        what = type(site.base).__name__ if site is not None else r.kind
        if isinstance(error, Stuck):
            given = f"{what}: '{error.primitive}' of random variables cannot be written with them: {error.reason}"
        else:
            every = [] if site is None else [f"{k} {words(v)}" for k, v in vars(site.base).items() if is_random(v)]
            given = f"{what} with {', '.join(every) or 'these parameters'} has no kernel"
        works = "integrate the numbers it depends on (integrate='auto' or their names), or write it in this language"
        self.problems.append(Problem(r.name, None, f"{given} ({r.line})", works))
        self._stand_in(r, site)

    def _stand_in(self, r: Record, site: Site | None) -> None:
        """Something to go on with, so that the problems of later sites are found as well."""
        if r.latent and r.name not in self.latents:
            discrete = site is not None and site.base.support.is_discrete
            self.latents[r.name] = np.ones(() if site is None else site.shape, int if discrete else float)


def _split(value: Any) -> tuple[Callable, list[Any]]:
    return ((lambda x: x), [value]) if isinstance(value, Linear) else value.split()
