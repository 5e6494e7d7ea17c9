"""Random data and priors of the reliability campaign, ordinary and extreme.

Every problem has a seed and a generator of its own, so that it can be drawn again alone. Numbers are rounded to
float32 and given in float64: both precisions, and the reference, see the very same problem.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Numbers = Any  # an array or a number of numpy


class Draw:
    """Draws of one problem. One problem in five is an extreme corner: every range is then at its widest."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng([2026, seed])
        self.corner = seed % 5 == 4

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def log_uniform(self, low: float, high: float, *shape: int) -> Numbers:
        """`10^u` with u between `low` and `high`."""
        return 10.0 ** self.rng.uniform(low, high, shape)

    # -- priors -------------------------------------------------------------------------------------------------------

    def variance(self, *shape: int) -> Numbers:
        """Of a prior: 0.01 to 100; in a corner 1e-4 to 1e6."""
        return self.log_uniform(-4, 6, *shape) if self.corner else self.log_uniform(-2, 2, *shape)

    def centre(self, reach: float = 1e4) -> Numbers:
        """Mean of a prior: about zero; in a corner as far off as `reach`."""
        if self.corner:
            return self.rng.choice([-1.0, 1.0]) * min(self.log_uniform(-1, np.log10(reach)), reach)
        return 2.0 * self.rng.standard_normal()

    def log_centre(self) -> Numbers:
        """Mean of the prior of a logarithm or logit."""
        return self.centre(20.0)

    def noise(self) -> Numbers:
        """A variance of noise or of steps: tiny to huge."""
        return self.log_uniform(-6, 6) if self.corner else self.log_uniform(-2, 1)

    def gamma(self) -> tuple[Numbers, Numbers]:
        """Shape and rate of the prior of a precision: vague (0.01) to sharp (100)."""
        shape = self.log_uniform(-2, 2) if self.corner else self.log_uniform(-0.3, 1)
        return shape, shape * (self.log_uniform(-4, 4) if self.corner else self.log_uniform(-1, 1))

    # -- data ---------------------------------------------------------------------------------------------------------

    def mask(self, *shape: int) -> np.ndarray:
        """Everything is seen, or most of it; in a corner also nothing, or one."""
        kind = self.pick("all", "most", "none", "one") if self.corner else self.pick("all", "most")
        some = self.rng.random(shape) < (0.7 if kind == "most" else 0.0)
        if kind == "one":
            some.flat[self.rng.integers(some.size)] = True
        return np.ones(shape, bool) if kind == "all" else some

    def reals(self, *shape: int) -> np.ndarray:
        """Normal data; in a corner far off, equal, all zero, tiny, huge, or with an outlier of 1e6 deviations."""
        x = self.rng.standard_normal() + self.rng.standard_normal(shape)
        if not self.corner:
            return x * self.log_uniform(-0.5, 0.5)
        kind = self.pick("offset", "equal", "zero", "tiny", "huge", "outlier", "plain")
        if kind == "offset":
            return x + self.centre(1e5)
        if kind == "outlier":
            x.flat[self.rng.integers(x.size)] = self.pick(-1, 1) * self.log_uniform(2, 6)
        return {"equal": np.full(shape, 3.7), "zero": np.zeros(shape), "tiny": 1e-4 * x, "huge": 1e4 * x}.get(kind, x)

    def walk(self, n: int) -> np.ndarray:
        """Data that drift; in a corner as `reals`."""
        return self.reals(n) if self.corner else np.cumsum(self.log_uniform(-1, 0) * self.rng.standard_normal(n))

    def counts(self, *shape: int) -> np.ndarray:
        """Of rates around `e^f`; in a corner all zero, equal, up to 1e8, or one huge among small ones."""
        x = self.rng.poisson(np.exp(self.rng.normal(0.5, 1.0) + self.rng.standard_normal(shape))).astype(float)
        if not self.corner:
            return x
        kind = self.pick("zero", "equal", "huge", "mixed", "one", "plain")
        if kind == "one":
            x.flat[self.rng.integers(x.size)] = np.round(self.log_uniform(3, 8))
        huge, mixed = np.round(self.log_uniform(7, 8, *shape)), np.round(self.log_uniform(-1, 8, *shape))
        return {"zero": 0 * x, "equal": np.full(shape, 7.0), "huge": huge, "mixed": mixed}.get(kind, x)

    def positives(self, *shape: int) -> np.ndarray:
        """Log-normal; in a corner from 1e-6 to 1e6, or all equal."""
        if self.corner:
            return self.pick(self.log_uniform(-6, 6, *shape), np.full(shape, 2.5), self.log_uniform(-1, 1, *shape))
        return np.exp(self.rng.standard_normal() + self.rng.standard_normal(shape))

    def classes(self, *shape: int) -> np.ndarray:
        """Zeros and ones; in a corner also all of one kind, or sorted (separable along a regressor)."""
        x = (self.rng.random(shape) < self.rng.uniform(0.1, 0.9)).astype(float)
        return self.pick(0 * x, 0 * x + 1, np.sort(x, 0), x) if self.corner else x

    def trials(self, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of trials and of hits; in a corner up to 1e6 trials, with none, one or all hits."""
        n = np.ceil(self.log_uniform(0, 6 if self.corner else 1.5, *shape))
        hits = np.floor((n + 1) * self.rng.random(shape))
        return n, self.pick(0 * n, n, np.minimum(n, 1), hits, np.round(1e-3 * n)) if self.corner else hits

    def labels(self, k: int, *shape: int) -> np.ndarray:
        """Integers below k; in a corner also all the same."""
        x = self.rng.integers(0, k, shape)
        return self.pick(0 * x, x) if self.corner else x

    def simplex(self, *shape: int) -> np.ndarray:
        """Rows of probabilities; in a corner nearly zero and one."""
        rows = self.rng.dirichlet(np.full(shape[-1], 0.05 if self.corner else 1.0), shape[:-1])
        # Multiples of 2^-20, so that they add up to one in float32 as well.
        rows = np.floor(2.0**20 * (0.999 * rows + 0.001 / shape[-1]))
        rows[..., -1] += 2.0**20 - rows.sum(-1)
        return rows / 2.0**20

    def design(self, n: int, d: int) -> np.ndarray:
        """An intercept and regressors; rows or a column of zeros, copied columns, or of other scales, in a corner."""
        x = np.column_stack([np.ones(n), self.rng.standard_normal((n, d - 1))])
        kinds = ("rows", "column", "copy", "scale", "sorted", "plain") if self.corner else ("plain", "row")
        kind = self.pick(*kinds)
        if kind in ("row", "rows"):
            x[self.rng.random(n) < (0.1 if kind == "row" else 0.5)] = 0.0
        if kind == "column":
            x[:, -1] = 0.0
        if kind == "copy":
            x[:, -1] = x[:, 1]
        if kind == "scale":
            x[:, -1] *= self.log_uniform(-3, 2)
        return x[np.argsort(x[:, 1])] if kind == "sorted" else x


class Template(NamedTuple):
    """A model, how to draw its inputs, and the options of `compile`."""

    model: Callable
    draw: Callable[[Draw], dict[str, Any]]
    options: dict[str, Any] = {}


def rounded(inputs: dict[str, Any]) -> dict[str, Any]:
    """Floating numbers rounded to float32, kept in float64."""

    def one(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return x.astype(np.float32).astype(np.float64) if x.dtype.kind == "f" else x

    return jax.tree.map(one, inputs)
