"""Random declared Gaussian graphs, conjugate or seen through counts, as recipes that hypothesis can draw and shrink.

A recipe is a list of statements, each a verb and a few small integers that refer to variables declared before.
Constants come from a generator seeded by the position of the statement, so that a recipe is all there is to a graph.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, Poisson, dot, exp

SCALAR_VERBS = (
    "prior", "plate", "child", "plate_child", "observe", "observe_plate", "ties", "loop", "scan", "two_loops", "hub",
)  # fmt: skip
VECTOR_VERBS = (
    "vector", "vector_plate", "matrix_child", "dot_plate", "dot_child", "observe_vector", "vector_loop", "vector_scan",
    "wide_child",
)  # fmt: skip
D = 2  # length of every vector


class Statement(NamedTuple):
    verb: str
    first: int
    second: int
    style: int  # which spelling, of up to four


def recipes(verbs: tuple[str, ...], max_size: int) -> st.SearchStrategy[list[Statement]]:
    small = st.integers(0, 7)
    return st.lists(
        st.builds(Statement, st.sampled_from(verbs), small, small, st.integers(0, 3)), min_size=1, max_size=max_size
    )


class Context:
    """The variables so far, and the constants of the statement at hand."""

    def __init__(self, counts: bool, scan: Callable) -> None:
        self.counts = counts
        self.scan = scan
        self.scalars: list[Any] = []
        self.plates: list[Any] = []
        self.vectors: list[Any] = []
        self.number = 0

    def begin(self, number: int) -> None:
        self.number = number
        self.rng = np.random.default_rng(1000 + number)

    def name(self, suffix: str = "") -> str:
        return f"x{self.number}{suffix}"

    def constant(self, *shape: int) -> Any:
        """Numbers of either sign, away from zero."""
        size = self.rng.uniform(0.3, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        return size if shape else float(size)

    def scale(self, style: int, *shape: int) -> dict[str, Any]:
        value = self.rng.uniform(0.3, 2.0, shape) if shape else float(self.rng.uniform(0.3, 2.0))
        return {("variance", "precision", "std")[style % 3]: value}

    def spread(self, style: int) -> dict[str, Any]:
        """A scalar, diagonal or full covariance, or a full precision."""
        root = self.rng.normal(size=(D, D))
        full = root @ root.T + 0.5 * np.eye(D)
        value = [0.7, self.rng.uniform(0.3, 2.0, D), full, full][style]
        return {"precision" if style == 3 else "covariance": value}

    def mask(self, style: int, n: int) -> np.ndarray | None:
        return None if style % 2 else self.rng.random(n) < 0.6

    def see(self, name: str, mean: Any, obs: Any, mask: Any = None, **scale: Any) -> None:
        """Observe a number, or, in a graph of counts, the count it makes of a rate."""
        if self.counts:
            ngmp.sample(name, Poisson(exp(0.4 * mean)), obs=abs(obs) * 2 // 1, mask=mask)
        else:
            ngmp.sample(name, Normal(mean, **scale), obs=obs, mask=mask)

    def scalar(self, k: int) -> Any:
        if not self.scalars:
            self.scalars.append(ngmp.sample(self.name("s"), Normal(0.3, variance=1.2)))
        return self.scalars[k % len(self.scalars)]

    def plate(self, k: int) -> Any:
        if not self.plates:
            self.plates.append(ngmp.sample(self.name("p"), Normal(np.arange(3) / 2, variance=1.2)))
        return self.plates[k % len(self.plates)]

    def vector(self, k: int) -> Any:
        if not self.vectors:
            self.vectors.append(ngmp.sample(self.name("v"), MvNormal(np.arange(D) - 0.5, covariance=1.2)))
        return self.vectors[k % len(self.vectors)]


def loop_scan(body: Callable, init: Any, xs: Any) -> tuple[Any, list[Any]]:
    """`ngmp.scan` as a Python loop."""
    carry, outputs = init, []
    for k in range(len(xs[0])):
        carry, y = body(carry, tuple(x[k] for x in xs))
        outputs.append(y)
    return carry, outputs


def model_of(recipe: list[Statement], counts: bool = False, scan: Callable = ngmp.scan) -> Callable[[], None]:
    """The model function of a recipe. Its data are constants: every value is known while compiling.

    With `counts`, scalars are seen through Poisson(exp(...)): then marginals of all the linear functionals matter.
    """

    def model() -> None:
        c = Context(counts, scan)
        for number, statement in enumerate(recipe):
            c.begin(number)
            _VERBS[statement.verb](c, statement)

    return model


# -- scalars --------------------------------------------------------------------------------------------------------


def _prior(c: Context, s: Statement) -> None:
    c.scalars.append(ngmp.sample(c.name(), Normal(c.constant(), **c.scale(s.style))))


def _plate(c: Context, s: Statement) -> None:
    x = ngmp.sample(c.name(), Normal(c.constant(2 + s.first % 3), **c.scale(s.style)))
    c.plates.append(x)
    c.scalars.append(x[s.second % len(x)])


def _combination(c: Context, s: Statement) -> Any:
    """Affine in one, two or three variables, which need not differ."""
    u, w = c.scalar(s.first), c.scalar(s.second)
    if s.style == 0:
        return c.constant() * u + c.constant()
    if s.style == 1:
        return u - c.constant() * w
    if s.style == 2:
        return c.constant() * (u + w) / 1.7 - c.scalar(s.first + s.second)
    return 0.4 - (w * c.constant() + c.constant() * u)


def _child(c: Context, s: Statement) -> None:
    mean = _combination(c, s)
    c.scalars.append(ngmp.sample(c.name(), Normal(mean, **c.scale(s.first))))


def _plate_child(c: Context, s: Statement) -> None:
    x = c.plate(s.first)
    n = len(x)
    mean = [
        lambda: c.constant(n) * x + c.constant(),
        lambda: x + c.constant(n) * c.scalar(s.second),
        lambda: c.scalar(s.second) + c.constant(n),
        lambda: x[::-1] - c.constant() * x,
    ][s.style]()
    c.plates.append(ngmp.sample(c.name(), Normal(mean, **c.scale(s.second, n))))


def _observe(c: Context, s: Statement) -> None:
    mean = _combination(c, s)
    c.see(c.name(), mean, c.constant(), **c.scale(s.second))


def _observe_plate(c: Context, s: Statement) -> None:
    n = 3
    mean = [
        lambda: c.plate(s.first) * c.constant(),
        lambda: c.constant(n) * c.scalar(s.first) + c.constant(n),
        lambda: c.constant(n) * c.scalar(s.first) + c.scalar(s.second),
        lambda: c.plate(s.first) - c.scalar(s.second),
    ][s.style]()
    n = mean.shape[0]
    c.see(c.name(), mean, c.constant(n), c.mask(s.second, n), **c.scale(s.first))


def _ties(c: Context, s: Statement) -> None:
    """Observed differences of elements of a plate, picked at random: chains, stars, loops and self-ties."""
    x = c.plate(s.first)
    n = 1 + s.second % 4
    i, j = c.rng.integers(len(x), size=n), c.rng.integers(len(x), size=n)
    mean = x[i] - c.constant() * x[j] if s.style < 2 else c.constant(n) * x[i] + x[j] + c.constant(n)
    c.see(c.name(), mean, c.constant(n), c.mask(s.style, n), **c.scale(s.style))


def _hub(c: Context, s: Statement) -> None:
    """Satellites of one variable, each seen once."""
    hub, n = c.scalar(s.first), 2 + s.second % 3
    x = ngmp.sample(c.name(), Normal(c.constant() * hub, **c.scale(s.style, n)))
    c.see(c.name("y"), x, c.constant(n), c.mask(s.style, n), **c.scale(s.style))
    c.plates.append(x)


def _loop(c: Context, s: Statement) -> None:
    z, n = c.scalar(s.first), 2 + s.second % 3
    gain, noise, y = c.constant(n), c.scale(s.style, n), c.constant(n)
    for k in range(n):
        drift = 0.0 if s.style < 2 else c.constant()
        z = ngmp.sample(c.name(), Normal(gain[k] * z + drift, **{name: v[k] for name, v in noise.items()}))
        if s.style % 2:
            c.see(c.name("y"), 2.0 * z, y[k], bool(y[k] > 0), variance=0.5)
    c.scalars.append(z)


def _scan(c: Context, s: Statement) -> None:
    n = 1 + s.second % 4
    shared = c.scalar(s.first) if s.style == 3 else None
    xs = (c.constant(n), c.constant(n), c.constant(n) > 0)

    def step(z: Any, x: Any) -> Any:
        gain, y, seen = x
        mean = gain * z if shared is None else gain * z - 0.5 * shared
        z = ngmp.sample(c.name(), Normal(mean, variance=0.7))
        c.see(c.name("y"), z, y, seen if s.style % 2 else None, precision=1.0 + gain**2)
        return z, z

    z, zs = c.scan(step, c.scalar(s.second), xs)
    c.scalars.append(z)
    c.plates.append(zs)


def _two_loops(c: Context, s: Statement) -> None:
    """Two interleaved chains of one name each, coupled at the end in one style."""
    u, w = c.scalar(s.first), c.scalar(s.second)
    for _ in range(2 + s.second % 2):
        u = ngmp.sample(c.name("u"), Normal(0.8 * u, variance=0.5))
        w = ngmp.sample(c.name("w"), Normal(w, variance=0.5))
        c.see(c.name("y"), u if s.style < 2 else w, c.constant(), variance=1.0)
    if s.style == 3:
        c.see(c.name("tie"), u - w, 0.3, variance=1.0)
    c.scalars += [u, w]


# -- vectors --------------------------------------------------------------------------------------------------------


def _vector(c: Context, s: Statement) -> None:
    c.vectors.append(ngmp.sample(c.name(), MvNormal(c.constant(D), **c.spread(s.style))))


def _vector_plate(c: Context, s: Statement) -> None:
    x = ngmp.sample(c.name(), MvNormal(c.constant(3, D), **c.spread(s.style)))
    phi = c.constant(3, D) if s.second % 2 else c.constant(D)
    c.see(c.name("y"), dot(phi, x), c.constant(3), c.mask(s.second, 3), **c.scale(s.first))
    c.vectors += [x[0], x[2]]


def _matrix_child(c: Context, s: Statement) -> None:
    w, v = c.vector(s.first), c.vector(s.second)
    mean = [
        lambda: c.constant(D, D) @ w + c.constant(D),
        lambda: w - c.constant(D, D) @ v,
        lambda: c.constant(D) * w + 0.5,
        lambda: c.constant(D, D) @ (0.5 * w + c.constant(D)),
    ][s.style]()
    c.vectors.append(ngmp.sample(c.name(), MvNormal(mean, **c.spread(s.second % 4))))


def _dot_plate(c: Context, s: Statement) -> None:
    w = c.vector(s.first)
    mean = dot(c.constant(3, D), w)
    if s.style == 1:
        mean = mean + c.constant(3) * c.scalar(s.second)
    if s.style == 2:
        mean = c.constant(D) @ w + c.constant(3) - mean * 0.3
    if s.style == 3:
        mean = mean - dot(c.constant(D), c.vector(s.second))
    c.see(c.name(), mean, c.constant(3), c.mask(s.second, 3), **c.scale(s.style, 3))


def _dot_child(c: Context, s: Statement) -> None:
    w = c.vector(s.first)
    if s.style < 2:
        c.scalars.append(ngmp.sample(c.name(), Normal(dot(c.constant(D), w), **c.scale(s.style))))
    else:
        x = ngmp.sample(c.name(), Normal(dot(c.constant(3, D), w), **c.scale(s.style)))
        c.see(c.name("y"), x, c.constant(3), c.mask(s.second, 3), variance=0.4)
        c.plates.append(x)


def _observe_vector(c: Context, s: Statement) -> None:
    w, v = c.vector(s.first), c.vector(s.second)
    if s.style == 0:
        ngmp.sample(c.name(), MvNormal(w, **c.spread(s.second % 4)), obs=c.constant(D))
    elif s.style == 1:
        ngmp.sample(c.name(), MvNormal(c.constant(D, D) @ w - v, **c.spread(s.second % 4)), obs=c.constant(D))
    elif s.style == 2:
        mask = c.mask(s.second, 3)
        ngmp.sample(
            c.name(), MvNormal(c.constant(3, D, D) @ w, **c.spread(s.second % 4)), obs=c.constant(3, D), mask=mask
        )
    else:
        wide = c.constant(3, D) @ v  # three measurements of two numbers
        ngmp.sample(c.name(), MvNormal(wide, covariance=c.rng.uniform(0.4, 1.0, 3)), obs=c.constant(3))


def _wide_child(c: Context, s: Statement) -> None:
    """A vector of another length, seen alone or together with the first."""
    w = c.vector(s.first)
    x = ngmp.sample(c.name(), MvNormal(c.constant(3, D) @ w, covariance=0.7))
    mean = dot(c.constant(3), x)
    if s.style % 2:
        mean = mean - dot(c.constant(D), c.vector(s.second))
    if s.style > 1:
        mean = mean + c.scalar(s.second)
    c.see(c.name("y"), mean, c.constant(), variance=0.4)


def _vector_loop(c: Context, s: Statement) -> None:
    w = c.vector(s.first)
    for _ in range(2 + s.second % 2):
        turn = c.constant(D, D) if s.style % 2 else 0.9 * np.eye(D)
        w = ngmp.sample(c.name(), MvNormal(turn @ w, covariance=0.6))
        c.see(c.name("y"), dot(np.array([1.0, 0.2]), w), c.constant(), variance=0.5)
    c.vectors.append(w)


def _vector_scan(c: Context, s: Statement) -> None:
    n = 2 + s.second % 3
    turn, spread = c.constant(D, D), c.spread(s.style)
    mask = c.constant(n) > 0

    def step(w: Any, x: Any) -> Any:
        y, phi, seen = x
        w = ngmp.sample(c.name(), MvNormal(turn @ w + 0.1, **spread))
        if s.style < 2:
            c.see(c.name("y"), dot(phi, w), y[0], seen, variance=0.5)
        else:
            ngmp.sample(c.name("y"), MvNormal(w, covariance=0.8), obs=y, mask=seen)
        return w, None

    w, _ = c.scan(step, c.vector(s.first), (c.constant(n, D), c.constant(n, D), mask))
    c.vectors.append(w)


_VERBS: dict[str, Callable[[Context, Statement], None]] = {
    verb: globals()[f"_{verb}"] for verb in SCALAR_VERBS + VECTOR_VERBS
}
