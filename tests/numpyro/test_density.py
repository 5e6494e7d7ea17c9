"""The joint density of a declared NumPyro model is the one that NumPyro computes: every case of the benchmark.

Our variables are not always NumPyro's sites. Where they stand on the real line (`log_s`), or are a standard normal one
scaled and shifted, densities differ by the volume of that map; classes of a mixture are summed over.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import ngmp_compiler as ngmp

numpyro = pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
handlers = pytest.importorskip("numpyro.handlers")
util = pytest.importorskip("numpyro.infer.util")
biject_to = pytest.importorskip("numpyro.distributions").biject_to

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import numpyro_more_cases  # noqa: E402, F401
from numpyro_cases import CASES  # noqa: E402

sys.path.pop(0)

REFUSED = {"autoregression", "gaussian_process", "mixture", "capture_recapture"}  # without integration
OFF = {"negative_binomial": 1e-5}  # NumPyro's density is off by 1e-6 from that of scipy
SLOW = {
    "baseball_beta",
    "gaussian_process",
    "capture_recapture",
    "rasch",
    "admissions",
    "slopes",
    "softmax",
    "hidden_markov",
}
QUICK = {"schools_noncentred", "radon", "horseshoe", "beta_regression", "gamma_regression"}  # with messages alone


def alive(y, seed):
    """Histories that the captures allow: alive at the last one, dead some time after."""
    seen = np.flip(np.maximum.accumulate(np.flip(y, 0), 0), 0)
    later = np.random.default_rng(seed).integers(0, 4, y.shape[1])
    return jnp.asarray(np.arange(len(y))[:, None] < seen.sum(0) + later, int)


GIVEN = {
    "missing": lambda y, seed, **_: {"a": 0.3 * seed},  # an improper prior has no draws
    "capture_recapture": lambda y, seed: {"alive": alive(y, seed)},
}


def traced(model, inputs, given, seed=0):
    return handlers.trace(handlers.seed(handlers.substitute(model, given), seed)).get_trace(**inputs)


def latent(trace):
    return {k: s for k, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}


def on_the_line(name, sites):
    """The site that a variable such as `log_s`, `logit_p` or `c_base` stands for; None if it is none of these."""
    head, _, tail = name.rpartition("/")
    inner = tail.partition("_")[2] if tail.startswith(("log_", "logit_")) else tail.removesuffix("_base")
    found = f"{head}/{inner}" if head else inner
    return found if found in sites else None


def own(model, inputs, seed, names, given):
    """A prior draw as values of our variables, and the log-density of NumPyro there, of those."""
    trace = traced(model, inputs, given, seed)
    sites = latent(trace)
    values = {k: s["value"] for k, s in sites.items()}
    density = util.log_density(model, (), inputs, values)[0]
    out, left, shifted = {}, set(sites), []
    for name in names:
        site = name if name in sites else on_the_line(name, sites)
        if site is None:
            shifted += [name] if name in trace else []
            continue
        left.discard(site)
        out[name] = values[site]
        if site != name:
            to = biject_to(sites[site]["fn"].support)
            out[name] = to.inv(values[site])
            density += jnp.sum(to.log_abs_det_jacobian(out[name], values[site]))
    for name in shifted:
        out[name] = trace[name]["value"]
        (z,) = (k for k in left if values[k].shape == out[name].shape)
        left.discard(z)

        def line(x, name=name, z=z):
            return traced(model, inputs, {**values, z: x})[name]["value"]

        slope = jax.jvp(line, (values[z],), (jnp.ones_like(values[z]),))[1]
        density -= jnp.sum(jnp.log(jnp.abs(slope)))
    assert not left, f"no variable stands for {left}"
    return out, density


def summed(density, values, name, rows, classes):
    """The log-density with one class for each row summed over, rows being independent."""
    first = jnp.zeros(rows, int)
    base = density({**values, name: first})
    i, c = (x.reshape(-1) for x in np.mgrid[:rows, :classes])
    each = jax.vmap(lambda i, c: density({**values, name: first.at[i].set(c)}))(i, c)
    return base + jnp.sum(logsumexp(each.reshape(rows, classes) - base, axis=1))


def compare(name, integrate):
    model, inputs, *_ = CASES[name]
    program = ngmp.compile(ngmp.from_numpyro(model), integrate=integrate)
    front = program.declared(**inputs)
    names = [*front.rolled.collections, *front.integrated]
    for seed in (1, 2):
        given = GIVEN[name](seed=seed, **inputs) if name in GIVEN else {}
        values, expected = own(model, inputs, seed, names, given)
        if name == "mixture":
            found = summed(lambda v: program.log_joint(v, **inputs), values, "y_component", len(inputs["y"]), 2)
        else:
            found = program.log_joint(values, **inputs)
        assert np.isfinite(expected) and abs(expected) < 1e6
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=max(1e-9, OFF.get(name, 0.0)))


def cases(names, quick):
    return [pytest.param(n, marks=[] if n in quick else [pytest.mark.slow]) for n in names]


def test_every_case_is_compared():
    assert len(CASES) >= 36 and SLOW | QUICK | REFUSED | set(OFF) | set(GIVEN) <= set(CASES)


@pytest.mark.parametrize("name", cases(CASES, set(CASES) - SLOW))
def test_with_integrated_numbers(name):
    compare(name, "auto")


@pytest.mark.parametrize("name", cases([n for n in CASES if n not in REFUSED], QUICK))
def test_with_messages_alone(name):
    compare(name, ())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_names_the_line(name):
    model, inputs, *_ = CASES[name]
    with pytest.raises(ngmp.ModelError, match=r"numpyro_(more_)?cases\.py:\d+"):
        ngmp.compile(ngmp.from_numpyro(model)).lower(**inputs)
