"""Exact where exact is cheap: coupled discrete chains and change points. `python benchmarks/discrete.py [--quick]`

Coupled chains run as one scan over the joint state of each time; errors are against a plain forward-backward pass over
product states in numpy (probabilities, and the log-evidence relative to its size). Change points are the yearly
coal-mining disasters with a categorical year of change, Gamma rates before and after it, in three spellings; the exact
answer sums over the years in closed form, and the projected one differs from it by what NGMP leaves out. The first call
is in seconds of the clock and of all processors; the second is what a busy machine changes less.
"""

import argparse
import time

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from report import save, table  # noqa: E402
from scipy.special import gammaln, logsumexp  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import Categorical, Gamma, Poisson, take  # noqa: E402

COAL = np.array([int(c) for c in "454014340633402633545314415534252234213221111300101100310322"
                 "0111010100021000110233112111124200140001000001001010"])  # fmt: skip


def factorial(y, moves, E):
    """Independent chains, one outcome that looks at all of them."""
    chains, k = np.shape(moves)[:2]
    z = tuple(ngmp.sample(f"z{i}_0", Categorical(probs=np.full(k, 1 / k))) for i in range(chains))

    def step(z, y_k):
        z = tuple(ngmp.sample(f"z{i}", Categorical(probs=take(moves[i], z[i]))) for i in range(chains))
        ngmp.sample("y", Categorical(probs=take(E, *z)), obs=y_k)
        return z, None

    ngmp.scan(step, z, y)


def driven(y, moves, E):
    """Two chains, each of which looks at the other one step before."""
    k = np.shape(moves)[1]
    z = tuple(ngmp.sample(f"z{i}_0", Categorical(probs=np.full(k, 1 / k))) for i in range(2))

    def step(z, y_k):
        z = tuple(ngmp.sample(f"z{i}", Categorical(probs=take(moves[i], *z))) for i in range(2))
        ngmp.sample("y", Categorical(probs=take(E, *z)), obs=y_k)
        return z, None

    ngmp.scan(step, z, y)


def semi_markov(y, keep, count, E):
    """A state and the time it has left: `keep` (S, D, S), `count` (S, D, D)."""
    states, longest = np.shape(keep)[:2]
    start = tuple(ngmp.sample(f"z{i}_0", Categorical(probs=np.full(n, 1 / n))) for i, n in enumerate((states, longest)))

    def step(z, y_k):
        s = ngmp.sample("z0", Categorical(probs=take(keep, *z)))
        d = ngmp.sample("z1", Categorical(probs=take(count, s, z[1])))
        ngmp.sample("y", Categorical(probs=take(E, s)), obs=y_k)
        return (s, d), None

    ngmp.scan(step, start, y)


def chains(rng, steps):
    """Every case: model, inputs, the transition of its product state, the likelihood of the outcomes."""
    y = rng.integers(0, 5, steps)
    moves, E = rng.dirichlet(np.ones(4), (3, 4)), rng.dirichlet(np.full(5, 0.3), (4, 4, 4))
    yield "factorial, 3 x 4 states", factorial, {"y": y, "moves": moves, "E": E}, (
        np.einsum("ai,bj,ck->abcijk", *moves)), np.moveaxis(E, -1, 0)[y]  # fmt: skip
    moves, E = rng.dirichlet(np.ones(5), (2, 5, 5)), rng.dirichlet(np.full(5, 0.3), (5, 5))
    yield "two that drive each other, 2 x 5", driven, {"y": y, "moves": moves, "E": E}, (
        np.einsum("abi,abj->abij", *moves)), np.moveaxis(E, -1, 0)[y]  # fmt: skip
    states, longest = 4, 12
    enter, length = rng.dirichlet(np.ones(states), states), rng.dirichlet(np.ones(longest), states)
    going = (np.arange(longest) > 0)[None, :, None]
    keep = np.where(going, np.eye(states)[:, None], enter[:, None])
    count = np.where(going, np.eye(longest)[np.maximum(np.arange(longest) - 1, 0)][None], length[:, None])
    E = rng.dirichlet(np.full(5, 0.3), states)
    yield "semi-Markov, 4 states x 12", semi_markov, {"y": y, "keep": keep, "count": count, "E": E}, (
        np.einsum("abi,ibj->abij", keep, count)), np.repeat(E[:, y].T[..., None], longest, -1)  # fmt: skip


def forward_backward(moves, likelihood):
    """Marginals (T, S) after the first state, which is uniform, and the log-evidence."""
    size = likelihood.shape[1]
    alpha, log_z = [np.full(size, 1 / size)], 0.0
    for row in likelihood:
        new = (alpha[-1] @ moves) * row
        log_z += np.log(new.sum())
        alpha.append(new / new.sum())
    beta, out = np.ones(size), []
    for t in reversed(range(len(likelihood))):
        out.append(alpha[t + 1] * beta / (alpha[t + 1] * beta).sum())
        beta = moves @ (likelihood[t] * beta)
        beta /= beta.max()
    return np.array(out[::-1]), log_z


def timed(model, inputs, repeats=5):
    """A posterior, the time of its first call, and the least of some further ones."""
    program = ngmp.compile(model)
    times, processor = [], time.process_time()
    for _ in range(repeats + 1):
        start = time.perf_counter()
        post = jax.block_until_ready(program(**inputs))
        times.append(time.perf_counter() - start)
        processor = time.process_time() - processor if len(times) == 1 else processor
    return post, f"{times[0]:.1f} / {processor:.1f}", min(times[1:])


def coupled(steps):
    rows = []
    for name, model, inputs, moves, likelihood in chains(np.random.default_rng(0), steps):
        post, first, warm = timed(model, inputs)
        shape = likelihood.shape[1:]
        size = int(np.prod(shape))
        found, log_z = forward_backward(moves.reshape(size, size), likelihood.reshape(steps, size))
        found = found.reshape(steps, *shape)
        gap = 0.0
        for i in range(len(shape)):
            own = found.sum(tuple(1 + j for j in range(len(shape)) if j != i))
            gap = max(gap, float(abs(np.asarray(post[f"z{i}"].probs) - own).max()))
        off = float(abs(post.free_energy + log_z) / abs(log_z))
        rows.append([name, steps, first, warm * 1e3, gap, off, ", ".join(post.approximate) or "exact"])
    return rows


# -- change points ----------------------------------------------------------------------------------------------------


def picked(y):
    """One of two rates, picked by a row of zeros and ones for every year."""
    n = len(y)
    s = ngmp.sample("s", Categorical(probs=np.full(n, 1 / n)))
    rate = ngmp.sample("rate", Gamma(np.full(2, 2.0), rate=1.0))
    for t in range(n):
        ngmp.sample("y", Poisson(take(rate[(np.arange(n) <= t).astype(int)], s)), obs=y[t])


def indicated(y):
    """A class of two for every year, that the year of change decides."""
    n = len(y)
    s = ngmp.sample("s", Categorical(probs=np.full(n, 1 / n)))
    rate = ngmp.sample("rate", Gamma(np.full(2, 2.0), rate=1.0))
    for t in range(n):
        late = (np.arange(n) <= t).astype(float)
        w = ngmp.sample("w", Categorical(probs=take(np.stack([1 - late, late], -1), s)))
        ngmp.sample("y", Poisson(take(rate, w)), obs=y[t])


def known(y):
    """Known rates, a table of years by years of change."""
    n = len(y)
    s = ngmp.sample("s", Categorical(probs=np.full(n, 1 / n)))
    for t in range(n):
        ngmp.sample("y", Poisson(take(np.where(np.arange(n) <= t, 1.0, 3.0), s)), obs=y[t])


def summed(y, rates=None):
    """The posterior of the year of change and the evidence, in closed form."""

    def evidence(own, rate):
        if rate is not None:
            return float(np.sum(own * np.log(rate) - rate - gammaln(own + 1)))
        return float(gammaln(2 + own.sum()) - (2 + own.sum()) * np.log(1 + len(own)) - gammaln(own + 1).sum())

    early, late = rates or (None, None)
    each = np.array([evidence(y[:k], early) + evidence(y[k:], late) for k in range(len(y))])
    return np.exp(each - logsumexp(each)), logsumexp(each) - np.log(len(y))


def change_points(size):
    rows = []
    for name, model, rates in (("picked rates", picked, None), ("indicator a year", indicated, None),
                               ("known rates", known, (3.0, 1.0))):  # fmt: skip
        y = COAL[:size]
        post, first, warm = timed(model, {"y": y})
        probs, log_z = summed(y, rates)
        gap = float(abs(np.asarray(post["s"].probs) - probs).max())
        rows.append([name, size, first, warm * 1e3, gap, float(post.free_energy + log_z), bool(post.converged)])
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows = [row for steps in ((50,) if quick else (200, 2000)) for row in coupled(steps)]
    header = ["model", "steps", "first call, s / cpu s", "warm, ms", "probabilities off by", "evidence off by"]
    print(table("Coupled chains", [*header, "by"], rows))
    changes = change_points(30 if quick else len(COAL))
    print(table("Change points", [*header[:5], "free energy off by, nats", "converged"], changes))
    if not quick:
        save("discrete", {"coupled": rows, "change_points": changes})
