"""An executor from outside: one file, nothing of the package is edited."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler.executors import GaussianExecutor, Solution, offset, potential
from ngmp_kernels.families import Gaussian

Y = np.array([2.0, 0.0, 3.0, 5.0, 1.0, 4.0])


class PlainDense(GaussianExecutor):
    """Scalars of one plane by the inverse of their joint precision: `Lambda = sum_n lambda_n a_n a_n^T`."""

    name = "plain dense"

    @classmethod
    def misfit(cls, part):
        if part.lone or part.has_vectors or len(part.planes) > 1:
            return "it takes coupled scalars"
        return None if part.dimensions <= 50 else "it takes at most 50 of them"

    @classmethod
    def cost(cls, part):
        return 0.0

    @classmethod
    def alike(cls, part):
        return part.number

    @classmethod
    def build(cls, parts):
        (part,) = parts
        return [cls(part.planes, part.core.pieces(part.nodes))]

    def __init__(self, planes, pieces):
        ((self.plane, self.positions),) = planes.items()
        self.pieces, n = pieces, len(self.positions)
        self.why, self.work = f"{n} scalars as one matrix, from outside", f"O({n}^3)"

    def _rows(self, piece, dtype):
        """The functional of every row as a vector, (rows, n)."""
        rows = jnp.zeros((piece.n, len(self.positions)), dtype)
        for link in piece.links:
            at = np.searchsorted(self.positions, link.positions)
            a = 1.0 if link.coefficient is None else link.coefficient
            rows = rows.at[jnp.arange(piece.n), at].add(jnp.broadcast_to(a, (piece.n,)))
        return rows

    def solve(self, prepared, leaves, requested):
        dtype, precision, linear, rows = leaves[self.pieces[0].functional].dtype, 0.0, 0.0, {}
        for i, piece in enumerate(self.pieces):
            lam, h = potential(piece, leaves)
            rows[i] = self._rows(piece, dtype)
            precision += rows[i].T @ (lam[:, None] * rows[i])
            linear += rows[i].T @ h
        covariance = jnp.linalg.inv(precision)
        mean, variance = covariance @ linear, jnp.diagonal(covariance)
        functionals = {}
        for i, piece in enumerate(self.pieces):
            if piece.functional in requested:
                spread = jnp.sum((rows[i] @ covariance) * rows[i], 1)
                functionals[piece.functional] = (piece.rows, rows[i] @ mean + offset(piece, leaves), spread)
        sign, log_det = jnp.linalg.slogdet(2 * jnp.pi * covariance)
        marginals = {self.plane: (self.positions, Gaussian.from_mean_variance(mean, variance))}
        means = {self.plane: (self.positions, mean)}
        return Solution(0.5 * log_det, sign > 0, marginals, functionals, means=means)


@pytest.fixture
def registered():
    ngmp.executors.register(PlainDense)
    yield
    ngmp.executors.unregister(PlainDense)


def test_it_solves_a_chain_as_ours_do(registered):
    program = ngmp.compile(ngmp_models.poisson_chain, tol=1e-11)
    post, expected = program(y=Y), ngmp.compile(ngmp_models.poisson_chain, executors={"z": "chain"}, tol=1e-11)(y=Y)
    assert "  plain dense: 7 scalars as one matrix, from outside; O(7^3) a sweep" in program.lower(y=Y).describe()
    np.testing.assert_allclose(post["z"].mean, expected["z"].mean, atol=1e-9)
    np.testing.assert_allclose(post["z"].variance, expected["z"].variance, rtol=1e-8)
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=1e-9)


def test_it_appears_wherever_executors_do(registered):
    program = ngmp.compile(ngmp_models.poisson_chain, executors={"z": "chain"})
    assert "plain dense, tree, dense, banded would do too" in program.lower(y=Y).describe()
    assert "plain dense" in ngmp.compile(ngmp_models.poisson_chain).lower(y=Y).draw()
    with pytest.raises(ngmp.ModelError, match="executors of Gaussian variables are plain dense, independent, chain"):
        ngmp.compile(ngmp_models.poisson_chain, executors={"z": "magic"}).lower(y=Y)
    with pytest.raises(ngmp.ModelError, match="it takes at most 50 of them"):
        ngmp.compile(ngmp_models.poisson_chain, executors={"z": "plain dense"}).lower(y=np.ones(60))
    assert "  chain:" in ngmp.compile(ngmp_models.poisson_chain).lower(y=np.ones(60)).describe()


def test_it_is_tried_where_it_stands():
    ngmp.executors.register(PlainDense, before="dense")
    try:
        program = ngmp.compile(ngmp_models.poisson_chain)
        assert "  chain:" in program.lower(y=Y).describe()
    finally:
        ngmp.executors.unregister(PlainDense)
    with pytest.raises(ngmp.ModelError, match="asks for 'plain dense'"):
        ngmp.compile(ngmp_models.poisson_chain, executors={"z": "plain dense"}).lower(y=Y)


def test_what_lacks_a_method_is_refused():
    class Half(GaussianExecutor):
        @classmethod
        def misfit(cls, part):
            return None

    with pytest.raises(TypeError, match="Half lacks name, cost, build, solve"):
        ngmp.executors.register(Half)
    with pytest.raises(TypeError, match="no executor: derive it from"):
        ngmp.executors.register(object)


def test_double_names_are_refused(registered):
    with pytest.raises(ValueError, match="named 'plain dense' already"):
        ngmp.executors.register(type("Again", (PlainDense,), {}))
    for name in ("chain", "sums"):
        with pytest.raises(ValueError, match=f"named '{name}' already"):
            ngmp.executors.register(type("Other", (PlainDense,), {"name": name}))
    with pytest.raises(ValueError, match="before='nobody' names no executor"):
        ngmp.executors.register(type("Third", (PlainDense,), {"name": "third"}), before="nobody")
