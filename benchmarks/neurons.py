"""The graph that defeated an earlier compiler: `python benchmarks/neurons.py` (`--quick`: 128 observations)

1024 observations x 8 neurons, declared as loops (`ngmp_models.neurons`), eight damped updates of every message. Prints
the census of factors, the time to trace and to compile, the time of the eight updates (marginals out; median), how
many messages were updated, and the largest difference of any mean or variance from the same updates written by hand
in NumPy, beside the published figures of the reactive engine, the earlier compiler, and a hand-written executor.

CPU seconds are those of this process; on a busy machine wall-clock seconds are larger.
"""

import statistics
import sys
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler.declare.inputs import wrap  # noqa: E402
from ngmp_compiler.declare.sample import trace  # noqa: E402

NEURONS, FEATURES, DAMPING, UPDATES, REPEATS = 8, 3, 0.5, 8, 30
VARIANCE, SHAPE, RATE, RHO, OMEGA, NOISE = 1.0, 4.0, 0.1, 0.8, 2.0, 0.01  # the defaults of the model
PUBLISHED = [
    ["reactive engine", "", 2.678, 131_072],
    ["earlier compiler", 19.941, 3.023, ""],
    ["hand-written executor", "", 0.630, ""],
]


def data(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    features = np.c_[rng.uniform(-1.0, 1.0, (n, FEATURES - 1)), np.ones(n)]
    y = np.sin(3.0 * features[:, 0]) * features[:, 1] + 0.1 * rng.standard_normal(n)
    return {
        "features": features,
        "y": y,
        "weights": rng.standard_normal((NEURONS, FEATURES)),
        "gains": rng.standard_normal(NEURONS),
    }


# -- the same updates by hand: arrays (n, k), a Gaussian as (linear coefficient, precision), a Gamma as (shape, rate) --


def _moments(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of x + (rho/omega) sin(omega x) for x ~ N(m, v)."""
    u, w = np.polynomial.hermite_e.hermegauss(40)
    x = m + np.sqrt(v) * u.reshape(-1, *(1,) * m.ndim)
    w = (w / w.sum()).reshape(-1, *(1,) * m.ndim)
    g = x + RHO / OMEGA * np.sin(OMEGA * x)
    mean = (w * g).sum(0)
    return mean, (w * (g - mean) ** 2).sum(0)


def _backward(m: np.ndarray, v: np.ndarray, xi: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bonnet and Price: E[l'] and E[l''] of l(x) = xi g(x) - lam g(x)^2 / 2 under N(m, v), as (linear, precision)."""
    u, w = np.polynomial.hermite_e.hermegauss(40)
    x = m + np.sqrt(v) * u.reshape(-1, *(1,) * m.ndim)
    w = (w / w.sum()).reshape(-1, *(1,) * m.ndim)
    g, g1, g2 = x + RHO / OMEGA * np.sin(OMEGA * x), 1 + RHO * np.cos(OMEGA * x), -RHO * OMEGA * np.sin(OMEGA * x)
    first = (w * (xi - lam * g) * g1).sum(0)
    second = (w * ((xi - lam * g) * g2 - lam * g1**2)).sum(0)
    return first - m * second, -second


def by_hand(features: np.ndarray, y: np.ndarray, weights: np.ndarray, gains: np.ndarray) -> dict[str, Any]:
    """Eight damped updates of every message, all at once, in NumPy."""
    n, k = len(y), len(gains)
    zero, one = np.zeros((n, k)), np.ones((n, k))
    mean0 = SHAPE / RATE
    # Messages: of the first softdot toward its residual and gamma, of the activation toward h and x, of the second
    # softdot toward u, h, v and delta, of the noise toward its residual and tau.
    start = _moments(np.zeros(1), np.ones(1))
    msg: dict[str, Any] = {
        "x.r": mean0 * one, "x.tau": (zero, zero), "h.out": (start[0] / start[1] * one, one / start[1]),
        "h.x": (zero, zero), "u.r": (zero, mean0 * one), "u.a": (zero, zero), "u.b": (zero, zero),
        "u.tau": (zero, zero), "mu.r": mean0 * np.ones(n), "mu.tau": (np.zeros(n), np.zeros(n)),
    }  # fmt: skip
    out: dict[str, Any] = {}
    for update in range(UPDATES + 1):
        gamma, delta, tau = ((SHAPE + msg[s][0].sum(), RATE + msg[s][1].sum()) for s in ("x.tau", "u.tau", "mu.tau"))
        # x_nj and w_j jointly: x integrated out of the residual x - f.w, then w, then x given w.
        (hx, lx), lam = msg["h.x"], msg["x.r"]
        seen, shift = lam * lx / (lam + lx), lam * hx / (lam + lx)
        x_m, x_v, r2 = np.empty((n, k)), np.empty((n, k)), np.empty((n, k))
        w_m, w_v = np.empty((k, FEATURES)), np.empty((k, FEATURES, FEATURES))
        for j in range(k):
            precision = np.eye(FEATURES) / VARIANCE + (features * seen[:, j, None]).T @ features
            w_v[j] = np.linalg.inv(precision)
            w_m[j] = w_v[j] @ (weights[j] / VARIANCE + features.T @ shift[:, j])
            f_m, f_v = features @ w_m[j], np.einsum("nd,de,ne->n", features, w_v[j], features)
            s, gain = lam[:, j] + lx[:, j], lam[:, j] / (lam[:, j] + lx[:, j])
            x_m[:, j], x_v[:, j] = (hx[:, j] + lam[:, j] * f_m) / s, 1 / s + gain**2 * f_v
            r2[:, j] = (x_m[:, j] - f_m) ** 2 + 1 / s + (gain - 1) ** 2 * f_v
        # h_nj and v_j alone.
        h_p = msg["h.out"][1] + msg["u.a"][1]
        h_m, h_v = (msg["h.out"][0] + msg["u.a"][0]) / h_p, 1 / h_p
        v_p = 1 / VARIANCE + msg["u.b"][1].sum(0)
        v_m, v_v = (gains / VARIANCE + msg["u.b"][0].sum(0)) / v_p, 1 / v_p
        # u_nj, mu_n and b jointly, through r = mu - sum_j u_j - b: all but b are private to a row.
        hu, lu = msg["u.r"]
        private_m, private_v = y - (hu / lu).sum(1), NOISE + (1 / lu).sum(1)
        row = private_v + 1 / msg["mu.r"]  # variance of r + b
        b_p = 1 / VARIANCE + (1 / row).sum()
        b_m, b_v = (private_m / row).sum() / b_p, 1 / b_p
        share = (private_m - b_m) / row  # every private variable moves by its variance times this
        u_m, u_v = hu / lu + share[:, None] / lu, 1 / lu - (1 / row - b_v / row**2)[:, None] / lu**2
        mu_m, mu_v = y - NOISE * share, NOISE - NOISE**2 * (1 / row - b_v / row**2)
        rest = 1 / msg["mu.r"]
        e_m, e_v = rest * share, rest - rest**2 * (1 / row - b_v / row**2)
        if update == UPDATES:
            out = {"x": (x_m, x_v), "h": (h_m, h_v), "u": (u_m, u_v), "mu": (mu_m, mu_v), "v": (v_m, v_v),
                   "b": (b_m, b_v), "w": (w_m, w_v), "gamma": gamma, "delta": delta, "tau": tau}  # fmt: skip
            break
        g_mean, d_mean, t_mean = (a / b for a, b in (gamma, delta, tau))
        square = (u_m - h_m * v_m) ** 2 + u_v + h_m**2 * v_v + v_m**2 * h_v + h_v * v_v
        cavity_x = (x_m / x_v - hx, 1 / x_v - lx)
        forward = _moments(cavity_x[0] / cavity_x[1], 1 / cavity_x[1])
        target: dict[str, Any] = {
            "x.r": g_mean * one, "x.tau": (0.5 * one, 0.5 * r2),
            "h.out": (forward[0] / forward[1], 1 / forward[1]),
            "h.x": _backward(x_m, x_v, *msg["u.a"]),
            "u.r": (d_mean * h_m * v_m, d_mean * one), "u.a": (d_mean * u_m * v_m, d_mean * (v_m**2 + v_v) * one),
            "u.b": (d_mean * u_m * h_m, d_mean * (h_m**2 + h_v)), "u.tau": (0.5 * one, 0.5 * square),
            "mu.r": t_mean * np.ones(n), "mu.tau": (0.5 * np.ones(n), 0.5 * (e_m**2 + e_v)),
        }  # fmt: skip
        msg = jax.tree.map(lambda old, new: old + DAMPING * (new - old), msg, target)
    return out


# -- measurements ------------------------------------------------------------------------------------------------------


def error(post: dict[str, Any], reference: dict[str, Any]) -> float:
    """The largest difference in a mean or (co)variance, relative to one plus the size of it."""
    worst = 0.0

    def compare(found: Any, expected: Any) -> None:
        nonlocal worst
        worst = max(worst, float(np.max(np.abs(np.asarray(found) - expected) / (1 + np.abs(expected)))))

    for name in ("gamma", "delta", "tau"):
        shape, rate = reference[name]
        compare(post[name].mean, shape / rate)
        compare(post[name].variance, shape / rate**2)
    for name in ("mu", "b"):
        compare(post[name].mean, reference[name][0])
        compare(post[name].variance, reference[name][1])
    for name in ("x", "h", "u", "v", "w"):  # stored neuron by neuron
        q, (m, v) = post[f"neuron*/{name}"], reference[name]
        compare(q.mean, m if name in "vw" else m.T)
        compare(q.covariance if name == "w" else q.variance, v if name in "vw" else v.T)
    return worst


def updated(program: ngmp.Program, inputs: dict[str, Any]) -> int:
    """How many messages move in eight sweeps, one by one; the first update, where some already are at their targets,
    comes before them."""
    step = jax.jit(lambda state, i: program.step(state, **i))
    state, total = program.init(**inputs), 0
    for sweep in range(UPDATES + 2):
        before, state = state, step(state, inputs)
        for key, old in before.leaves.items() if sweep > 1 else ():
            pairs = zip(old.natural, state.leaves[key].natural, strict=True)
            total += int(np.sum(np.any([np.asarray(a) != np.asarray(b) for a, b in pairs], axis=0)))
    return total


def census(inputs: dict[str, np.ndarray]) -> tuple[dict[str, int], float]:
    """How many factors of every kind the loops declare, and the CPU seconds that takes."""
    start = time.process_time()
    graph = trace(ngmp_models.neurons, {k: wrap(jnp.asarray(v)) for k, v in inputs.items()})
    seconds = time.process_time() - start
    kinds = {"x": "softdot of features and weights", "h": "activation", "u": "softdot of two variables",
             "mu": "sum, intercept and noise", "y": "Normal with variance"}  # fmt: skip
    count: dict[str, int] = {}
    for site in graph.sites:
        kind = kinds.get(site.name.rpartition("/")[2], "prior")
        count[kind] = count.get(kind, 0) + 1
    return count, seconds


def timed(function: Any, inputs: dict[str, Any]) -> tuple[Any, list[tuple[float, float]], list[float]]:
    """What a jitted function gives; CPU and wall seconds to trace and to compile it; medians of those to run it."""
    times = [(time.process_time(), time.perf_counter())]
    traced = function.trace(inputs)
    times.append((time.process_time(), time.perf_counter()))
    compiled = traced.lower().compile()
    times.append((time.process_time(), time.perf_counter()))
    waves = []
    for _ in range(REPEATS + 1):
        start = time.process_time(), time.perf_counter()
        out = jax.block_until_ready(compiled(inputs))
        waves.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    spent = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(times, times[1:], strict=False)]
    return out, spent, [statistics.median(w[i] for w in waves[1:]) for i in (0, 1)]


def main(quick: bool = False) -> None:
    n = 128 if quick else 1024
    inputs = {k: jnp.asarray(v) for k, v in data(n).items()}
    counts, declared = census(data(n))
    solver = optax.sgd(DAMPING)
    # A sweep applies the update that the one before it prepared, so one more of them makes eight updates.
    program = ngmp.compile(ngmp_models.neurons, rules=ngmp_models.NEURON_RULES, solver=solver, max_sweeps=UPDATES + 1)

    def wave(given: dict[str, Any]) -> tuple[Any, ngmp.State]:
        post = program(**given)
        return post.marginals, post.state

    (marginals, state), spent, (cpu, wall) = timed(jax.jit(wave), inputs)
    leaves = sum(q.natural[0].shape[0] for q in state.leaves.values())
    assert int(state.sweeps) == UPDATES + 1 and int(state.shrinks) == 0
    start = time.process_time()
    reference = by_hand(**data(n))
    hand = time.process_time() - start
    worst, moved = error(marginals, reference), updated(program, inputs)

    # The intercept is part of the sum here: one factor where the published census has three.
    rows: list[list[Any]] = [[kind, count] for kind, count in counts.items()]
    published = sum(counts.values()) + 2 * n
    rows += [["all", sum(counts.values())], ["all, with sum and intercept counted apart", published]]
    print(table("Factors", ["kind", "count"], rows))
    figures = {
        "declare, CPU s": declared,
        "trace (declare included), CPU s": spent[0][0],
        "compile, CPU s": spent[1][0],
        "trace and compile, wall s": spent[0][1] + spent[1][1],
        "eight updates, CPU ms (median)": 1e3 * cpu,
        "eight updates, wall ms (median)": 1e3 * wall,
        "the same by hand in NumPy, CPU ms": 1e3 * hand,
        "messages": leaves,
        "messages updated": moved,
        "largest error against NumPy": worst,
    }
    print(table(f"{n} observations x {NEURONS} neurons", ["", "measured"], [[k, v] for k, v in figures.items()]))
    ours = ["this compiler", spent[0][0] + spent[1][0], cpu, moved]
    header = ["engine", "preparation, s", "eight iterations, s", "messages updated"]
    if not quick:
        print(table("Beside the published figures (other machines)", header, [*PUBLISHED, ours]))
        print("saved", save("neurons", {"factors": rows, "figures": figures, "header": header, "published": PUBLISHED}))


if __name__ == "__main__":
    main("--quick" in sys.argv)
