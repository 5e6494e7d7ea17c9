r"""Gaussian vectors seen through linear functionals, $\exp\{h_n \phi_n^T w - \tfrac12 \lambda_n (\phi_n^T w)^2\}$ each.

What does not move between sweeps is summed once, in `prepare`: $\exp\{h_0^T w - \tfrac12 w^T P_0 w\}$. The n rows that
move are then added in one of two ways, whichever costs less (`cost`):

- weight space: $P = P_0 + \Phi^T \Lambda \Phi$ is factorised, D x D, in every sweep;
- function space: $f = \Phi w$ is Gaussian under the fixed part, with covariance $K = \Phi P_0^{-1} \Phi^T$ that is
  computed once, and only n x n matrices are factorised in a sweep (`linalg.function_space`). It needs a $P_0$ that is
  proper on its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import MvGaussian
from ngmp_kernels.numerics.cholesky import WRITTEN_OUT, inverse_factor, unwhiten, whiten, whiten_rows
from ngmp_kernels.numerics.special import LOG_2PI

from ...graph.index import IndexMap
from ...linalg import add_jitter, factor, function_space
from ...value import Value
from .base import Potential, fill, scale
from .pieces import Piece
from .rows import Rows, flat, gram, slices, through

TYPICAL_SWEEPS = 10  # what is done once is spread over this many in the cost


class Term(NamedTuple):
    """A link of a piece to vectors; `index` says to which of them."""

    piece: Piece
    link: int
    index: IndexMap

    @property
    def is_row(self) -> bool:
        return self.piece.links[self.link].op == "dot"

    def features(self) -> Float[Array, "n D"]:
        return fill(self.piece.links[self.link].coefficient, self.piece.n)


def seen(term: Term, values: Float[Array, "draws B *D"]) -> Float[Array, "draws n"]:
    """What a scalar-valued term sees of many draws of its variables, without its offset."""
    c, index = term.piece.links[term.link].coefficient, term.index
    if not term.is_row:
        return scale(c) * jax.vmap(index.take)(values)
    if index.kind in ("one", "all") and values.shape[1] == 1:
        return values[:, 0] @ term.features().T
    return jax.lax.map(lambda x: jnp.sum(c * index.take(x), -1), values)


def add_vectors(term: Term, pot: Potential) -> tuple[Float[Array, "B D D"], Float[Array, "B D"]]:
    """Precision and linear coefficient that a term adds to its B vectors."""
    piece, link, index = term
    c = piece.links[link].coefficient
    if term.is_row:
        rows = Rows(index.positions, index.size)
        return add_rows(rows, rows.take(term.features()), fill(pot.precision, piece.n), fill(pot.linear, piece.n))
    precision, linear = pot.precision, pot.linear
    if piece.links[link].op == "scale":
        a = jnp.ones(1, linear.dtype) if c is None else jnp.asarray(c)
        square = precision * (a**2)[:, None, None]
        return index.add(fill(square, piece.n)), index.add(fill(linear * a[:, None], piece.n))
    c = jnp.asarray(c)
    if c.shape[0] == 1:  # products with one matrix are many times faster than with a batch of copies
        square = jnp.einsum("md,nmk,ke->nde", c[0], precision, c[0])
        return index.add(fill(square, piece.n)), index.add(fill(linear @ c[0], piece.n))
    rows = Rows(np.repeat(index.positions, c.shape[1]), index.size)
    weighted = jnp.einsum("nmk,nkd->nmd", fill(precision, piece.n), c)
    pairs = zip(rows.take(flat(c)), rows.take(flat(weighted)), strict=True)
    square = rows.scatter([jnp.einsum("bnd,bne->bde", x, y) for x, y in pairs])
    return square, index.add(jnp.einsum("nmd,nm->nd", c, fill(linear, piece.n)))


def wide_moments(
    term: Term, mean: Float[Array, "B D"], covariance: Float[Array, "B D D"]
) -> tuple[Float[Array, "n m"], Float[Array, "n m m"]]:
    """Mean and covariance of vector-valued functionals `A w` or `a w`, without their offset."""
    piece, link, index = term
    c = piece.links[link].coefficient
    if piece.links[link].op == "scale":
        a = jnp.ones(1, mean.dtype) if c is None else jnp.asarray(c)
        return a[:, None] * index.take(mean), (a**2)[:, None, None] * index.take(covariance)
    c = fill(jnp.asarray(c), piece.n)
    rows = Rows(np.repeat(index.positions, c.shape[1]), index.size)
    return through(rows, c, mean[..., None])[..., 0], jnp.einsum("nmd,nkd->nmk", through(rows, c, covariance), c)


def add_rows(
    rows: Rows, features: list[Array], precision: Float[Array, " N"], linear: Float[Array, " N"]
) -> tuple[Float[Array, "B D D"], Float[Array, "B D"]]:
    """`Phi^T Lambda Phi` and `Phi^T h` of every vector."""
    square = [gram(phi, lam) for phi, lam in zip(features, rows.take(precision), strict=True)]
    shift = [jnp.einsum("bnd,bn->bd", phi, h) for phi, h in zip(features, rows.take(linear), strict=True)]
    return rows.scatter(square), rows.scatter(shift)


def row_moments(
    rows: Rows, features: list[Array], chol: Float[Array, "B D D"], mean: Float[Array, "B D"]
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Mean and variance of `phi . w` given Cholesky factors of the precisions of w: `v = |L^-1 phi|^2`."""
    means, variances = [], []
    for block, phi in zip(rows.blocks, features, strict=True):
        means.append(jnp.einsum("bnd,bd->bn", phi, rows.vectors(mean, block)))
        variances.append(_squared_norms(rows.vectors(chol, block), phi))
    return rows.put(means), rows.put(variances)


def _squared_norms(chol: Float[Array, "b D D"], phi: Float[Array, "b n D"]) -> Float[Array, "b n"]:
    """`|L^-1 phi|^2` of every row."""
    if phi.shape[-1] <= WRITTEN_OUT:
        return _written_out(chol, phi)
    cut = slices(phi)
    if cut is None:
        return jnp.sum(whiten_rows(chol, phi) ** 2, -1)
    root = jnp.swapaxes(inverse_factor(chol), -1, -2)[0]

    def some(rows: Float[Array, "c D"]) -> Float[Array, " c"]:
        return jnp.sum((rows @ root) ** 2, -1)

    done = jax.lax.map(lambda at: some(jax.lax.dynamic_slice_in_dim(phi[0], at, cut.rows)), cut.starts)
    return jnp.concatenate([done.reshape(-1), some(phi[0, cut.rest :])])[None]


def _written_out(chol: Float[Array, "b D D"], phi: Float[Array, "b n D"]) -> Float[Array, "b n"]:
    """`|L^-1 phi|^2` by forward substitution, entry by entry: XLA fuses it, and LAPACK's threads do not meet."""
    white: list[Array] = []
    for i in range(phi.shape[-1]):
        done = sum((chol[:, i, k, None] * x for k, x in enumerate(white)), jnp.zeros((), phi.dtype))
        white.append((phi[..., i] - done) / chol[:, i, i, None])
    return sum((x * x for x in white[1:]), white[0] * white[0])


class _FunctionPrior(NamedTuple):
    """The rows that move under the fixed part alone: K and Phi m0 of every block, and the fixed part's integral."""

    covariance: list[Float[Array, "b w w"]]
    mean: list[Float[Array, "b w"]]
    chol: Float[Array, "B D D"]  # of the fixed part
    log_volume: Float[Array, ""]
    jitter: Float[Array, ""]


class Prepared(NamedTuple):
    """What does not change between sweeps."""

    precision: Float[Array, "B D D"]
    linear: Float[Array, "B D"]
    features: list[Float[Array, "b w D"]]  # of the rows that move
    function: _FunctionPrior | None


class Solved(NamedTuple):
    """The posterior of the vectors; `moments` are those of the moving terms, `weights` where the others come from."""

    log_volume: Float[Array, ""]
    proper: Bool[Array, ""]
    jitter: Float[Array, ""]
    marginal: MvGaussian
    mean: Float[Array, "B D"]
    moments: list[tuple[Float[Array, " n"], Float[Array, " n"]]]
    weights: tuple[Float[Array, "B D D"], Float[Array, "B D"]]  # Cholesky factors of the precisions, means


class Vectors(Value):
    """`count` vectors of d entries; see the module docstring.

    Args:
        fixed: terms whose potentials do not move.
        moving: rows whose potentials do.
        anchored: whether the fixed terms are known to be proper without the others.
        sweeps: how often `solve` is called for one `prepare`, roughly.
        space: "weight" or "function" where it is not to be the cheaper one.
    """

    def __init__(
        self, d: int, count: int, fixed: list[Term], moving: list[Term], anchored: bool, sweeps: int = TYPICAL_SWEEPS,
        space: str | None = None,
    ):  # fmt: skip
        self.d, self.count, self.fixed, self.moving = d, count, fixed, moving
        where = [t.index.positions for t in moving]
        self.rows = Rows(np.concatenate(where) if where else np.empty(0, int), count)
        weight, function = self._costs(sweeps)
        wanted = function < weight if space is None else space == "function"
        self.in_function_space = anchored and bool(self.rows.blocks) and wanted
        self.name = "function" if self.in_function_space else "weight"
        largest = max((b.rows.shape[1] for b in self.rows.blocks), default=0) if self.in_function_space else d
        self.alone = largest > WRITTEN_OUT  # as in `GaussianExecutor`: 64 lanes of 64 weights take 0.7 of the time
        self._explain(weight, function, anchored)
        self.why += f", {space} space as asked with executors=" if space else ""

    def _costs(self, sweeps: int) -> tuple[float, float]:
        """Multiply-adds of a sweep in weight and in function space, with a share of what is done once."""
        d, blocks = float(self.d), [b.rows.shape for b in self.rows.blocks]
        weight = self.count * d**3 / 3 + sum(2 * b * w * d**2 for b, w in blocks)
        once = self.count * d**3 / 3 + sum(b * (w * d**2 + w**2 * d) for b, w in blocks)
        return weight, sum(4 / 3 * b * float(w) ** 3 for b, w in blocks) + once / sweeps

    def _explain(self, weight: float, function: float, anchored: bool) -> None:
        d, n = self.d, max((b.rows.shape[1] for b in self.rows.blocks), default=0)
        vectors = f"{self.count} vectors of {d}" if self.count > 1 else f"a vector of {d}"
        each = f"up to {n} functionals each" if self.count > 1 else f"{n} functionals"
        if not n:
            self.why = f"{vectors}, Cholesky in weight space ({d} x {d}), once"
        else:
            chosen = [("weight", d, weight), ("function", n, function)]
            (space, size, cost), (other, _, more) = chosen[:: -1 if self.in_function_space else 1]
            against = f"against {more:.1e} in {other} space"
            if not anchored:
                against = "function space needs a fixed prior of every vector"
            self.why = f"{vectors} seen through {each} that move, Cholesky in {space} space ({size} x {size}): "
            self.why += f"{cost:.1e} operations a sweep, {against}"
        one = f"{n}^3" if self.in_function_space else f"{d}^3" + f" + {n} x {d}^2" * bool(n)
        self.work = f"O({self.count} x ({one}))" if self.count > 1 else f"O({one})"

    def prepare(self, potentials: list[Potential], dtype) -> Prepared:
        """Sum the fixed terms, whose potentials are given, and solve for what stays."""
        precision, linear = jnp.zeros((self.count, self.d, self.d), dtype), jnp.zeros((self.count, self.d), dtype)
        for term, pot in zip(self.fixed, potentials, strict=True):
            square, shift = add_vectors(term, pot)
            precision, linear = precision + square, linear + shift
        every = [t.features() for t in self.moving]
        features = self.rows.take(every[0] if len(every) == 1 else jnp.concatenate(every)) if every else []
        if not self.in_function_space:
            return Prepared(precision, linear, features, None)
        chol, jitter = factor(precision)
        mean, log_volume = _solve(chol, linear)
        covariance, means = [], []
        for block, phi in zip(self.rows.blocks, features, strict=True):
            white = whiten_rows(self.rows.vectors(chol, block), phi)
            covariance.append(jnp.einsum("bnd,bmd->bnm", white, white))
            means.append(jnp.einsum("bnd,bd->bn", phi, self.rows.vectors(mean, block)))
        prior = _FunctionPrior(covariance, means, chol, log_volume, jnp.max(jitter))
        return Prepared(precision, linear, features, prior)

    def solve(self, prepared: Prepared, potentials: list[Potential]) -> Solved:
        """The posterior under the potentials of the moving terms."""
        precision, linear = prepared.precision, prepared.linear
        lam, h = (_joined([p[i] for p in potentials]) for i in (0, 1))
        if self.rows.blocks:
            square, shift = add_rows(self.rows, prepared.features, lam, h)
            precision, linear = precision + square, linear + shift
        # In function space nothing in a sweep needs the D x D matrices: there they are dead code, unless asked for.
        chol, jitter = factor(precision)
        mean, log_volume = _solve(chol, linear)
        weights = chol, mean
        marginal = MvGaussian.from_information(linear, add_jitter(precision, jitter))
        jitter = jnp.max(jitter)
        if prepared.function is not None:
            m, v, log_volume, own, pull = self._function(prepared.function, lam, h)
            jitter = jnp.maximum(jitter, own)
            # P_0 w = h_0 + Phi^T (h - Lambda f): nothing of D^3 is done for it. The difference would be noise where
            # Lambda is large, and then the residuals at this mean, of which a free energy is the sum.
            parts = [jnp.einsum("bnd,bn->bd", phi, x) for phi, x in zip(prepared.features, pull, strict=True)]
            mean, _ = _solve(prepared.function.chol, prepared.linear + self.rows.scatter(parts))
        elif self.rows.blocks:
            m, v = row_moments(self.rows, prepared.features, chol, mean)
        else:
            m = v = jnp.zeros(0, linear.dtype)
        proper = jnp.isfinite(log_volume) & jnp.all(jnp.isfinite(linear))
        cuts = np.cumsum([t.piece.n for t in self.moving])[:-1]
        moments = list(zip(jnp.split(m, cuts), jnp.split(v, cuts), strict=True)) if self.moving else []
        return Solved(log_volume, proper, jitter, marginal, mean, moments, weights)

    def _function(self, prior: _FunctionPrior, lam: Array, h: Array):
        """Moments of the rows, log-volume and jitter, from n x n matrices alone; and `h - Lambda f`, block by block."""
        means, variances, pulls, log_volume, jitter = [], [], [], prior.log_volume, prior.jitter
        blocks = zip(prior.covariance, prior.mean, self.rows.take(lam), self.rows.take(h), strict=True)
        for covariance, centre, p, e in blocks:
            # exp{h f - p f^2 / 2} at f = centre + g
            found = function_space(covariance, p, e - p * centre)
            means.append(centre + found.mean)
            variances.append(found.variance)
            pulls.append(found.pull)
            log_volume += jnp.sum(found.log_volume)
            jitter = jnp.maximum(jitter, jnp.max(found.jitter))
        return self.rows.put(means), self.rows.put(variances), log_volume, jitter, pulls

    def fixed_moments(self, solved: Solved, term: Term) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and variance of the rows of a fixed term; a prediction asks for them, a sweep does not."""
        rows = Rows(term.index.positions, self.count)
        return row_moments(rows, rows.take(term.features()), *solved.weights)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts) if parts else jnp.zeros(0)


def _solve(chol: Float[Array, "B D D"], linear: Float[Array, "B D"]) -> tuple[Float[Array, "B D"], Float[Array, ""]]:
    """Means of `exp{linear . w - w^T L L^T w / 2}` and its log-integral without the linear part."""
    mean = unwhiten(chol, whiten(chol, linear[..., None]))[..., 0]
    diagonal = jnp.diagonal(chol, axis1=-2, axis2=-1)
    return mean, jnp.sum(0.5 * LOG_2PI - jnp.log(diagonal))
