r"""The stationarity certificate: what a program reports as a fixed point is one, by quadratures of its own.

At the leaves a program ends with, the interpreter recomputes every projected message on dense grids and checks

- $\eta = \eta^*$ on every projected interface, and that the marginals are the sums of the recomputed messages;
- that the free energy, cavities held fixed, has no slope in any direction of the leaves;
- that away from a fixed point its slope in the mean parameters is $\eta - \eta^*$, as stated.
"""

import numpy as np
import pytest
from scipy.special import logsumexp

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler.declare.sample import trace
from tests.oracle.compare import assert_marginals
from tests.oracle.grids import grid, mean_parameters
from tests.oracle.interpreter import Interpreter, Leaves, family, leaves_of

RNG = np.random.default_rng(0)
FEATURES = np.c_[np.ones(5), RNG.normal(size=(5, 2))]
LINE, NOISE = np.c_[np.ones(10), np.linspace(-1, 1, 10)], np.random.default_rng(5).normal(size=10)
SEEN = np.array([True, True, False, True, True])
Y = RNG.normal(size=5)
TOL = 1e-7  # of the default rule, 32 Gauss-Hermite nodes: 2e-8 on a logit with a standard deviation of 1.7
CASES = {
    "poisson chain": (ngmp_models.poisson_chain, {"y": np.array([0, 3, 1, 6, 0]), "mask": SEEN}),
    "poisson chain, as a loop": (ngmp_models.poisson_chain_loop, {"y": np.array([2, 3, 1])}),
    "mean and precision": (ngmp_models.mean_precision, {"y": Y}),
    "logistic regression": (ngmp_models.logistic_regression, {"features": FEATURES, "y": (Y > 0).astype(int)}),
    "heteroscedastic": (ngmp_models.heteroscedastic, {"phi": LINE, "psi": np.ones((10, 1)), "y": NOISE}),
    "stochastic volatility": (ngmp_models.stochastic_volatility, {"r": Y}),
    "local level": (ngmp_models.local_level, {"y": Y, "mask": SEEN}),
}


class Certificate:
    """The stated free energy as a function of the leaves alone, with the cavities, hence the messages, held fixed."""

    def __init__(self, interpreter: Interpreter, leaves: Leaves):
        self.interpreter, self.leaves = interpreter, leaves
        core = interpreter.core(leaves)
        self.cavities = {a: interpreter.cavities(a, core, leaves) for a in interpreter.projected}
        self.evidence = 0.0  # a constant: it depends on cavities only
        for a, f in interpreter.projected.items():
            if len(f.interfaces) > 1:
                z, w = grid(family(f.interfaces[0]), self.cavities[a][0], interpreter.points)
                local = logsumexp(interpreter.log_message(a, 0, z, self.cavities[a]), b=w)
                self.evidence += (len(f.interfaces) - 1) * local

    def means(self, leaves: Leaves) -> Leaves:
        core = self.interpreter.core(leaves)
        return {(a, j): mean_parameters(family(i), self.interpreter.marginal(core, i))
                for a, f in self.interpreter.projected.items() for j, i in enumerate(f.interfaces)}  # fmt: skip

    def free_energy(self, leaves: Leaves) -> float:
        core = self.interpreter.core(leaves)
        total = self.evidence - core.log_partition
        for a, f in self.interpreter.projected.items():
            for j, interface in enumerate(f.interfaces):
                q = self.interpreter.marginal(core, interface)
                z, w = grid(family(interface), q, self.interpreter.points)
                total -= w @ self.interpreter.log_message(a, j, z, self.cavities[a])
                total += leaves[a, j] @ mean_parameters(family(interface), q)
        return float(total)

    def slope(self, direction: Leaves, h: float = 1e-4) -> float:
        """Central difference, fourth order."""

        def at(t: float) -> float:
            return self.free_energy({k: eta + t * direction[k] for k, eta in self.leaves.items()})

        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)

    def slope_of_means(self, direction: Leaves, h: float = 1e-4) -> Leaves:
        up, down = (self.means({k: eta + t * direction[k] for k, eta in self.leaves.items()}) for t in (h, -h))
        return {k: (up[k] - down[k]) / (2 * h) for k in up}


def _directions(leaves: Leaves, count: int) -> list[Leaves]:
    rng = np.random.default_rng(1)
    return [{k: rng.normal(size=eta.shape) * (0.1 + np.abs(eta)) for k, eta in leaves.items()} for _ in range(count)]


@pytest.mark.parametrize(("model", "inputs"), CASES.values(), ids=CASES)
def test_certificate(model, inputs):
    post = ngmp.compile(model, tol=1e-10)(**inputs)
    assert post.converged, post.reason
    interpreter = Interpreter(trace(model, inputs))
    leaves = leaves_of(post, interpreter)
    target = interpreter.targets(leaves)
    for key, eta in leaves.items():
        error = np.abs(target[key] - eta).max() / (1 + np.abs(eta).max())
        assert error < TOL, f"{interpreter.names[key[0]]}, interface {key[1]}: {eta} is not {target[key]}"
    assert_marginals(post, interpreter.summary(interpreter.core(target)), TOL)
    np.testing.assert_allclose(post.free_energy, interpreter.free_energy(leaves), rtol=TOL)

    certificate = Certificate(interpreter, leaves)
    np.testing.assert_allclose(certificate.free_energy(leaves), post.free_energy, rtol=TOL)
    for direction in _directions(leaves, 3):
        assert abs(certificate.slope(direction)) < TOL

    # Away from the fixed point the slope is what the docstring of `emit.map` says: (eta - eta*) . d mu.
    for direction in _directions(leaves, 1) if leaves else []:
        moved = {k: eta + 0.05 * direction[k] for k, eta in leaves.items()}
        certificate, target = Certificate(interpreter, moved), interpreter.targets(moved)
        change = certificate.slope_of_means(direction)
        expected = sum((moved[k] - target[k]) @ change[k] for k in moved)
        assert abs(expected) > 1e-5  # or the check would say nothing
        np.testing.assert_allclose(certificate.slope(direction), expected, rtol=1e-5)


def test_certificate_on_a_series():
    """A whole data set with the default settings: 112 factors, each one checked."""
    y = ngmp_models.coal_disasters().counts
    inputs = {"y": np.asarray(y), "sigma2": 0.02}
    post = ngmp.compile(ngmp_models.poisson_chain)(**inputs)
    assert post.converged
    interpreter = Interpreter(trace(ngmp_models.poisson_chain, inputs))
    leaves = leaves_of(post, interpreter)
    target = interpreter.targets(leaves)
    error = max(np.abs(target[k] - eta).max() for k, eta in leaves.items())
    assert error < 1e-6 * max(np.abs(eta).max() for eta in leaves.values())
    assert_marginals(post, interpreter.summary(interpreter.core(target)), 1e-6)
    np.testing.assert_allclose(post.free_energy, interpreter.free_energy(leaves), rtol=1e-10)


def test_conjugate_graphs_have_no_leaves():
    post = ngmp.compile(ngmp_models.local_level)(y=Y)
    assert post.state.leaves == {} and post.sweeps == 1 and post.residual == 0
