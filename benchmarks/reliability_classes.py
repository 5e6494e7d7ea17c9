"""Models of the reliability campaign with classes: mixtures, hidden states, tables, and the conjugate pairs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from reliability_draws import Draw, Template

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Bernoulli, Beta, Binomial, Categorical, Dirichlet, Gamma, Normal, Poisson, broadcast_to, take


def mixture_inputs(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    y = np.where(d.rng.random(20) < 0.4, d.reals(20), d.reals(20) + 6.0)
    return {
        "y": y, "mask": d.mask(20), "centres": np.array([-1.0, 1.0]) + d.centre(10.0), "variance": d.variance(),
        "shape": a, "rate": b, "concentration": d.log_uniform(-1, 1),
    }  # fmt: skip


def switched(y, seen, m, v, p, r):
    """Noise whose mean and variance a class picks from constants, about an unknown mean."""
    x = ngmp.sample("x", Normal(m, variance=v))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(p, (8, 2))))
    ngmp.sample("y", Normal(x, variance=take(r, z)), obs=y, mask=seen)


def known_classes(y, counts, seen, p, c, r):
    """Classes with known parameters: conjugate."""
    z = ngmp.sample("z", Categorical(probs=jnp.broadcast_to(p, (8, 2))))
    ngmp.sample("y", Normal(take(c, z), variance=take(r, z)), obs=y, mask=seen)
    ngmp.sample("n", Poisson(take(r, z)), obs=counts, mask=seen)


def switched_inputs(d: Draw) -> dict[str, Any]:
    r = d.noise() * np.array([1.0, d.log_uniform(0, 4)])
    return {"y": d.reals(8), "seen": d.mask(8), "m": d.centre(), "v": d.variance(), "p": d.simplex(2), "r": r}


def known_class_inputs(d: Draw) -> dict[str, Any]:
    inputs = switched_inputs(d)
    return {k: inputs[k] for k in ("y", "seen", "p", "r")} | {"counts": d.counts(8), "c": d.reals(2)}


def count_mixture(y, seen, p, a, b):
    """Rates of two classes."""
    rate = ngmp.sample("rate", Gamma(a * jnp.ones(2), rate=b * jnp.array([1.0, 3.0])))
    z = ngmp.sample("z", Categorical(probs=jnp.broadcast_to(p, (8, 2))))
    ngmp.sample("y", Poisson(take(rate, z)), obs=y, mask=seen)


def count_mixture_inputs(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {"y": d.counts(8), "seen": d.mask(8), "p": d.simplex(2), "a": a, "b": b}


def hmm_inputs(d: Draw) -> dict[str, Any]:
    return {
        "y": d.labels(4, 20), "initial": d.simplex(3), "transition": d.simplex(3, 3), "emission": d.simplex(3, 4),
        "mask": d.mask(20),
    }  # fmt: skip


def learned_inputs(d: Draw) -> dict[str, Any]:
    size = d.log_uniform(-1, 3) if d.corner else d.log_uniform(0, 1)
    emission = 0.1 * size + size * (np.arange(4) == np.arange(3)[:, None])
    return {"y": d.labels(4, 20), "transition": size * np.ones((3, 3)), "emission": emission, "mask": d.mask(20)}


def gaussian_states(y, seen, transition, m, v, r):
    """Hidden states with unknown levels."""
    levels = ngmp.sample("m", Normal(m + jnp.arange(2.0), variance=v))

    def step(z, x):
        z = ngmp.sample("z", Categorical(probs=take(transition, z)))
        ngmp.sample("y", Normal(take(levels, z), variance=r), obs=x[0], mask=x[1])
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.full(2, 0.5))), (y, seen))


def gaussian_state_inputs(d: Draw) -> dict[str, Any]:
    return {
        "y": d.reals(20), "seen": d.mask(20), "transition": d.simplex(2, 2), "m": d.centre(10.0), "v": d.variance(),
        "r": d.noise(),
    }  # fmt: skip


def pairs(hits, total, flags, counts, labels, seen, a, b, c):
    """Conjugate pairs: Beta and binomial or Bernoulli, Gamma and Poisson, Dirichlet and categorical."""
    p = ngmp.sample("p", Beta(a, b))
    ngmp.sample("hits", Binomial(total, probs=p), obs=hits, mask=seen)
    ngmp.sample("flags", Bernoulli(probs=p), obs=flags, mask=seen)
    ngmp.sample("counts", Poisson(ngmp.sample("rate", Gamma(a, rate=b))), obs=counts, mask=seen)
    pi = ngmp.sample("pi", Dirichlet(c))
    ngmp.sample("labels", Categorical(probs=broadcast_to(pi, (8,))), obs=labels, mask=seen)


def pair_inputs(d: Draw) -> dict[str, Any]:
    total, hits = d.trials(8)
    a, b = d.gamma()
    return {
        "hits": hits, "total": total, "flags": d.classes(8), "counts": d.counts(8), "labels": d.labels(3, 8),
        "seen": d.mask(8), "a": a, "b": b, "c": d.log_uniform(-2, 2, 3),
    }  # fmt: skip


def switch(y, seen, logit, m, v, u):
    """A hidden Bernoulli variable and a Gaussian one at one log-density; and a datum that nothing hidden made."""
    z, x = ngmp.sample("z", Bernoulli(logits=logit)), ngmp.sample("x", Normal(m, variance=v))
    ngmp.factor("y", lambda z, x, y, seen: -0.5 * seen * (y - x - 2.0 * z) ** 2, z, x, y, seen * 1.0)
    ngmp.sample("u", Normal(0.0, variance=1.0), obs=u)


def switch_inputs(d: Draw) -> dict[str, Any]:
    return {
        "y": d.reals(8), "seen": d.mask(8), "logit": d.log_centre(), "m": d.centre(10.0), "v": d.variance(),
        "u": d.reals(1),
    }  # fmt: skip


TEMPLATES = {
    "mixture": Template(ngmp_models.gaussian_mixture, mixture_inputs),
    "mixture, VMP": Template(ngmp_models.gaussian_mixture, mixture_inputs, {"method": ngmp.VMP()}),
    "switched noise": Template(switched, switched_inputs),
    "known classes": Template(known_classes, known_class_inputs),
    "count mixture": Template(count_mixture, count_mixture_inputs),
    "HMM": Template(ngmp_models.hmm, hmm_inputs),
    "HMM, learned": Template(ngmp_models.learned_hmm, learned_inputs),
    "HMM, levels": Template(gaussian_states, gaussian_state_inputs),
    "conjugate pairs": Template(pairs, pair_inputs),
    "Bernoulli switch": Template(switch, switch_inputs),
}
