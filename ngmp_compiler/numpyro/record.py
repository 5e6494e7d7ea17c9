"""One abstract run of a NumPyro model: its sites in order, and a jaxpr of all that they are given.

A latent site returns the output of an equation `latent`, which has no inputs; parameters, observations and masks are
outputs of the jaxpr. Only public interfaces of NumPyro are used: a `Messenger` outside of all others of the model.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from ..declare.failures import TRACED
from ..errors import ModelError, Problem
from ..lift.arguments import latent_p

_HIDDEN = tuple(str(Path(f).parent) for f in (numpyro.__file__, jax.__file__) if f)
_OWN = str(Path(__file__).parent)


def source_line() -> str:
    """Where in the user's source the call is that we are in."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        inner = name.startswith(_HIDDEN) or name.startswith(_OWN) or name.startswith("<frozen") or "contextlib" in name
        if not inner:
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


class Record(NamedTuple):
    """One site: what it was given, as positions among the outputs of the jaxpr."""

    kind: str  # "sample", "deterministic", "factor", "scan"
    name: str
    line: str
    tree: Any  # of distribution, observation and scale
    start: int
    stop: int
    latent: bool
    inner: Any = None  # of a scan: the record of its body


class Recorder(Messenger):
    """Gives latent sites their stand-ins, and collects what all sites are given."""

    def __init__(self, name: str = ""):
        super().__init__()
        self.records: list[Record] = []
        self.leaves: list[Any] = []
        self.problems: list[Problem] = []
        self.names: set[str] = set()
        self.prefix = name

    def add(self, kind: str, name: str, value: Any, latent: bool = False, inner: Any = None) -> None:
        leaves, tree = jax.tree.flatten(value)
        start = len(self.leaves)
        self.leaves += leaves
        self.records.append(Record(kind, name, source_line(), tree, start, len(self.leaves), latent, inner))

    def report(self, name: str, given: str, works: str) -> None:
        self.problems.append(Problem(name, None, f"{given} ({source_line()})", works))

    def process_message(self, msg: dict[str, Any]) -> None:
        kind = msg["type"]
        if kind == "sample":
            self._sample(msg)
        elif kind == "deterministic":
            self.add("deterministic", msg["name"], msg["value"])
        elif kind == "plate":
            size, subsample = msg["args"]
            if subsample is not None and subsample != size:
                works = "give the whole data; message passing over a plate costs little"
                self.report(msg["name"], f"a plate that subsamples {subsample} of {size}", works)
                msg["value"] = jnp.arange(subsample)
        elif kind == "prng_key" and msg.get("value") is None:
            works = "draws inside of a model have no place in its density"
            self.report(msg.get("name", "prng_key"), "numpyro.prng_key, unseeded", works)
            msg["value"] = jax.random.PRNGKey(0)
        elif kind in ("param", "mutable"):
            self.report(msg["name"], f"numpyro.{kind}", "give it as an input of the model, or sample it")
        elif kind == "control_flow":
            from .scan import record_scan

            record_scan(self, msg)

    def _sample(self, msg: dict[str, Any]) -> None:
        name, fn = msg["name"], msg["fn"]
        if name in self.names:
            self.report(name, "the name is used for two sites", "NumPyro refuses it, too: give each a name of its own")
        self.names.add(name)
        if isinstance(fn, dist.Unit):
            self.add("factor", name, fn.log_factor)
            return
        if msg["kwargs"].get("sample_shape"):
            fn = fn.expand_by(msg["kwargs"]["sample_shape"])
        self.add("sample", name, (fn, msg["value"], msg.get("scale")), msg["value"] is None)
        if msg["value"] is None:
            discrete = fn.support.is_discrete
            dtype = jnp.result_type(int if discrete else float)
            positive = fn.support in (constraints.positive, constraints.softplus_positive) or _above_zero(fn.support)
            msg["value"] = latent_p.bind(shape=tuple(fn.shape()), dtype=dtype, name=name, positive=bool(positive))


def _above_zero(support: Any) -> bool:
    low = getattr(support, "lower_bound", None)
    return isinstance(low, (int, float)) and low >= 0


def _structure(recorder: Recorder, error: Exception) -> Problem:
    """What is wrong with a model that asks for the value of what is traced."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_OWN)]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    last = f"after site '{recorder.records[-1].name}'" if recorder.records else "before its first site"
    text = str(error).splitlines()[0].rstrip(".")
    given = f"which sites there are depends on the value of a latent variable, or of an input: {text} ({where}, {last})"
    works = "structure may depend on shapes and on integers; use masks or jnp.where, and sizes that are given"
    return Problem(None, None, given, works)


class Recorded(NamedTuple):
    """A run of the model: its sites, and the jaxpr from inputs to what they are given."""

    records: list[Record]
    closed: Any
    problems: list[Problem]


def record(function: Callable, arguments: Sequence[Any]) -> Recorded:
    """Run `function(*arguments)` abstractly; arguments are trees of arrays."""
    found: list[Recorder] = []

    def run(*given: Any) -> list[Any]:
        recorder = Recorder()
        found.append(recorder)
        try:
            with recorder:
                function(*given)
        except TRACED as error:
            raise ModelError([*recorder.problems, _structure(recorder, error)]) from error
        return [jnp.asarray(x) if not isinstance(x, jax.Array) else x for x in recorder.leaves]

    closed = jax.make_jaxpr(run)(*arguments)
    return Recorded(found[-1].records, closed, found[-1].problems)
