r"""The slow interpreter: natural-gradient message passing, factor by factor, in numpy.

A model is traced with concrete inputs, every site is expanded to single factors, and the fixed point is iterated:

- the conjugate core is one dense Gaussian over all Gaussian dimensions, one sum per Gamma, Beta, Dirichlet or Bernoulli
  variable, and one table over all joint states of the categorical ones;
- every other factor sends $\eta^* = F^{-1} Cov_q[T, \ell]$, its exact log-message integrated and projected on grids;
- leaves move by damped Jacobi steps, shortened while a marginal would be improper.

Factors that `mean_field` names send $E[\log f \mid z_j]$ under the other marginals instead (structured VMP). A
deterministic node sends the moments of g(x) forward, and the projected cavity of its outcome backward.

The free energy is the formula in the docstring of `ngmp_compiler.emit.map`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from ngmp_compiler.declare.sample import trace

from .elements import Cell, Coordinates, Interface, Linear, elements
from .factors import Conjugate, Constant, Node, Noise, Pair, Projected, stack, understand
from .grids import few_points, grid, log_partition, mean_parameters, project, proper

Leaves = dict[tuple[int, int], np.ndarray]  # by factor and interface


class Core(NamedTuple):
    """The surrogate under the current leaves: a Gaussian (mean, covariance), natural parameters of every cell."""

    log_partition: float
    mean: np.ndarray
    covariance: np.ndarray
    cells: dict[Cell, np.ndarray]


class Improper(Exception):
    """A marginal, or a cavity that a message needs, is no density."""


class Interpretation(NamedTuple):
    """Fixed point of a model; `marginals[name]` is a dictionary of arrays of the variable's shape."""

    marginals: dict[str, dict[str, np.ndarray]]
    free_energy: float
    residual: float
    sweeps: int


class Interpreter:
    """A model with concrete inputs, expanded to single factors."""

    def __init__(
        self, graph: Any, points: int = 201, mean_field: Callable[[str], bool] = lambda name: False,
        joint: frozenset[str] = frozenset(),
    ):  # fmt: skip
        self.graph, self.points, self.mean_field = graph, points, mean_field
        self.coordinates = Coordinates(graph)
        found = elements(graph, self.coordinates)
        self.factors, self.names = [understand(e) for e in found], [e.name for e in found]
        joined = [name in joint and isinstance(f, Projected) for f, name in zip(self.factors, self.names, strict=True)]
        self.factors = [stack(f) if yes else f for f, yes in zip(self.factors, joined, strict=True)]
        self.projected = {a: f for a, f in enumerate(self.factors) if isinstance(f, (Projected, Node))}
        self.cells = [
            Cell(p, i) for p, n in graph.sizes.items() for i in range(n) if (p, i) not in self.coordinates.start
        ]

    def seen(self, name: str) -> np.ndarray:
        """Which elements of a site, in order, are not masked."""
        flags = [np.broadcast_to(True if s.mask is None else np.asarray(s.mask), s.batch_shape).reshape(-1)
                 for s in self.graph.sites if s.name == name]  # fmt: skip
        return np.concatenate(flags)

    # -- the conjugate core -------------------------------------------------------------------------------------------

    def core(self, leaves: Leaves) -> Core:
        size = self.coordinates.size
        precision, linear, constant = np.zeros((size, size)), np.zeros(size), 0.0
        totals = {c: np.zeros(_length(c)) for c in self.cells}
        pairs = []
        for a, f in enumerate(self.factors):
            if isinstance(f, Noise):
                rows, offset, _ = f.residual
                precision += rows.T @ f.precision @ rows
                linear -= rows.T @ f.precision @ offset
                constant += 0.5 * np.linalg.slogdet(f.precision / (2 * np.pi))[1] - 0.5 * offset @ f.precision @ offset
            elif isinstance(f, Conjugate):
                totals[f.cell] = totals[f.cell] + f.eta
                constant += f.log_scale
            elif isinstance(f, Pair):
                pairs.append(f)
            elif isinstance(f, Constant):
                constant += f.value
            else:
                for j, interface in enumerate(f.interfaces):
                    eta = leaves[a, j]
                    if isinstance(interface, Cell):
                        totals[interface] = totals[interface] + eta
                        continue
                    rows, c, k = interface.rows, interface.offset, len(interface.offset)
                    xi, eta2 = eta[:k], eta[k:].reshape(k, k)
                    precision += -2 * rows.T @ eta2 @ rows
                    linear += rows.T @ (xi + 2 * eta2 @ c)
                    constant += xi @ c + c @ eta2 @ c
        mean, covariance, log_z = _gaussian(precision, linear)
        cells, discrete = _enumerate(totals, pairs)
        for cell, eta in totals.items():
            if cell.family == "Categorical":
                continue
            if not proper(cell.family, eta):
                raise Improper(cell)
            cells[cell] = eta
            log_z += log_partition(cell.family, eta)
        return Core(constant + log_z + discrete, mean, covariance, cells)

    def marginal(self, core: Core, interface: Interface) -> np.ndarray:
        """Natural parameters of the marginal of an interface."""
        if isinstance(interface, Cell):
            return core.cells[interface]
        rows = interface.rows
        mean, inverse = rows @ core.mean + interface.offset, np.linalg.inv(rows @ core.covariance @ rows.T)
        return np.append(inverse @ mean, -0.5 * inverse)

    # -- messages -----------------------------------------------------------------------------------------------------

    def cavities(self, a: int, core: Core, leaves: Leaves) -> list[np.ndarray]:
        return [self.marginal(core, i) - leaves[a, j] for j, i in enumerate(self.projected[a].interfaces)]

    def log_message(self, a: int, j: int, z: np.ndarray, cavities: list[np.ndarray]) -> np.ndarray:
        """`log ∫ f Π_{i≠j} q_i` at the points z, the other cavities summed over their grids."""
        f = self.projected[a]
        assert isinstance(f, Projected), "the free energy of a deterministic node is not interpreted"
        values, weights = [], np.ones(())
        for i, interface in enumerate(f.interfaces):
            axis = tuple(slice(None) if k == i else None for k in range(len(f.interfaces)))
            if i == j:
                values.append(z[axis])
                continue
            if not proper(family(interface), cavities[i]):
                raise Improper(interface)
            points, w = grid(family(interface), cavities[i], self.points)
            values.append(points[axis])
            weights = weights * w[axis]
        log_f = f.log_density(*values)
        others = tuple(i for i in range(len(f.interfaces)) if i != j)
        if not others:
            return log_f
        top = log_f.max(axis=others, keepdims=True)
        return np.log((weights * np.exp(log_f - top)).sum(axis=others)) + top.reshape(-1)

    def targets(self, leaves: Leaves) -> Leaves:
        """The projected message of every interface."""
        core = self.core(leaves)
        out = {}
        for a, f in self.projected.items():
            cavities = self.cavities(a, core, leaves)
            marginals = [self.marginal(core, i) for i in f.interfaces]
            for j, interface in enumerate(f.interfaces):
                z, w = grid(family(interface), marginals[j], self.points)
                if isinstance(f, Node):
                    out[a, j] = self.forward(f, cavities) if j == 0 else self.backward(f, z, w, cavities)
                elif self.mean_field(self.names[a]):
                    z, w = few_points(family(interface), marginals[j])
                    out[a, j] = project(family(interface), z, w, self.expected(f, j, z, marginals))
                else:
                    out[a, j] = project(family(interface), z, w, self.log_message(a, j, z, cavities))
        return out

    def forward(self, f: Node, cavities: list[np.ndarray]) -> np.ndarray:
        """The Gaussian with the mean and variance of g(x) under the cavity of x; flat where that is improper."""
        if not proper("Gaussian", cavities[1]):
            return np.zeros(2)
        x, w = grid("Gaussian", cavities[1], self.points)
        value = f.function(x)
        mean = w @ value
        variance = w @ (value - mean) ** 2
        return np.array([mean / variance, -0.5 / variance])

    def backward(self, f: Node, z: np.ndarray, w: np.ndarray, cavities: list[np.ndarray]) -> np.ndarray:
        """The cavity of the outcome read at g(x), projected; flat where it is improper."""
        if not proper("Gaussian", cavities[0]):
            return np.zeros(2)
        value = f.function(z)
        return project("Gaussian", z, w, cavities[0][0] * value + cavities[0][1] * value**2)

    def expected(self, f: Projected, j: int, z: np.ndarray, marginals: list[np.ndarray]) -> np.ndarray:
        """`E[log f | z_j]` at the points z, under the product of the other marginals."""
        values, weights, count = [], np.ones(()), len(f.interfaces)
        for i, interface in enumerate(f.interfaces):
            axis = tuple(slice(None) if k == i else None for k in range(count))
            points, w = (z, np.ones(len(z))) if i == j else few_points(family(interface), marginals[i])
            values.append(points[axis])
            weights = weights * w[axis]
        return (weights * f.log_density(*values)).sum(axis=tuple(i for i in range(count) if i != j))

    def free_energy(self, leaves: Leaves) -> float:
        core = self.core(leaves)
        total = -core.log_partition
        for a, f in self.projected.items():
            cavities = self.cavities(a, core, leaves)
            for j, interface in enumerate(f.interfaces):
                q = self.marginal(core, interface)
                z, w = grid(family(interface), q, self.points)
                total -= w @ self.log_message(a, j, z, cavities) - leaves[a, j] @ mean_parameters(family(interface), q)
            if len(f.interfaces) > 1:
                z, w = grid(family(f.interfaces[0]), cavities[0], self.points)
                evidence = logsumexp(self.log_message(a, 0, z, cavities), b=w)
                total += (len(f.interfaces) - 1) * evidence
        return float(total)

    # -- the fixed point ----------------------------------------------------------------------------------------------

    def start(self) -> Leaves:
        """Flat leaves, but N(0, 1) on a residual of unknown scale, which may be all that ties a variable."""
        leaves = {}
        for a, f in self.projected.items():
            for j, interface in enumerate(f.interfaces):
                tied = isinstance(interface, Linear) and j == 0 and np.count_nonzero(interface.rows[0]) > 1
                leaves[a, j] = np.zeros(_length(interface))
                if tied:
                    k = len(interface.offset)
                    leaves[a, j][k:] = -0.5 * np.eye(k).reshape(-1)
        return leaves

    def solve(self, damping: float = 0.6, tol: float = 1e-12, max_sweeps: int = 1000) -> tuple[Leaves, float, int]:
        leaves = self.start()
        target = self.targets(leaves)
        residual, sweep, step = np.inf, 0, damping
        while self.projected and residual > tol and sweep < max_sweeps:
            sweep += 1
            trial = {k: eta + step * (target[k] - eta) for k, eta in leaves.items()}
            try:
                found = self.targets(trial)
            except Improper:
                step *= 0.5
                continue
            leaves, target, step = trial, found, damping
            residual = max(np.abs(target[k] - eta).max() / (1 + np.abs(eta).max()) for k, eta in leaves.items())
        return leaves, float(residual) if self.projected else 0.0, sweep

    def summary(self, core: Core) -> dict[str, dict[str, np.ndarray]]:
        out = {}
        for name, node in self.graph.nodes.items():
            positions = node.positions()
            each = [self._moments(core, node.plane, int(p)) for p in positions.reshape(-1)]
            out[name] = {k: np.stack([e[k] for e in each]).reshape(positions.shape + each[0][k].shape) for k in each[0]}
        return out

    def _moments(self, core: Core, plane: Any, position: int) -> dict[str, np.ndarray]:
        kind = plane.family.__name__
        if kind in ("Gaussian", "MvGaussian"):
            at = self.coordinates.where(plane, position)
            mean, covariance = core.mean[at], core.covariance[at, at]
            if kind == "Gaussian":
                return {"mean": mean[0], "variance": covariance[0, 0]}
            return {"mean": mean, "covariance": covariance}
        eta = core.cells[Cell(plane, position)]
        return {
            "Gamma": lambda: {"concentration": eta[0] + 1, "rate": -eta[1]},
            "Beta": lambda: {"a": eta[0] + 1, "b": eta[1] + 1},
            "Dirichlet": lambda: {"concentration": eta + 1},
            "Bernoulli": lambda: {"probs": mean_parameters(kind, eta)[0]},
            "Categorical": lambda: {"probs": mean_parameters(kind, eta)},
        }[kind]()


def interpret(
    model: Callable, points: int = 201, joint: frozenset[str] = frozenset(), **inputs: Any
) -> Interpretation:
    """Run a model on concrete inputs to its fixed point; Gaussian interfaces of the `joint` sites are one edge."""
    interpreter = Interpreter(trace(model, inputs), points, joint=joint)
    leaves, residual, sweeps = interpreter.solve()
    core = interpreter.core(leaves)
    return Interpretation(interpreter.summary(core), interpreter.free_energy(leaves), residual, sweeps)


def family(interface: Interface) -> str:
    """The family of an interface, by name."""
    if isinstance(interface, Cell):
        return interface.family
    return "Gaussian" if len(interface.offset) == 1 else "MvGaussian"


def _length(interface: Interface) -> int:
    """The number of natural parameters."""
    if isinstance(interface, Cell) and interface.family in ("Categorical", "Dirichlet"):
        return interface.plane.event_shape[0]
    if isinstance(interface, Cell):
        return 1 if interface.family == "Bernoulli" else 2
    return len(interface.offset) * (1 + len(interface.offset))


def _gaussian(precision: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    if not len(linear):
        return linear, precision, 0.0
    try:
        half_log_det = np.log(np.diagonal(np.linalg.cholesky(precision))).sum()
    except np.linalg.LinAlgError:
        raise Improper("the Gaussian core") from None
    covariance = np.linalg.inv(precision)
    mean = covariance @ linear
    return mean, covariance, 0.5 * linear @ mean - half_log_det + 0.5 * len(linear) * np.log(2 * np.pi)


def _enumerate(totals: dict[Cell, np.ndarray], pairs: list[Pair]) -> tuple[dict[Cell, np.ndarray], float]:
    """Log-marginals of all categorical cells, from the table of all their joint states."""
    cells = [c for c in totals if c.family == "Categorical"]
    joint = np.zeros([len(totals[c]) for c in cells])
    for state in np.ndindex(*joint.shape):
        value = dict(zip(cells, state, strict=True))
        joint[state] = sum(totals[c][k] for c, k in value.items())
        joint[state] += sum(p.table[value[p.left], value[p.right]] for p in pairs)
    log_z = logsumexp(joint)
    marginals = {}
    for axis, c in enumerate(cells):
        others = tuple(k for k in range(len(cells)) if k != axis)
        marginals[c] = logsumexp(joint, axis=others) - log_z
    return marginals, float(log_z)


def rolled_leaves(groups: list[Any], leaves: dict[str, Any], interpreter: Interpreter) -> Leaves:
    """The leaves of a program whose sites are scalar and seen, by the groups it rolled them into."""
    number: dict[tuple[str, int], int] = {}
    count: dict[str, int] = {}
    for a, name in enumerate(interpreter.names):
        number[name, count.setdefault(name, 0)] = a
        count[name] += 1
    out = {}
    for group in groups:
        for row, key in enumerate(zip(group.given.names, group.given.order, strict=True)):
            for j in range(len(group.edges)):
                parts = leaves[group.keys[j]].natural
                out[number[key], j] = np.concatenate([np.asarray(x)[row].reshape(-1) for x in parts]).astype(float)
    return out


def leaves_of(post: Any, interpreter: Interpreter) -> Leaves:
    """The leaves a program ended with, as the interpreter's; rows of masked factors are dropped."""
    rows: dict[str, int] = {}
    out = {}
    for a, f in interpreter.projected.items():
        name = interpreter.names[a]
        keys = sorted(k for k in post.state.leaves if k.startswith(f"{name}."))
        assert len(keys) == len(f.interfaces), f"{name} has leaves {keys}"
        row = np.flatnonzero(interpreter.seen(name))[rows.get(name, 0)]
        rows[name] = rows.get(name, 0) + 1
        for j, key in enumerate(keys):
            leaf = post.state.leaves[key]
            out[a, j] = np.concatenate([np.asarray(x)[row].reshape(-1) for x in leaf.natural]).astype(float)
    return out
