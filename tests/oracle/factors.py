"""What a single declared factor is: Gaussian, conjugate to one variable, a table, a constant, or none of these.

The densities are written out again from the textbook; nothing is taken from the kernels under test.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from .elements import Cell, Element, ExpOf, Interface, Linear, TakeOf, minus, times, vectorised

LOG_2PI = np.log(2 * np.pi)


class Noise(NamedTuple):
    """`N(residual; 0, precision^{-1})` of a linear expression."""

    residual: Linear
    precision: np.ndarray


class Conjugate(NamedTuple):
    """`log f(z) = eta . T(z) + log_scale` of one variable."""

    cell: Cell
    eta: np.ndarray
    log_scale: float


class Pair(NamedTuple):
    """`f(z, out) = exp(table[z, out])` of two categorical variables."""

    left: Cell
    right: Cell
    table: np.ndarray


class Constant(NamedTuple):
    value: float


class Projected(NamedTuple):
    """Any other factor: `log_density(z_1, ..., z_d)` on arrays that broadcast."""

    interfaces: tuple[Interface, ...]
    log_density: Callable[..., np.ndarray]


class Node(NamedTuple):
    """`out = g(x)` of two linear expressions."""

    interfaces: tuple[Interface, ...]
    function: Callable[..., np.ndarray]


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _constant(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic | float | int)


def _product(out: Any, mean: Any, left: Any, right: Any, name: str, value: Any) -> Projected:
    """`N(out; left * right + mean, 1/tau)`; what is known is no interface."""
    residual = minus(out, mean)
    known = {} if isinstance(value, Cell) else {"tau": {"precision": 1.0, "variance": -1.0, "std": -2.0}[name]}
    known = {k: value**power for k, power in known.items()} | ({"r": residual} if _constant(residual) else {})
    every = {"r": residual, "a": left, "b": right, "tau": value}
    free = [k for k in every if k not in known]

    def log_density(*z: Any) -> Any:
        v = known | dict(zip(free, z, strict=True))
        return 0.5 * np.log(v["tau"]) - 0.5 * LOG_2PI - 0.5 * v["tau"] * (v["r"] - v["a"] * v["b"]) ** 2

    return Projected(tuple(every[k] for k in free), log_density)


def _normal(out: Any, mean: Any, left: Any = None, right: Any = None, **scale: Any) -> Any:
    ((name, value),) = scale.items()
    if left is not None:
        return _product(out, mean, left, right, name, value)
    residual = minus(out, mean)
    if isinstance(value, Cell):
        if _constant(residual):
            return Conjugate(value, np.array([0.5, -0.5 * residual**2]), -0.5 * LOG_2PI)
        return Projected((residual, value), lambda r, t: 0.5 * np.log(t) - 0.5 * LOG_2PI - 0.5 * t * r**2)
    if isinstance(value, ExpOf):
        s = times(value.inner, {"precision": 1.0, "variance": -1.0, "std": -2.0}[name])

        def log_density(r: Any, s: Any) -> Any:
            return 0.5 * s - 0.5 * LOG_2PI - 0.5 * r**2 * np.exp(s)

        if _constant(residual):
            return Projected((s,), lambda s: log_density(residual, s))
        return Projected((residual, s), log_density)
    precision = {"precision": lambda v: v, "variance": lambda v: 1 / v, "std": lambda v: v**-2.0}[name](value)
    if _constant(residual):
        return Constant(0.5 * np.log(precision) - 0.5 * LOG_2PI - 0.5 * precision * residual**2)
    return Noise(residual, np.array([[float(precision)]]))


def _mv_normal(out: Any, mean: Any, **scale: Any) -> Any:
    ((name, value),) = scale.items()
    residual = minus(out, mean)
    d = len(residual) if _constant(residual) else len(residual.offset)
    matrix = value * np.eye(d) if value.ndim < 2 else value  # a scalar or a diagonal
    precision = matrix if name == "precision" else np.linalg.inv(matrix)
    if _constant(residual):
        half_log_det = 0.5 * np.linalg.slogdet(precision)[1]
        return Constant(half_log_det - 0.5 * d * LOG_2PI - 0.5 * residual @ precision @ residual)
    return Noise(residual, precision)


def _gamma(out: Any, concentration: Any, rate: Any = None, scale: Any = None) -> Any:
    rate = 1 / scale if rate is None else rate
    log_scale = concentration * np.log(rate) - gammaln(concentration)
    if _constant(out):
        return Constant(log_scale + (concentration - 1) * np.log(out) - rate * out)
    return Conjugate(out, np.array([concentration - 1, -rate]), log_scale)


def _beta(out: Any, a: Any, b: Any) -> Any:
    log_scale = gammaln(a + b) - gammaln(a) - gammaln(b)
    if _constant(out):
        return Constant(log_scale + (a - 1) * np.log(out) + (b - 1) * np.log1p(-out))
    return Conjugate(out, np.array([a - 1, b - 1]), log_scale)


def _dirichlet(out: Any, concentration: Any) -> Any:
    log_scale = gammaln(concentration.sum()) - gammaln(concentration).sum()
    if _constant(out):
        return Constant(log_scale + (concentration - 1) @ np.log(out))
    return Conjugate(out, concentration - 1, log_scale)


def _poisson(out: Any, rate: Any) -> Any:
    scale = -gammaln(out + 1.0)
    if isinstance(rate, Cell):
        return Conjugate(rate, np.array([out, -1.0]), scale)
    if isinstance(rate, ExpOf):
        return Projected((rate.inner,), lambda z: out * z - np.exp(z) + scale)
    return Constant(out * np.log(rate) - rate + scale)


def _binomial(out: Any, n: Any = 1.0, probs: Any = None, logits: Any = None) -> Any:
    scale = gammaln(n + 1.0) - gammaln(out + 1.0) - gammaln(n - out + 1.0)
    if isinstance(probs, Cell):
        return Conjugate(probs, np.array([out, n - out], float), scale)
    if isinstance(logits, Linear):
        return Projected((logits,), lambda z: scale - out * _softplus(-z) - (n - out) * _softplus(z))
    logits = np.log(probs) - np.log1p(-probs) if logits is None else logits
    return Constant(scale - out * _softplus(-logits) - (n - out) * _softplus(logits))


def _bernoulli(out: Any, probs: Any = None, logits: Any = None) -> Any:
    if isinstance(out, Cell):
        logits = np.log(probs) - np.log1p(-probs) if logits is None else logits
        return Conjugate(out, np.array([logits]), -_softplus(logits))
    return _binomial(out, 1.0, probs, logits)


def _categorical(out: Any, probs: Any = None, logits: Any = None) -> Any:
    given = probs if logits is None else logits
    if isinstance(given, Cell):  # Dirichlet
        return Conjugate(given, np.eye(given.plane.event_shape[0])[int(out)], 0.0)
    table = given.table if isinstance(given, TakeOf) else given
    log_probs = np.log(table) if logits is None else table - np.logaddexp.reduce(table, -1, keepdims=True)
    if isinstance(given, TakeOf):
        if isinstance(out, Cell):
            return Pair(given.index, out, log_probs)
        return Conjugate(given.index, log_probs[:, int(out)], 0.0)
    return Conjugate(out, log_probs, 0.0) if isinstance(out, Cell) else Constant(log_probs[int(out)])


def _negative_binomial(out: Any, mean: Any, dispersion: Any) -> Any:
    scale = gammaln(out + dispersion) - gammaln(dispersion) - gammaln(out + 1.0)

    def log_density(z: Any) -> Any:
        log_total = np.logaddexp(z, np.log(dispersion))
        return scale + out * (z - log_total) + dispersion * (np.log(dispersion) - log_total)

    return Projected((mean.inner,), log_density) if isinstance(mean, ExpOf) else Constant(log_density(np.log(mean)))


def _student_t(out: Any, df: Any, mean: Any, scale: Any) -> Any:
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)

    def log_density(r: Any) -> Any:
        return constant - (df + 1) / 2 * np.log1p((r / scale) ** 2 / df)

    residual = minus(out, mean)
    return Constant(log_density(residual)) if _constant(residual) else Projected((residual,), log_density)


def _generic(log_density: Callable, arguments: list[Any]) -> Projected:
    f = vectorised(log_density)
    variables = [i for i, a in enumerate(arguments) if not _constant(a)]

    def call(*z: np.ndarray) -> np.ndarray:
        values = list(arguments)
        for i, x in zip(variables, z, strict=True):
            values[i] = x
        return f(*values)

    return Projected(tuple(arguments[i] for i in variables), call)


def stack(f: Projected) -> Projected:
    """The same with its Gaussian interfaces as one, of vectors, which is the first."""
    own = [i for i, x in enumerate(f.interfaces) if isinstance(x, Linear)]
    rest = [i for i in range(len(f.interfaces)) if i not in own]
    parts: list[Any] = [f.interfaces[i] for i in own]
    rows, offset = (np.concatenate([getattr(p, name) for p in parts]) for name in ("rows", "offset"))

    def log_density(z: np.ndarray, *others: np.ndarray) -> np.ndarray:
        found = dict(zip(own, np.moveaxis(z, -1, 0), strict=True)) | dict(zip(rest, others, strict=True))
        return f.log_density(*(found[i] for i in range(len(found))))

    return Projected((Linear(rows, offset, False), *(f.interfaces[i] for i in rest)), log_density)


_TEXTBOOK = {
    "Normal": _normal, "MvNormal": _mv_normal, "Gamma": _gamma, "Beta": _beta, "Dirichlet": _dirichlet,
    "Poisson": _poisson, "Binomial": _binomial, "Bernoulli": _bernoulli, "Categorical": _categorical,
    "NegativeBinomial": _negative_binomial, "StudentT": _student_t,
}  # fmt: skip


def understand(element: Element) -> Any:
    """The factor that a declared element stands for."""
    name = type(element.distribution).__name__
    if name == "Deterministic":
        out, x, *constants = element.arguments.values()
        function = vectorised(element.distribution.function)
        return Node((out, x), lambda z: function(z, *constants))
    if name == "GenericDensity":
        return _generic(element.distribution.log_density, list(element.arguments.values()))
    return _TEXTBOOK[name](**element.arguments)
