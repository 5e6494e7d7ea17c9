"""`numpyro.contrib.control_flow.scan`: its body is recorded once, and declared as the body of an `ngmp.scan`.

Carries that no random variable reaches (a time, say) are computed beforehand and become inputs of the steps. Where the
chain starts at a constant, the first step is declared by itself.
"""

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.inputs import unwrap
from ..declare.scan import scan
from ..declare.variables import Variable
from ..lift import linear
from ..lift.arguments import latent_p
from ..lift.interpret import Broken, Interpreter, Stuck
from ..lift.linear import Linear
from ..lift.structural import concatenated
from ..lift.values import Chosen, Native, Vectors, is_random, moved
from .record import Recorder


class Body(NamedTuple):
    """One recorded step."""

    closed: Any
    recorder: Any
    carries: int
    outputs: int
    length: int
    name: str


def record_scan(recorder: Recorder, msg: dict[str, Any]) -> None:
    """Have a scan recorded in the place of being run, and of a `cond` the branch that is taken."""
    if msg["fn"].__name__ != "scan_wrapper":
        msg["fn"] = functools.partial(_branch, recorder)
        return

    def run(f: Any, init: Any, xs: Any, length: int | None, reverse: bool, **_: Any) -> Any:
        return _record(recorder, f, init, xs, length, reverse)

    msg["fn"] = run


def _branch(recorder: Recorder, taken: Any, yes: Any, no: Any, operand: Any, **_: Any) -> Any:
    """The sites of a branch, as any others are; refused where which one depends on what is not known."""
    if isinstance(taken, Tracer):
        given = "stochastic control flow: which branch of numpyro's cond is taken depends on a traced value"
        recorder.report("cond", given, "give a flag that is known, or one distribution with parameters by jnp.where")
        taken = True
    return (yes if taken else no)(operand), SimpleNamespace(trace={})


def _record(recorder: Recorder, f: Any, init: Any, xs: Any, length: int | None, reverse: bool) -> Any:
    from numpyro import handlers

    first, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, init))
    rows, rows_tree = jax.tree.flatten(jax.tree.map(jnp.asarray, xs))
    count = int(length if length is not None else rows[0].shape[0])
    found: list[Any] = []

    def step(carry: list[Any], x: list[Any]) -> list[Any]:
        inner = Recorder()
        with handlers.block(), inner:
            after, out = f(jax.tree.unflatten(tree, carry), jax.tree.unflatten(rows_tree, x))
        leaves, out_tree = jax.tree.flatten(out)
        found.append((inner, out_tree))
        return [*map(jnp.asarray, jax.tree.leaves(after)), *map(jnp.asarray, leaves), *map(jnp.asarray, inner.leaves)]

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in first]
    closed = jax.make_jaxpr(step)(shapes, [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows])
    inner, out_tree = found[-1]
    name = f"scan{len(recorder.records)}"
    if reverse:
        recorder.report(name, "a scan in reverse", "turn its inputs round, and scan forward")
    recorder.problems += inner.problems
    recorder.names |= inner.names
    outputs = len(jax.tree.leaves(out_tree.unflatten([0] * out_tree.num_leaves)))
    body = Body(closed, inner, len(first), outputs, count, name)
    recorder.add("scan", name, (first, rows, list(closed.consts)), inner=body)
    avals = closed.out_avals
    stand_ins = [_stand_in(f"{name}/{k}", a.shape if k < len(first) else (count, *a.shape), a.dtype)
                 for k, a in enumerate(avals[: len(first) + outputs])]  # fmt: skip
    carry, ys = tree.unflatten(stand_ins[: len(first)]), out_tree.unflatten(stand_ins[len(first) :])
    return (count, None, carry), (SimpleNamespace(trace={}), ys)


def _stand_in(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    return latent_p.bind(shape=tuple(shape), dtype=dtype, name=name, positive=False)


def declare_scan(reading: Any, r: Any, value: Any) -> None:
    """Declare the chain, and note the values of its outputs."""
    init, xs, consts = value
    body: Body = r.inner
    if any(map(is_random, xs)):
        raise Stuck("scan", "its inputs are random; sample inside of the body")
    xs = [unwrap(x) for x in xs]
    random = _random_slots(body, init, consts)
    steps = _constants(body, init, xs, consts, random)
    every = [*steps, *xs]
    head: list[list[Any]] = []
    start = 0
    while start < body.length and any(_variable(init[k]) is None for k in random):
        if start == 2:
            raise Stuck("scan", "what it carries is no variable, but an expression of several")
        row = [_row(x, start) for x in every]
        carry, out = _step(reading, body, init, random, row, consts)
        init = [carry[k] if k in random else init[k] for k in range(body.carries)]
        head.append(out)
        start += 1
    rest = [x[start:] for x in every]
    if start < body.length:
        final, outs = _lifted(reading, body, init, random, rest, consts, body.length - start)
        init = [final[k] if k in random else init[k] for k in range(body.carries)]
        head_rows = [[_raised(h[k]) for h in head] for k in range(body.outputs)]
        outs = [concatenated([*h, o], 0) if h else o for h, o in zip(head_rows, outs, strict=True)]
    else:
        outs = [concatenated([_raised(h[k]) for h in head], 0) for k in range(body.outputs)]
    for k, x in enumerate([*init, *outs]):
        reading.latents[f"{body.name}/{k}"] = x


def _raised(x: Any) -> Any:
    shape = (1, *np.shape(x))
    return moved(x, shape, lambda a: jnp.reshape(a, shape))


def _row(x: Any, k: int) -> Any:
    return x[k]


def _random_slots(body: Body, init: list[Any], consts: list[Any]) -> list[int]:
    """The carries that random variables reach."""
    jaxpr = body.closed.jaxpr
    carries = jaxpr.invars[: body.carries]
    random = {k for k, x in enumerate(init) if is_random(x)}
    fixed = {v for v, x in zip(jaxpr.constvars, consts, strict=True) if is_random(x)}
    while True:
        reached = fixed | {carries[k] for k in random}
        for e in jaxpr.eqns:
            if e.primitive.name == "latent" or any(not hasattr(v, "val") and v in reached for v in e.invars):
                reached.update(e.outvars)
        more = {k for k, v in enumerate(jaxpr.outvars[: body.carries]) if not hasattr(v, "val") and v in reached}
        if more <= random:
            return sorted(random)
        random |= more


def _constants(body: Body, init: list[Any], xs: list[Any], consts: list[Any], random: list[int]) -> list[Any]:
    """The other carries at the start of every step."""
    own = [k for k in range(body.carries) if k not in random]
    if not own:
        return []
    jaxpr = body.closed.jaxpr
    zeros = [jnp.zeros(v.aval.shape, v.aval.dtype) for v in jaxpr.invars[: body.carries]]
    given = [jnp.zeros(v.aval.shape, v.aval.dtype) if is_random(c) else unwrap(c)
             for v, c in zip(jaxpr.constvars, consts, strict=True)]  # fmt: skip

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        full = list(zeros)
        for k, c in zip(own, carry, strict=True):
            full[k] = c
        run = Interpreter(jaxpr, [*given, *full, *x], lambda p: jnp.zeros(p["shape"], p["dtype"]))
        after = [jnp.asarray(run.read(jaxpr.outvars[k])) for k in own]
        return after, carry

    start = [jnp.asarray(unwrap(init[k]), zeros[k].dtype) for k in own]
    return jax.lax.scan(step, start, xs, length=body.length)[1]


def _variable(x: Any) -> Variable | None:
    """The variable that a value is, if it is nothing else."""
    if isinstance(x, Linear) and x.plain and len(x.terms) == 1 and x.terms[0].axis is None:
        t = x.terms[0]
        return t.variable.at(np.broadcast_to(t.index, x.shape))
    if isinstance(x, Linear) and x.plain and len(x.terms) == 1 and x.terms[0].axis == x.ndim - 1:
        return x.vector()
    if isinstance(x, Native) and x.plain:
        return x.variable
    if isinstance(x, Vectors):
        return x.variable
    if isinstance(x, Chosen) and all(not is_random(e) and not isinstance(e, Tracer) for e in x.entries):
        return x.variable.at(np.broadcast_to(x.variable.index, x.shape))
    return None


def _like(x: Any, v: Variable, lead: tuple[int, ...] = ()) -> Any:
    """A variable as the kind of value that another is."""
    if isinstance(x, Linear):
        shape = (*lead, *x.shape)
        return linear.of_variable(v, shape, len(shape) - 1 if x.terms[0].axis is not None else None)
    if isinstance(x, Chosen):
        return Chosen((*lead, *x.shape), v, [np.asarray(e).reshape(-1)[0] for e in x.entries])
    return type(x)(v)


def _step(reading: Any, body: Body, carry: list[Any], random: list[int], row: list[Any], consts: list[Any]) -> Any:
    """Declare one step; the carry after it, and its outputs."""
    from .front import Reading

    jaxpr = body.closed.jaxpr
    others = [k for k in range(body.carries) if k not in random]
    given = dict(zip(others, row, strict=False))
    full = [carry[k] if k in random else given[k] for k in range(body.carries)]
    shift = body.carries + body.outputs
    records = [s._replace(start=s.start + shift, stop=s.stop + shift) for s in body.recorder.records]
    inner = Reading(records, jaxpr, [*consts, *full, *row[len(others) :]], reading.problems)
    inner.declare()
    values = [inner.run.read(v) for v in jaxpr.outvars[:shift]]
    return values[: body.carries], values[body.carries :]


def _lifted(reading: Any, body: Body, init: list[Any], random: list[int], rows: list[Any], consts: list[Any],
            count: int) -> tuple[dict[int, Any], list[Any]]:  # fmt: skip
    """All steps at once, from variables on."""
    kinds: list[Any] = []

    def step(carry: list[Variable], x: list[Any]) -> tuple[list[Variable], list[Any]]:
        full = [None] * body.carries
        for k, v in zip(random, carry, strict=True):
            full[k] = _like(init[k], v)
        after, outputs = _step(reading, body, full, random, x, consts)
        variables = [_variable(after[k]) for k in random]
        if any(v is None for v in variables):
            raise Stuck("scan", "what it carries is no variable, but an expression of several")
        out = [(_variable(y) if is_random(y) else jnp.asarray(unwrap(y))) for y in outputs]
        kinds[:] = [outputs, [y is not None for y in out]]
        return variables, [0.0 if y is None else y for y in out]  # type: ignore[return-value]

    first = [_variable(init[k]) for k in random]
    final, outs = scan(step, first, rows or None, length=count)
    outputs, kept = kinds
    values: list[Any] = []
    for like, fine, y in zip(outputs, kept, outs, strict=True):
        lost = Broken(Stuck("scan", "an output of its body is an expression; return variables"))
        values.append(y if not is_random(like) else _like(like, y, (count,)) if fine else lost)
    return {k: _like(init[k], v) for k, v in zip(random, final, strict=True)}, values
