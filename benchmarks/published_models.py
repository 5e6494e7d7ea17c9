"""Published models, beside the published figures: `python benchmarks/published_models.py` (`--quick`: small n)

The benchmark suite of RxInfer (its constants, our random streams), and three models whose published answers break
down: a hidden Markov model with learned tables, the hierarchical Gaussian filter, incomplete data with a Wishart
precision.
Times are medians of warm runs in CPU milliseconds of this process, the free energy included, on one thread; published
ones are wall-clock on other machines (RxInfer 5.5.2 on an AMD EPYC 7763, four threads; * ReactiveMP, arXiv:2112.13251).
Errors are mean squared distances to what generated the data, unless said otherwise; "exact" is what the steady-state
variances of the Kalman smoother and filter say they should be.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler import Gamma, MvNormal, Normal, Wishart, broadcast_to, dot, exp  # noqa: E402

HEADER = ["model", "n", "published, ms", "ours, ms", "first result, s", "sweeps", "what", "published", "ours"]
LONG = 5.0  # seconds of warm runs after which no other is measured
ANGLE = np.pi / 35
ROTATION = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
INCOMPLETE = np.array([13.0, 1.0, 5.0, 4.0, -20.0, 10.0])
TRANSITION = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]])
EMISSION = 0.05 + 0.85 * np.eye(3)
TABLES = {"transition": np.ones((3, 3)), "emission": np.ones((3, 3)) + 9 * np.eye(3)}


def rotation(y):
    """x_t ~ N(A x_{t-1}, I), y_t ~ N(x_t, 25 I), A a rotation by pi/35."""
    x0 = ngmp.sample("x0", MvNormal(np.zeros(2), covariance=100.0))

    def step(x, y_t):
        x = ngmp.sample("x", MvNormal(ROTATION @ x, covariance=1.0))
        ngmp.sample("y", MvNormal(x, covariance=25.0), obs=y_t)
        return x, None

    ngmp.scan(step, x0, y)


def iid_normal(y):
    mu, tau = ngmp.sample("mu", Normal(0.0, variance=1.0)), ngmp.sample("tau", Gamma(1.0, rate=1.0))
    ngmp.sample("y", Normal(mu, precision=tau), obs=y)


def regression(x, y):
    a, b = ngmp.sample("a", Normal(0.0, variance=1.0)), ngmp.sample("b", Normal(0.0, variance=100.0))
    ngmp.sample("y", Normal(a * x + b, variance=1.0), obs=y)


def gaussian_filter(y):
    """z_t ~ N(z_{t-1}, 0.04), x_t ~ N(x_{t-1}, exp(z_t)), y_t ~ N(x_t, 0.01)."""
    z0, x0 = ngmp.sample("z0", Normal(0.0, variance=1.0)), ngmp.sample("x0", Normal(0.0, variance=1.0))

    def step(carry, y_t):
        z, x = carry
        z = ngmp.sample("z", Normal(z, variance=0.04))
        x = ngmp.sample("x", Normal(x, variance=exp(z)))
        ngmp.sample("y", Normal(x, variance=0.01), obs=y_t)
        return (z, x), None

    ngmp.scan(step, (z0, x0), y)


def incomplete(y, seen):
    """Rows of which entries are missing: latent vectors, seen through their entries."""
    n, d = y.shape
    w = ngmp.sample("W", Wishart(float(d), scale=np.eye(d)))
    m = ngmp.sample("m", MvNormal(np.zeros(d), covariance=1.0))
    x = ngmp.sample("x", MvNormal(broadcast_to(m, (n,)), precision=w))
    ngmp.sample("y", Normal(dot(np.eye(d), x[:, None]), variance=1e-6), obs=y, mask=seen)


def measure(run: Callable[[], Any], repeats: int = 5) -> tuple[Any, float, float]:
    """What a call returns, CPU milliseconds of a warm call (median), and CPU seconds of the first."""
    times: list[float] = []
    while len(times) < 2 or (len(times) <= repeats and sum(times[1:]) < LONG):
        start = time.process_time()
        found = jax.block_until_ready(run())
        times.append(time.process_time() - start)
    return found, 1e3 * statistics.median(times[1:]), times[0]


def row(
    name: str, n: int, published: Any, program: Any, inputs: dict[str, Any], *quality: Any
) -> tuple[Any, list[Any]]:
    """A posterior and the row of the table it gives; `quality` is (what, published, a function of the posterior)."""
    post, warm, first = measure(lambda: program(**inputs))
    what, theirs, ours = quality
    sweeps = f"{int(post.sweeps)}" + ("" if bool(post.converged) else " (not converged)")
    return post, [name, n, published, warm, first, sweeps, what, theirs, ours(post)]


def squared(found: Any, truth: np.ndarray) -> float:
    """The mean over rows of the squared distance."""
    return float(np.mean(np.sum((np.asarray(found) - truth).reshape(len(truth), -1) ** 2, -1)))


# -- the suite ---------------------------------------------------------------------------------------------------------


def state_space(n: int, smoothing: str, filtering: str) -> list[list[Any]]:
    rng = np.random.default_rng(n)
    x, states = np.array([10.0, -10.0]), []
    for _ in range(n):
        x = ROTATION @ x + rng.standard_normal(2)
        states.append(x)
    truth = np.array(states)
    y = jnp.asarray(truth + 5.0 * rng.standard_normal((n, 2)))
    program = ngmp.compile(rotation, carry={"x0": "x"})
    smoothed = row("rotation, smoothing", n, smoothing, program, {"y": y}, "error of x", "exact: 4.98",
                   lambda post: squared(post["x"].mean, truth))[1]  # fmt: skip

    @jax.jit
    def filtered(y):
        def step(carry, y_t):
            carry, _ = program.update(carry, {"y": y_t[None]})
            return carry, carry["x0"].mean

        return jax.lax.scan(step, program.start(y=y[:1]), y)[1]

    means, warm, first = measure(lambda: filtered(y))
    return [
        smoothed,
        ["rotation, filtering", n, filtering, warm, first, "1", "error of x", "exact: 9.05", squared(means, truth)],
    ]


def iid(n: int, published: str) -> list[Any]:
    y = 3.0 + 0.5 * np.random.default_rng(n).standard_normal(n)
    program = ngmp.compile(iid_normal, method=ngmp.VMP(), max_sweeps=11)
    exact = n / (2 + n * np.var(y))  # of the mode of tau, nearly, whatever mu

    def quality(post):
        return f"{float(post['mu'].mean):.4f}, {float(post['tau'].mean):.3f} ({np.mean(y):.4f}, {exact:.3f})"

    inputs = {"y": jnp.asarray(y)}
    return row("iid normal", n, published, program, inputs, "mean, precision (of the sample)", "", quality)[1]


def linear_regression(n: int, published: str) -> list[Any]:
    x = np.arange(1.0, n + 1)
    y = 0.5 * x + 25.0 + np.random.default_rng(n).standard_normal(n)
    design = np.c_[x, np.ones(n)]
    exact = np.linalg.solve(np.diag([1.0, 0.01]) + design.T @ design, design.T @ y)

    def quality(post):
        return float(max(abs(post["a"].mean - exact[0]), abs(post["b"].mean - exact[1])))

    inputs = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    program = ngmp.compile(regression)
    return row("linear regression", n, published, program, inputs, "distance to the exact means", "", quality)[1]


def mixture(k: int, dimension: int, published: str, n: int = 1000) -> list[Any]:
    rng = np.random.default_rng(k)
    if dimension == 1:
        truth = np.linspace(-10.0, 10.0, k)
        y = truth[rng.integers(0, k, n)] + rng.standard_normal(n) / np.sqrt(1.777)
        program = ngmp.compile(ngmp_models.gaussian_mixture, method=ngmp.VMP(), max_sweeps=26)
        inputs = {"y": y, "centres": 0.2 * truth, "variance": 1e3, "shape": 0.01, "rate": 0.01}
    else:
        angle = 2 * np.pi * np.arange(k) / k
        truth = np.zeros((k, dimension))
        truth[:, 0], truth[:, 1] = 50 * np.cos(angle), 50 * np.sin(angle)
        noise = np.sqrt(10.0 * np.arange(1, dimension + 1))
        y = truth[rng.integers(0, k, n)] + noise * rng.standard_normal((n, dimension))
        program = ngmp.compile(ngmp_models.vector_mixture, max_sweeps=26)
        inputs = {"y": y, "centres": 0.2 * truth, "variance": 1e3, "scale": 100.0}
    arrays = {key: jnp.asarray(v) for key, v in inputs.items()}
    name = f"mixture, {dimension}-D, K = {k}"
    return row(name, n, published, program, arrays, "error of the means", "", lambda p: squared(p["m"].mean, truth))[1]


# -- where published answers break down --------------------------------------------------------------------------------


def learned_hmm(n: int, published: str, error: str, starts: int) -> tuple[list[Any], list[Any]]:
    """A row; and, from random starts, the free energies: which fixed point is this?"""
    rng = np.random.default_rng(7)
    z, states, y = int(rng.integers(3)), [], []
    for _ in range(n):
        z = int(rng.choice(3, p=TRANSITION[z]))
        states.append(z)
        y.append(int(rng.choice(3, p=EMISSION[z])))
    truth = np.eye(3)[states]
    inputs: dict[str, Any] = {"y": jnp.asarray(y), **{k: jnp.asarray(v) for k, v in TABLES.items()}}
    program = ngmp.compile(ngmp_models.learned_hmm, max_sweeps=2000)
    post, figures = row("HMM, learned tables", n, published, program, inputs, "error of z", error,
                        lambda p: squared(p["z"].probs, truth))  # fmt: skip
    if starts < 2:
        return figures, []
    found = ngmp.restarts(program, jax.random.key(0), starts, **inputs)
    energies = np.asarray(found.free_energies)
    distinct = np.unique(np.round(energies[np.asarray(found.converged)], 3))
    where = "the least" if float(post.free_energy) <= energies.min() + 1e-3 else f"not the least, {energies.min():.3f}"
    return figures, [n, starts, int(np.sum(found.converged)), len(distinct), float(post.free_energy), where]


def volatile(n: int, published: str, error: str) -> list[Any]:
    rng = np.random.default_rng(3)
    z = np.cumsum(0.2 * rng.standard_normal(n))
    x = np.cumsum(np.exp(0.5 * z) * rng.standard_normal(n))
    y = jnp.asarray(x + 0.1 * rng.standard_normal(n))
    program = ngmp.compile(gaussian_filter)
    return row("hierarchical Gaussian filter", n, published, program, {"y": y}, "error of z", error,
               lambda post: squared(post["z"].mean, z))[1]  # fmt: skip


def missing_entries() -> list[Any]:
    rng = np.random.default_rng(0)
    y = INCOMPLETE + rng.normal(size=(100, 6))
    seen = np.arange(6) != rng.integers(0, 6, 100)[:, None]
    inputs = {"y": jnp.asarray(np.where(seen, y, 0.0)), "seen": jnp.asarray(seen)}
    program = ngmp.compile(incomplete, tol=1e-5)
    return row("incomplete data, Wishart", 100, "", program, inputs, "mean of the first entry (13)", "5.25",
               lambda post: float(post["m"].mean[0]))[1]  # fmt: skip


def main(quick: bool = False) -> None:
    upto = 1 if quick else 3
    rows: list[list[Any]] = []

    def add(*found: list[Any]) -> None:
        for figures in found:
            rows.append(figures)
            print(*(f"{x:.4g}" if isinstance(x, float) else x for x in figures), sep=" | ", flush=True)

    for n, smoothing, filtering in [(100, "21.3", "2.63"), (1000, "286", "23.3"), (10_000, "5085", "236")][:upto]:
        add(*state_space(n, smoothing, filtering))
    for n, published in [(100, "6.2"), (1000, "57.9"), (10_000, "1279")][:upto]:
        add(iid(n, published))
    for n, published in [(100, "42"), (1000, "733"), (10_000, "12268")][:upto]:
        add(linear_regression(n, published))
    for k, d, published in [(2, 1, "493"), (3, 1, "627"), (2, 5, "923"), (3, 5, "1249")][: 1 if quick else 4]:
        add(mixture(k, d, published))
    starts = []
    for n, published, error, count in [(250, "62 *", "0.03 - 0.10 *", 4), (2500, "", "0.75 - 0.88 *", 4),
                                       (10_000, "5624 *", "0.75 - 0.88 *", 1)][:upto]:  # fmt: skip
        figures, found = learned_hmm(n, published, error, count)
        add(figures)
        if found:
            starts.append(found)
            print("random starts:", *found, sep=" | ", flush=True)
    for n, published, error in [(50, "19 *", "45 *"), (1000, "416 *", ""), (10_000, "4400 *", "1.3e4 *")][:upto]:
        add(volatile(n, published, error))
    if not quick:
        add(missing_entries())
    print()
    print(table("Published models", HEADER, rows))
    titles = ["n", "starts", "converged", "fixed points", "free energy of the default start", "which is"]
    print(table("The hidden Markov model from random starts", titles, starts))
    if not quick:
        print("saved", save("published_models", {"header": HEADER, "rows": rows, "starts": starts}))


if __name__ == "__main__":
    main("--quick" in sys.argv)
