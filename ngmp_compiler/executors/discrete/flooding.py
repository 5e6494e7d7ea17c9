r"""Categorical variables tied in loops too wide to sum out: damped loopy belief propagation, an approximation.

All factors send messages at once, from the beliefs $b_i = u_i + \sum_a m_{a \to i}$ of the sweep before,

$$ m_{a \to i}(x_i) \leftarrow \tfrac12 m_{a \to i}(x_i)
   + \tfrac12 \log\sum_{x_{a \setminus i}} e^{t_a(x_a) + \sum_{j \ne i} (b_j - m_{a \to j})(x_j)}, $$

until they no longer move. The log-partition is Bethe's,
$\sum_a \log\sum e^{t_a + \sum_j (b_j - m_{a \to j})} + \sum_i (1 - d_i) \log\sum e^{b_i}$, d_i the factors around i;
it and the marginals are exact on trees. Derivatives are those of the fixed point, by the implicit function theorem,
since the loop itself cannot be differentiated backwards.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ...linalg import pick
from ...solve.implicit import attach
from ..base import ASKED
from .base import Classes, DiscreteExecutor, DiscreteSolution, TablePiece, Tables, Unary
from .elimination import UNROLLED, Elimination
from .part import DiscretePart
from .slices import SliceChain
from .tree import PaddedNodes

DAMPING = 0.5
MAX_SWEEPS = 2000
LEAST = -1e5  # of a message: what is impossible by the zeros of several tables (-10^4 each) must not grow in a loop
_LAST = 1e300  # of an approximation: only where nothing exact fits
Messages = list[list[Array]]  # by piece and side, (n, K)
Inputs = tuple[Array, list[Array]]  # unary (N, K) and the tables of the pieces (n|1, *classes)


class Flooding(DiscreteExecutor):
    """Loopy belief propagation over tables of any number of variables; see the module docstring."""

    name = "flooding"
    approximate = True

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        return "no table touches it" if part.lone else None

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return _LAST

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[Flooding]":
        whys = {ASKED if part.asked else _too_large(part) for part in parts}
        return [cls(*parts[0].core.union(parts), "; ".join(sorted(map(str, whys))))]

    def __init__(self, members: dict[Plane, np.ndarray], pieces: list[TablePiece], why: str):
        self.nodes, self.pieces = PaddedNodes(members), pieces
        n = self.nodes.n
        self.sides: list[list[IndexMap]] = [
            [index_map(self.nodes.number(*side), n) for side in piece.sides] for piece in pieces
        ]
        touched = np.concatenate([side.positions for sides in self.sides for side in sides])
        self.degree = np.bincount(touched, minlength=n)
        cells = sum(piece.n * int(np.prod([p.event_shape[0] for p, _ in piece.sides])) for piece in pieces)
        self.why = f"approximate (damped loopy belief propagation) over {n} categorical variables: {why}"
        self.work = f"O({cells} cells) an iteration, at most {MAX_SWEEPS} of them"

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        inputs = self.nodes.stack(unary), [piece.take(tables[piece.group]) for piece in self.pieces]
        dtype = inputs[0].dtype
        tol = 1e4 * jnp.finfo(dtype).eps
        fixed = jax.lax.stop_gradient(inputs)

        def going(carry: tuple) -> Array:
            _, gap, count = carry
            return (gap > tol) & (count < MAX_SWEEPS)

        def step(carry: tuple) -> tuple:
            old, _, count = carry
            new = self._sweep(old, fixed)
            gaps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(jnp.exp(a) - jnp.exp(b))), new, old)
            damped = jax.tree.map(lambda a, b: _normalise(DAMPING * a + (1 - DAMPING) * b), old, new)
            return damped, jnp.max(jnp.stack(jax.tree.leaves(gaps))), count + 1

        flat = self._flat(dtype)
        messages, gap, _ = jax.lax.while_loop(going, step, (flat, jnp.asarray(jnp.inf, dtype), 0))
        messages = attach(self._sweep, messages, inputs)
        log_partition, beliefs, joints = self._read(messages, inputs)
        found: dict[int, list] = {}
        for piece, joint in zip(self.pieces, joints, strict=True):
            if piece.group in wanted:
                found.setdefault(piece.group, []).append((piece.rows, joint))
        return DiscreteSolution(log_partition, self.nodes.split(beliefs), found, gap <= tol)

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        """There is no joint that the beliefs are marginals of: independent draws from them."""
        found = self.solve(unary, tables, frozenset()).marginals
        keys = jax.random.split(key, len(found))
        return [(p, at, pick(k, jnp.broadcast_to(x, (count, *x.shape))))
                for k, (p, [(at, x)]) in zip(keys, found.items(), strict=True)]  # fmt: skip

    def _flat(self, dtype: np.dtype) -> Messages:
        sizes = [[(piece.n, plane.event_shape[0]) for plane, _ in piece.sides] for piece in self.pieces]
        return [[jnp.full(shape, -np.log(shape[1]), dtype) for shape in own] for own in sizes]

    def _beliefs(self, messages: Messages, unary: Array) -> Float[Array, "N K"]:
        """`b_i`, unnormalised."""
        k = self.nodes.classes
        for own, sides in zip(messages, self.sides, strict=True):
            for message, side in zip(own, sides, strict=True):
                unary = unary + side.add(jnp.pad(message, [(0, 0), (0, k - message.shape[1])]))
        return unary

    def _cavities(self, messages: Messages, beliefs: Array) -> Messages:
        return [
            [side.take(beliefs)[:, : m.shape[1]] - m for m, side in zip(own, sides, strict=True)]
            for own, sides in zip(messages, self.sides, strict=True)
        ]

    def _sweep(self, messages: Messages, inputs: Inputs) -> Messages:
        """All messages, undamped and normalised."""
        unary, tables = inputs
        cavities = self._cavities(messages, self._beliefs(messages, unary))
        out = []
        for table, own in zip(tables, cavities, strict=True):
            joint = table + sum(_axis(c, i, len(own)) for i, c in enumerate(own))
            out.append([
                _normalise(jax.nn.logsumexp(joint - _axis(c, i, len(own)), axis=_others(i, len(own))))
                for i, c in enumerate(own)
            ])  # fmt: skip
        return out

    def _read(self, messages: Messages, inputs: Inputs) -> tuple[Array, Array, list[Array]]:
        """Bethe's log-partition, the log-beliefs of variables, and those of the cells of every table."""
        unary, tables = inputs
        beliefs = self._beliefs(messages, unary)
        norm = jax.nn.logsumexp(beliefs, axis=-1)
        total, joints = jnp.sum((1 - self.degree) * norm), []
        for table, own in zip(tables, self._cavities(messages, beliefs), strict=True):
            joint = table + sum(_axis(c, i, len(own)) for i, c in enumerate(own))
            scale = jax.nn.logsumexp(joint, axis=tuple(range(1, joint.ndim)), keepdims=True)
            total += jnp.sum(scale)
            joints.append(joint - scale)
        return total, beliefs - norm[:, None], joints


def _axis(message: Float[Array, "n K"], i: int, axes: int) -> Array:
    """A message along axis i of tables with that many class axes."""
    return message.reshape(message.shape[0], *(message.shape[1] if a == i else 1 for a in range(axes)))


def _others(i: int, axes: int) -> tuple[int, ...]:
    return tuple(1 + a for a in range(axes) if a != i)


def _normalise(message: Float[Array, "n K"]) -> Float[Array, "n K"]:
    return jnp.maximum(jax.nn.log_softmax(message, axis=-1), LEAST)


def _too_large(part: DiscretePart) -> str | None:
    """Why a part is not summed out exactly."""
    if len(part.nodes) > UNROLLED:
        why = f"loops over more than the {UNROLLED} variables that elimination unrolls"
        return f"{why}, and no slices: {part.misfit(SliceChain)}"
    return part.misfit(Elimination)
