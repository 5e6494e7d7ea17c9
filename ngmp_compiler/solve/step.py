"""Steps: how leaves move toward their targets, in the words of optax, and what they make of a step that was refused.

A step has `init(params) -> memory` and `update(gradient, memory, params) -> (step, memory)`, where the gradient is
`eta - eta*` and the step is what to add to the leaves. Every optax transformation is one. A step of your own is a
frozen Module like any other, `class HeavyBall(AbstractStep)`; no list has to know it.
"""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool

from .stacks import Layout, Stack

Blamed = dict[str, Bool[Array, " n"]]  # by leaf, the rows whose step is cut


class Memory(eqx.Module):
    """A memory that outlives a refusal; wherever it stands, also inside of `optax.chain`. Any other starts anew."""

    @abc.abstractmethod
    def refused(self, blamed: Blamed, written: Any) -> "Memory":
        """What to go on with after a step that was not accepted; `written` is what `update` made of this memory."""

    def damped(self) -> "Memory":
        """For a block of a schedule that others follow: without secants, which would chase each other."""
        return self


class AbstractStep(eqx.Module):
    """See the module docstring."""

    @abc.abstractmethod
    def init(self, params: Any) -> Any:
        """The memory that a run starts with."""

    @abc.abstractmethod
    def update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        """What to add to the leaves, and the next memory; `updates` are `eta - eta*`, `params` are `eta`."""

    def advance(self, layout: Layout, gradient: list[Stack], state: Any, eta: list[Stack], like: Any) -> Any:
        """`update` of stacks: the step, as stacks, and the next memory; `like` are leaves of the shapes of these."""
        step, memory = self.update(layout.unstack(gradient, like), state, layout.unstack(eta, like))
        return layout.stack(step), memory

    def refused(self, state: Any, fresh: Any, written: Any, blamed: Blamed) -> Any:
        """The memory after a step that was not accepted: `fresh`, except where it is a `Memory`."""

        def after(old: Any, new: Any, wrote: Any) -> Any:
            return old.refused(blamed, wrote) if isinstance(old, Memory) else new

        return jax.tree.map(after, state, fresh, written, is_leaf=_is_memory)

    def damped(self, state: Any) -> Any:
        """The memory of a block that others follow."""
        return jax.tree.map(lambda m: m.damped() if isinstance(m, Memory) else m, state, is_leaf=_is_memory)


class Optax(AbstractStep):
    """An optax transformation as a step."""

    transformation: Any

    def init(self, params: Any) -> Any:
        return self.transformation.init(params)

    def update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return self.transformation.update(updates, state, params)

    def __str__(self) -> str:
        name = getattr(self.transformation.update, "__qualname__", type(self.transformation).__name__)
        return f"optax ({name.split('.')[0]})"


def as_step(given: Any) -> AbstractStep | None:
    """What `solver=` was given, if anything, as a step; TypeError if it is none, saying what it lacks."""
    if given is None:
        return None
    missing = [name for name in ("init", "update") if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        lacks = f"it lacks {' and '.join(missing)}" if missing else "it is a class: give an instance"
        example = "ngmp.adaptive(), optax.sgd(0.5), or a step of your own (ngmp.AbstractStep)"
        raise TypeError(f"solver={given!r} is not an optax transformation, nor a step: {lacks}; give e.g. {example}")
    return given if isinstance(given, AbstractStep) else Optax(given)


def _is_memory(x: Any) -> bool:
    return isinstance(x, Memory)
