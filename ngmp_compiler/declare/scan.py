"""`ngmp.scan`: a chain of steps, declared once and lifted over its length.

The body runs once with symbolic carries. What it declares for one step is lifted by a leading axis of length K; the
carry at step k is the initial variable for k = 0 and the variable returned by step k - 1 after that, which in index
form is one concatenation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr

from ..errors import ModelError, Problem
from .expressions import map_arguments
from .inputs import Input, unwrap
from .sample import Frame, Site, current_frame, recording
from .smooth import as_node
from .variables import Picked, Variable


class _Carry:
    """Stands in for the frame of a carried variable while the body runs; nested scans have carries of their own."""

    def __init__(self, slot: int):
        self.slot = slot


def _is_expression(x: Any) -> bool:
    return getattr(x, "is_expression", False)


def _refuse(given: str, works: str) -> None:
    raise ModelError(Problem("ngmp.scan", None, given, works))


def _length(xs: Any, length: int | None) -> int:
    sizes = {np.shape(x)[0] if np.ndim(x) else None for x in jax.tree.leaves(xs)}
    sizes |= {length} if length is not None else set()
    if not sizes:
        _refuse("there are no xs and no length=", "give arrays with a leading axis, or the number of steps as length=")
    if None in sizes or len(sizes) != 1:
        _refuse(f"inputs have leading sizes {sorted(map(str, sizes))}", "all xs (and length=) must agree")
    return int(sizes.pop() or 0)


class _Step(NamedTuple):
    """What one run of the body recorded."""

    frame: Frame
    slots: list[_Carry]  # the frames of the carries it was given
    carry: list[Any]  # the variables it returned in their place
    tree: Any
    outputs: Any
    arrays: list[Any]


def _run_body(body: Callable, tree: Any, init: list[Variable], x: Any, prefix: str) -> _Step:
    slots = [_Carry(j) for j in range(len(init))]
    whole = [np.arange(v.index.size).reshape(v.index.shape) for v in init]
    carries = [Variable(s, v.plane, i) for s, v, i in zip(slots, init, whole, strict=True)]
    frame = Frame()
    frame.prefix = prefix
    with recording(frame):
        result = jax.tree.map(as_node, body(jax.tree.unflatten(tree, carries), x), is_leaf=_is_expression)
    if not isinstance(result, tuple) or len(result) != 2:
        _refuse(f"the body returned {type(result).__name__}", "return (carry, output), as for jax.lax.scan")
    carry, out_tree = jax.tree.flatten(result[0], is_leaf=_is_expression)
    if out_tree != tree or not all(isinstance(v, Variable) and not v.picked for v in carry):
        _refuse(f"the body returned a carry {result[0]!r}", "carries are variables, structured as the initial one")
    for before, after in zip(init, carry, strict=True):
        if (before.plane, before.batch_shape) != (after.plane, after.batch_shape):
            _refuse(f"the carry changes from {before!r} to {after!r}", "it must keep its family and shape")
    arrays: list[Any] = []
    for site in frame.sites:
        _map_site(site, lambda a, _: arrays.append(a), lambda v: arrays.append(v.frame.at) if v.picked else None)
    arrays += [y for y in jax.tree.leaves(result[1], is_leaf=_is_expression) if not _is_expression(y)]
    return _Step(frame, slots, carry, tree, result[1], [unwrap(a) for a in arrays])


def _map_site(
    site: Site, on_array: Callable, on_variable: Callable, on_batch: Callable = lambda b: b
) -> tuple[dict[str, Any], Any]:
    arguments = map_arguments(site.arguments, on_array, on_variable, on_batch, site.event_ndims)
    return arguments, None if site.mask is None else on_array(site.mask, 0)


def _varies(jaxpr: Any) -> list[bool]:
    """Which recorded arrays depend on the scanned inputs; the others stay shared over the whole chain."""
    depends = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(not hasattr(v, "val") and v in depends for v in equation.invars):
            depends.update(equation.outvars)
    return [not hasattr(v, "val") and v in depends for v in jaxpr.outvars]


def scan(body: Callable[..., Any], init: Any, xs: Any, length: int | None = None) -> tuple[Any, Any]:
    """Declare a chain: `carry, y = body(carry, x)` for every `x` of `xs`, exactly as `jax.lax.scan`.

    Args:
        body: declares one step. Carries are random variables; `x` is a slice of `xs`.
        init: initial carry, a variable or a pytree of variables.
        xs: arrays with one leading axis, or None together with `length`.
        length: number of steps when `xs` has no array.

    Returns:
        The carry after the last step, and the outputs stacked over steps.
    """
    frame = current_frame("ngmp.scan")
    leaves, tree = jax.tree.flatten(init, is_leaf=_is_expression)
    if not leaves or not all(isinstance(v, Variable) and not v.picked for v in leaves):
        _refuse(f"the initial carry is {init!r}", "carries are random variables declared before the scan")
    given, xs = jax.tree.leaves(xs, is_leaf=lambda x: isinstance(x, Input)), jax.tree.map(unwrap, xs)
    count = _length(xs, length)
    if count == 0:
        return init, None
    steps: list[_Step] = []

    def run(x: Any) -> list[Any]:
        steps.append(_run_body(body, tree, leaves, x, frame.prefix))
        return [jnp.asarray(a) for a in steps[-1].arrays]

    # The body runs once; what it computes is mapped over the steps as a jaxpr.
    first = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a)[1:], a.dtype), xs)
    closed = jax.make_jaxpr(run)(first)
    varies, step = _varies(closed.jaxpr), steps[0]
    every = jax.vmap(
        lambda x: eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves(x)),
        out_axes=[0 if v else None for v in varies],
        axis_size=count,
    )
    arrays = every(xs)
    # A constant such as a Python float is worth keeping as it is: it can be checked at compile time.
    arrays = [a if v else (s if isinstance(s, (int, float, np.ndarray)) else a)
              for a, v, s in zip(arrays, varies, step.arrays, strict=True)]  # fmt: skip
    slices = dict(zip(closed.jaxpr.invars, given, strict=True))
    whole = [None if hasattr(v, "val") else slices.get(v) for v in closed.jaxpr.outvars]
    return _Lift(frame, step, leaves, count, arrays, varies, whole).apply()


class _Lift:
    """Adds the leading axis of length K to everything one step declared."""

    def __init__(
        self, frame: Frame, step: _Step, init: list[Variable], count: int, arrays: list, varies: list, whole: list
    ):
        self.frame = frame
        self.step = step
        self.init = init
        self.count = count
        self.values = iter(zip(arrays, varies, strict=True))
        self.whole = {id(a): x for a, x in zip(arrays, whole, strict=True) if x is not None}  # slices of inputs
        self.carries: dict[int, np.ndarray] = {}
        self.after = [self._unalias(v) for v in step.carry]
        self.local = {p: frame.allocate(p, (count, n)) for p, n in step.frame.sizes.items()}
        for positions, outer in step.frame.aliases:  # of an inner scan that starts at a variable of this one
            self.local[outer.plane][:, positions.reshape(-1)] = self._rows(outer).reshape(count, -1)

    def _unalias(self, v: Variable) -> Variable:
        """The variable itself where the body returns what an inner scan only handed through."""
        for positions, outer in self.step.frame.aliases:
            if v.frame is self.step.frame and v.plane == outer.plane and np.isin(v.index, positions).all():
                at = v.index - positions.reshape(-1)[0]
                return self._unalias(Variable(outer.frame, v.plane, outer.index.reshape(-1)[at]))
        return v

    def _rows(self, v: Variable) -> np.ndarray:
        """Positions, in the outer frame, of a variable at every step: (K, *batch)."""
        if v.frame is self.step.frame:
            whole = self.local[v.plane]
        elif v.frame in self.step.slots:
            whole = self._carry(v.frame.slot).reshape(self.count, -1)
        else:
            return np.broadcast_to(self.frame.adopt(v), (self.count, *v.index.shape))
        return whole[:, v.index.reshape(-1)].reshape(self.count, *v.index.shape)

    def _carry(self, slot: int) -> np.ndarray:
        """Positions of a carry at every step: its initial variable, then what the step before returned."""
        if slot not in self.carries:
            after = self.after[slot]
            source = self._source(slot)
            if after.frame is self.step.slots[slot] and (np.diff(after.index.reshape(-1)) == 1).all():
                first = self.frame.adopt(self.init[slot])  # passed through unchanged
                self.carries[slot] = np.broadcast_to(first, (self.count, *first.shape))
            elif source is None:
                self._rotate()
            else:
                first = self.frame.adopt(self.init[slot])
                self.carries[slot] = np.concatenate([first[None], source[:-1]])
        return self.carries[slot]

    def _source(self, slot: int) -> np.ndarray | None:
        """What every step returns in a slot; None if slots hand their variables round in a ring."""
        seen, at = {slot}, self.after[slot]
        while at.frame in self.step.slots:
            if at.frame.slot in seen:
                return None
            seen.add(at.frame.slot)
            at = self.after[at.frame.slot]
        return self._rows(self.after[slot])

    def _rotate(self) -> None:
        """Carries handed round in a ring: follow them step by step."""
        now = [self.frame.adopt(v) for v in self.init]
        history = [[x] for x in now]
        fixed = {j: self._rows(v) for j, v in enumerate(self.after) if v.frame not in self.step.slots}
        for k in range(self.count - 1):
            after = []
            for j, v in enumerate(self.after):
                moved = fixed[j][k] if j in fixed else now[v.frame.slot].reshape(-1)[v.index.reshape(-1)]
                after.append(moved.reshape(now[j].shape))
            now = after
            for past, x in zip(history, now, strict=True):
                past.append(x)
        self.carries.update({j: np.stack(past) for j, past in enumerate(history)})

    def variable(self, v: Variable) -> Variable:
        """The K copies of a variable of the body, in the outer frame: index of shape (K, *batch)."""
        if v.frame is not self.step.frame and v.frame not in self.step.slots:
            return Variable(v.frame, v.plane, np.broadcast_to(v.index, (self.count, *v.index.shape)))
        return Variable(self.frame, v.plane, self._rows(v))

    def _picked(self, v: Variable) -> Variable:
        """The K copies of a variable that an index picks: the candidates of all steps in one table."""
        source, (at, varies) = v.frame.source, next(self.values)
        whole, inner = self.whole.get(id(at)), source.frame is self.step.frame or source.frame in self.step.slots
        if isinstance(whole, np.ndarray) and not inner:  # known, since the schedule depends on it
            index = source.index[whole.reshape(self.count, -1)[:, v.index.reshape(-1)]]
            return Variable(source.frame, source.plane, index.reshape(self.count, *v.index.shape))
        size, count = source.index.size, np.prod(np.shape(at)[1:] if varies else np.shape(at), dtype=int)
        at = jnp.broadcast_to(jnp.reshape(at, (-1, count)), (self.count, count))
        if inner:  # other candidates in every step
            at = jnp.where(at < 0, at + size, at)
            own = at + size * np.arange(self.count)[:, None]
            at = jnp.where((at < 0) | (at >= size), size * self.count, own)
            source = Variable(self.frame, source.plane, self._rows(source).reshape(-1))
        index = v.index + count * np.arange(self.count).reshape(-1, *(1,) * v.index.ndim)
        return Variable(Picked(source, at.reshape(-1), getattr(whole, "place", v.frame.place)), v.plane, index)

    def site(self, site: Site) -> Site:
        rank = len(site.batch_shape)

        def on_array(_: Any, event_ndim: int) -> Any:
            value, varies = next(self.values)
            if not varies:
                return value
            # Inner values broadcast from the right, so the new axis needs the full rank in front of it.
            pad = rank - (np.ndim(value) - 1 - event_ndim)
            return jnp.reshape(value, (self.count,) + (1,) * pad + np.shape(value)[1:]) if pad else value

        def on_variable(v: Variable) -> Variable:
            lifted = self._picked(v) if v.picked else self.variable(v)
            pad = rank - v.index.ndim
            index = lifted.index.reshape((self.count,) + (1,) * pad + v.index.shape)
            return Variable(lifted.frame, lifted.plane, index)

        def on_batch(batch: tuple[int, ...]) -> tuple[int, ...]:
            return self.count, *(1,) * (rank - len(batch)), *batch

        arguments, mask = _map_site(site, on_array, on_variable, on_batch)
        own = {k: v for k, v in site.arguments.items() if site.event_ndims.get(k, 0) is None}
        ndims = {k: np.ndim(v) for k, v in own.items() if not _is_expression(v)}
        batch, ndims = (self.count, *site.batch_shape), {**site.event_ndims, **ndims}
        return site._replace(arguments=arguments, mask=mask, batch_shape=batch, event_ndims=ndims)

    def output(self, y: Any) -> Any:
        if isinstance(y, Variable) and not y.picked:
            return self.variable(y)
        if _is_expression(y):
            _refuse(f"the body outputs {y!r}", "outputs are variables or arrays")
        value, varies = next(self.values)
        return value if varies else jnp.broadcast_to(value, (self.count, *np.shape(value)))

    def apply(self) -> tuple[Any, Any]:
        for name, node in self.step.frame.nodes.items():
            inner = Variable(self.step.frame, node.plane, node.positions())
            self.frame.variable(name, node.plane, inner.index.shape, self.variable(inner).index)
        for name, shape in self.step.frame.observed.items():
            self.frame.observe(name, shape)
        self.frame.sites.extend([self.site(s) for s in self.step.frame.sites])
        outputs = jax.tree.map(self.output, self.step.outputs, is_leaf=_is_expression)
        final = [Variable(self.frame, v.plane, self._rows(v)[-1]) for v in self.after]
        return jax.tree.unflatten(self.step.tree, final), outputs
