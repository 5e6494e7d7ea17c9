r"""Coupled chains of categorical variables: one scan over the joint state of each time, rolled whatever their length.

The network is a head, S steps of one shape, and a tail (`layers`). With $w_k$ what step k hands on,

$$ \alpha_k(w_k) = \log\sum e^{\alpha_{k-1}(w_{k-1}) + t_k}, \qquad
   \beta_{k-1}(w_{k-1}) = \log\sum e^{t_k + \beta_k(w_k)}, $$

where $t_k$ are the log-tables of step k and the sums run over all other variables of it. Within a step variables are
summed out one after the other in a min-fill order, so that a product of transitions is applied one chain at a time.
The marginals of a step are those of $\alpha_{k-1} + t_k + \beta_k$.
"""

import math
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...linalg import network_classes
from ...linalg.elimination import Cluster
from ..base import ASKED
from .base import Classes, DiscreteExecutor, DiscreteSolution, TablePiece, Tables, Unary
from .elimination import UNROLLED, Tie
from .layers import Block, Slices, slices
from .part import DiscretePart
from .segment import Inputs, Segment

SLICE_CELLS = 2**18  # of the tables of one step
_LARGEST = 2**22  # cells of the joint tables of the steps that are read at once


class SliceChain(DiscreteExecutor):
    """B equal networks that repeat over time; see the module docstring."""

    name = "slices"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        layout = None if part.lone else cheapest(part)
        if layout is None:
            return "no run of equal slices, tied to their neighbours alone"
        _, cells, ends = layout
        if cells > SLICE_CELLS:
            return f"a step over the joint states of a slice needs {cells:.1e} cells, over {SLICE_CELLS}"
        return None if ends <= UNROLLED else f"{ends} variables at the ends, over {UNROLLED}"

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: DiscretePart) -> Hashable:
        return part.signature

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[SliceChain]":
        """One executor for all parts of equal shape."""
        layout = cheapest(parts[0])
        assert layout is not None
        head, steps, tail = (None if b is None else _segment(b, parts) for b in layout[0])
        assert head is not None and steps is not None
        limit = ASKED if parts[0].asked else f"at most {SLICE_CELLS}"
        return [cls(head, steps, tail, parts[0].core.pieces(parts), limit)]

    def __init__(self, head: Segment, steps: Segment, tail: Segment | None, pieces: list[TablePiece], limit: str):
        self.head, self.steps, self.tail, self.pieces = head, steps, tail, pieces
        count, batch = steps.positions.shape[:2]
        states = math.prod(steps.sizes[x] for x in steps.keep)
        ends = head.positions.shape[-1] + (0 if tail is None else tail.positions.shape[-1])
        copies = f"{batch} networks of " if batch > 1 else ""
        scan = f"a scan over the {states} joint states of {len(steps.keep)} of them"
        self.why = (
            f"{copies}{count} equal steps of {steps.positions.shape[-1]} categorical variables, {scan} "
            f"({steps.cells()} cells a step, {limit}); {ends} variables at the ends"
        )
        self.work = f"O({f'{batch} x ' if batch > 1 else ''}{count} x {steps.cells()} cells)"

    def _forward(self, first: Inputs, middle: Inputs) -> tuple[Array, Array, Array]:
        """What the last step hands on, what each was handed, and the sum of what was subtracted of it."""
        head, steps = self.head, self.steps
        alpha, scale = _shift(head.send(head.keep, first, []))

        def forward(alpha: Array, inputs: Inputs) -> tuple[Array, tuple[Array, Array]]:
            moved, scale = _shift(steps.send(steps.keep, inputs, [(steps.incoming, alpha)]))
            return moved, (alpha, scale)

        last, (alphas, scales) = _scan(forward, alpha, middle)
        return last, alphas, jnp.sum(scale) + jnp.sum(scales)

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        """Filtered forward, and drawn from the last step to the first."""
        head, steps, tail = self.head, self.steps, self.tail
        first, middle = _only(head.inputs(unary, tables)), steps.inputs(unary, tables)
        last, alphas, _ = self._forward(first, middle)
        ends, out = jax.random.split(key, 3), []
        if tail is None:
            whole = [Cluster(steps.keep, (), None)]
            drawn = network_classes([last], whole, ends[0], count)
            state = [drawn[x] for x in steps.keep]
        else:
            final = _only(tail.inputs(unary, tables))
            drawn = tail.draw(None, final, [(tail.incoming, last)], {}, ends[0], count)
            state = [drawn[x] for x in tail.incoming]
            out += tail.classes({x: c[None] for x, c in drawn.items()})
        flat, build = _split(middle, len(alphas))

        def back(state: list[Array], x: tuple) -> tuple[list[Array], dict[int, Array]]:
            own, alpha, key = x
            given = dict(zip(steps.keep, state, strict=True))
            drawn = steps.draw(steps.keep, build(own), [(steps.incoming, alpha)], given, key, count)
            return [drawn[i] for i in steps.incoming], drawn

        keys = jax.random.split(ends[1], len(alphas))
        state, drawn = jax.lax.scan(back, state, (flat, alphas, keys), reverse=True)
        given = dict(zip(head.keep, state, strict=True))
        at_head = head.draw(head.keep, first, [], given, ends[2], count)
        return [*out, *steps.classes(drawn), *head.classes({x: c[None] for x, c in at_head.items()})]

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        head, steps, tail = self.head, self.steps, self.tail
        first, middle = _only(head.inputs(unary, tables)), steps.inputs(unary, tables)

        def backward(beta: Array, inputs: Inputs) -> tuple[Array, Array]:
            return _shift(steps.send(steps.incoming, inputs, [(steps.keep, beta)]))[0], beta

        last, alphas, log_partition = self._forward(first, middle)
        if tail is None:
            beta = jnp.zeros_like(last)
            log_partition += jnp.sum(jax.nn.logsumexp(last.reshape(last.shape[0], -1), -1))
        else:
            final = _only(tail.inputs(unary, tables))
            log_partition += jnp.sum(tail.send((), final, [(tail.incoming, last)]))
            beta = _shift(tail.send(tail.incoming, final, []))[0]
        beta, betas = _scan(backward, beta, middle, reverse=True)
        solution = DiscreteSolution(log_partition, {}, {})
        _keep(solution, head, [x[None] for x in head.read(first, [(head.keep, beta)], wanted)], wanted)
        _keep(solution, steps, self._read(middle, alphas, betas, wanted), wanted)
        if tail is not None:
            _keep(solution, tail, [x[None] for x in tail.read(final, [(tail.incoming, last)], wanted)], wanted)
        return solution

    def _read(self, inputs: Inputs, alphas: Array, betas: Array, wanted: frozenset[int]) -> list[Array]:
        """The marginals of all steps, (S, B, *classes), as many at once as fit `_LARGEST`."""
        steps = self.steps
        flat, build = _split(inputs, len(alphas))

        def one(x: tuple) -> list[Array]:
            own, alpha, beta = x
            return steps.read(build(own), [(steps.incoming, alpha), (steps.keep, beta)], wanted)

        at_once = max(1, _LARGEST // (steps.cells() * steps.positions.shape[1]))
        if at_once >= len(alphas):
            return jax.vmap(one)((flat, alphas, betas))
        return jax.lax.map(one, (flat, alphas, betas), batch_size=at_once)


def _split(inputs: Inputs, steps: int) -> tuple[list[Array], Callable[[list[Array]], Inputs]]:
    """The inputs that differ between steps, and how to put those of a step together with the ones that all share."""
    leaves, tree = jax.tree.flatten(inputs)
    moving = [len(x) == steps for x in leaves]

    def build(own: list[Array]) -> Inputs:
        left = iter(own)
        return jax.tree.unflatten(tree, [next(left) if m else x[0] for x, m in zip(leaves, moving, strict=True)])

    return [x for x, m in zip(leaves, moving, strict=True) if m], build


def _scan(step: Callable, start: Array, inputs: Inputs, reverse: bool = False) -> tuple:
    own, build = _split(inputs, len(inputs[0][0]))
    return jax.lax.scan(lambda carry, x: step(carry, build(x)), start, own, reverse=reverse)


def _only(inputs: Inputs) -> Inputs:
    """Of a segment of one network."""
    return jax.tree.map(lambda x: x[0], inputs)


def _shift(message: Float[Array, "B *classes"]) -> tuple[Array, Float[Array, " B"]]:
    """Subtract the largest entry of every copy, and return it."""
    axes = tuple(range(1, message.ndim))
    top = jax.lax.stop_gradient(jnp.max(message, axes, keepdims=True))
    return message - top, top.reshape(-1)


def _keep(solution: DiscreteSolution, segment: Segment, found: list[Array], wanted: frozenset[int]) -> None:
    """File the marginals of a segment, (S, B, *classes), under their planes and groups."""
    own = segment.planes[len(segment.incoming) :]
    for i, plane in enumerate(own):
        x = found[i]
        solution.marginals.setdefault(plane, []).append(
            (segment.positions[..., i].reshape(-1), x.reshape(-1, x.shape[-1]))
        )
    chosen = [tie for tie in segment.ties if tie.group in wanted]
    for tie, x in zip(chosen, found[len(own) :], strict=True):
        solution.tables.setdefault(tie.group, []).append((tie.rows.reshape(-1), x.reshape(-1, *x.shape[2:])))


def cheapest(part: DiscretePart) -> tuple[Slices, int, int] | None:
    """The layout in slices that needs the fewest cells a step, those cells, and the variables at its ends."""
    if "_cheapest" not in part.__dict__:
        found = []
        for layout in slices(part.core.nodes.plane_of(part.nodes), part.scopes):
            cells = _segment(layout.steps, [part]).cells()
            ends = layout.head.own.size + (0 if layout.tail is None else layout.tail.own.size)
            found.append((layout, cells, ends))
        part.__dict__["_cheapest"] = min(found, key=lambda x: x[1:], default=None)
    return part.__dict__["_cheapest"]


def _segment(block: Block, parts: list[DiscretePart]) -> Segment:
    """A block of the slices of equal parts."""
    core = parts[0].core
    members = np.stack([part.nodes for part in parts])  # (B, variables)
    local = np.concatenate([block.incoming, block.own[0]])
    planes = tuple(core.nodes.planes[w] for w in core.nodes.plane_of(members[0, local]))
    offsets = np.asarray([core.nodes.offset[p] for p in planes[len(block.incoming) :]])
    found = []
    for t, rows, scope in block.ties:
        whole = np.stack([part.rows[t] for part in parts])  # (B, tables)
        found.append(Tie(core.ties[t].group, whole[:, rows].T, scope))
    positions = members[:, block.own].swapaxes(0, 1) - offsets
    return Segment(planes, positions, found, block.keep)
