r"""Structured precisions: `MvNormal(mean, precision=tau * R)` with a known R of any rank.

With $R = L^T L$ and k rows in L, $p(x) \propto \tau^{k/2} e^{-\tau |L(x - m)|^2 / 2}$ is k normal factors, one for each
row: the rank is counted right in the evidence and in what is learned of tau; nothing is inverted. Where R is singular
(random walks, ICAR) the prior is flat along its null space. Conditions `A x = 0` are kept exactly: x is then `B u`, B
an orthonormal basis of their solutions.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import ContentsError, Problem
from .inputs import Input, unwrap

_SMALL = 1e-9  # of the largest eigenvalue: what is below is zero


class Structure:
    """A known matrix `R = rows^T rows`, and the logarithm of the product of its positive eigenvalues."""

    __array_ufunc__ = None

    def __init__(self, rows: Any, log_det: Any, name: str = "structure"):
        self.rows, self.log_det, self.name = rows, log_det, name

    @property
    def rank(self) -> int:
        return self.rows.shape[0]

    @property
    def size(self) -> int:
        return self.rows.shape[1]

    @property
    def matrix(self) -> Any:
        """R itself."""
        return self.rows.T @ self.rows

    def times(self, c: Any) -> "Structure":
        """`c R`, of a positive constant."""
        return Structure(self.rows * np.sqrt(c), self.log_det + self.rank * np.log(c), self.name)

    def __mul__(self, tau: Any) -> "Scaled":
        return Scaled(tau, self)

    __rmul__ = __mul__

    def __truediv__(self, c: Any) -> "Scaled":
        return Scaled(1.0 / c, self)

    def __repr__(self) -> str:
        return f"{self.name} of size {self.size} and rank {self.rank}"


class Scaled:
    """`tau * R`."""

    __array_ufunc__ = None

    def __init__(self, tau: Any, structure: Structure):
        self.tau, self.structure = tau, structure

    def __mul__(self, c: Any) -> "Scaled":
        return Scaled(self.tau * c, self.structure)

    __rmul__ = __mul__

    def __truediv__(self, c: Any) -> "Scaled":
        return Scaled(self.tau / c, self.structure)

    def __repr__(self) -> str:
        return f"tau * {self.structure!r}"


def _contents(x: Any, what: str) -> Any:
    """What is in an array; of an input of the model, by a specialisation for it, which an eager call makes."""
    if isinstance(unwrap(x), Tracer):
        works = "an eager call compiles for its contents; under jit and vmap make the structure before, of NumPy arrays"
        place = x.place if isinstance(x, Input) and not x.index else None
        problem = Problem(None, None, f"{what} is traced, and which rows it has depends on its contents", works)
        raise ContentsError(problem, () if place is None else (place,))
    return np.asarray(unwrap(x))


def _dense(matrix: Any, what: str) -> np.ndarray:
    """A square matrix of numbers, of NumPy or sparse as SciPy has it."""
    matrix = matrix.toarray() if is_sparse(matrix) else _contents(matrix, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiub":
        raise ValueError(f"{what} must be a square matrix of numbers; got shape {matrix.shape}, dtype {matrix.dtype}")
    matrix = matrix.astype(float)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{what} has entries that are not finite")
    off = np.abs(matrix - matrix.T) > 1e-8 * max(np.abs(matrix).max(), 1e-300)
    if off.any():
        i, j = np.argwhere(off)[0]
        pair = f"entries [{i}, {j}] and [{j}, {i}] are {matrix[i, j]}, {matrix[j, i]}"
        raise ValueError(f"{what} is not symmetric: {pair}")
    return matrix


def is_sparse(matrix: Any) -> bool:
    return not isinstance(matrix, Input) and hasattr(matrix, "toarray")


def structure(R: Any) -> Structure:
    """Any symmetric positive semi-definite matrix, dense or sparse, as a structure of its rank."""
    matrix = _dense(R, "the structure R of a precision")
    values, vectors = np.linalg.eigh(matrix)
    most = max(values[-1], 0.0)
    if values[0] < -1e-7 * most or most == 0.0:
        what = f"it has the eigenvalue {values[0]}"
        raise ValueError(f"the structure R of a precision must be positive semi-definite; {what}")
    keep = values > _SMALL * most
    return Structure(np.sqrt(values[keep])[:, None] * vectors[:, keep].T, float(np.log(values[keep]).sum()))


def _from_rows(rows: np.ndarray, name: str) -> Structure:
    values = np.linalg.eigvalsh(rows @ rows.T)
    return Structure(rows, float(np.log(values).sum()), name)


def _times(times: Any, least: int, name: str) -> np.ndarray:
    known = np.arange(int(times)) if np.ndim(times) == 0 else _contents(times, f"the array of times of {name}")
    if known.ndim != 1 or len(known) < least or (np.diff(known) <= 0).any():
        raise ValueError(f"{name} takes a number of at least {least} steps, or as many increasing times")
    return known.astype(float)


def rw1(times: Any) -> Structure:
    """A random walk over n steps, or over increasing times: `x_{k+1} - x_k` has variance `(t_{k+1} - t_k) / tau`."""
    t = _times(times, 2, "rw1")
    rows = np.diff(np.eye(len(t)), axis=0) / np.sqrt(np.diff(t))[:, None]
    return _from_rows(rows, "rw1")


def rw2(times: Any) -> Structure:
    """A random walk of order two: changes of slope `(x_{k+1} - x_k)/h_k - (x_k - x_{k-1})/h_{k-1}` have variance
    `(h_k + h_{k-1}) / (2 tau)`; over n steps, second differences have variance 1/tau."""
    t = _times(times, 3, "rw2")
    h = np.diff(t)
    slopes = np.diff(np.eye(len(t)), axis=0) / h[:, None]
    return _from_rows(np.diff(slopes, axis=0) / np.sqrt(0.5 * (h[1:] + h[:-1]))[:, None], "rw2")


def seasonal(n: int, period: int) -> Structure:
    """Sums over every `period` steps in a row have variance 1/tau."""
    if not 1 < period <= n:
        raise ValueError(f"seasonal was given n={n} and period={period}; give 1 < period <= n")
    return _from_rows(np.stack([np.eye(n)[k : k + period].sum(0) for k in range(n - period + 1)]), "seasonal")


def _laplacian(adjacency: Any) -> tuple[np.ndarray, np.ndarray]:
    """The matrix W of neighbours and their numbers."""
    w = _dense(adjacency, "the adjacency matrix")
    if (w < 0).any() or np.diagonal(w).any():
        raise ValueError("the adjacency matrix has weights of at least zero, and zeros on its diagonal")
    d = w.sum(1)
    if (d == 0).any():
        raise ValueError(f"the adjacency matrix: area {int(np.argmin(d > 0))} has no neighbours; leave it out")
    return w, d


def icar(adjacency: Any) -> Structure:
    """The intrinsic autoregression over a map: `R = D - W`; of rank n less the number of its connected parts."""
    w, d = _laplacian(adjacency)
    out = structure(np.diag(d) - w)
    return Structure(out.rows, out.log_det, "icar")


def car(adjacency: Any, rho: Any) -> Structure:
    """The proper autoregression: `R = D - rho W`, with |rho| < 1, a number, also an integrated one."""
    w, d = _laplacian(adjacency)
    root = np.sqrt(d)
    values, vectors = np.linalg.eigh(w / root[:, None] / root)
    left = 1.0 - unwrap(rho) * values
    rows = jnp.sqrt(left)[:, None] * (vectors.T * root)
    return Structure(rows, jnp.sum(jnp.log(left)) + 2.0 * np.log(root).sum(), "car")


def leroux(adjacency: Any, rho: Any) -> Structure:
    """Between independence and ICAR: `R = rho (D - W) + (1 - rho) I`, with 0 <= rho < 1."""
    w, d = _laplacian(adjacency)
    values, vectors = np.linalg.eigh(np.diag(d) - w)
    mixed = unwrap(rho) * values + (1.0 - unwrap(rho))
    return Structure(jnp.sqrt(mixed)[:, None] * vectors.T, jnp.sum(jnp.log(mixed)), "leroux")


def solutions(constraint: Any, size: int) -> np.ndarray:
    """An orthonormal basis (size, k) of what satisfies `A x = 0`; "sum" and True stand for a row of ones."""
    plain = constraint is True or isinstance(constraint, str)
    rows = np.ones((1, size)) if plain else np.atleast_2d(unwrap(constraint))
    if isinstance(constraint, str) and constraint != "sum" or rows.shape[1] != size:
        works = f"give 'sum', or rows of length {size} whose products with x are zero"
        raise ValueError(f"constraint={constraint!r}: {works}")
    _, values, vectors = np.linalg.svd(np.asarray(rows, float))
    rank = int((values > 1e-10 * values[0]).sum())
    return vectors[rank:].T
