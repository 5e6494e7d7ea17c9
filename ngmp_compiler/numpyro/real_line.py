"""Numbers by a map from the real line: `exp` of a Gaussian variable, or a logistic function of one.

With a prior that has no kernel here, the density of NumPyro, with the Jacobian of that map, is a factor beside a wide
Normal that it is divided by: nothing of the model is approximated by it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import ngmp_kernels as kernels

from ..declare.functions import exp
from ..declare.inputs import unwrap
from ..declare.report import deterministic
from ..declare.sample import sample
from ..lift import linear
from ..lift.general import general
from ..lift.linear import Linear
from ..lift.values import Linked, Unlifted, is_random
from .site import Site, declare_general, spread

WIDE = 3.0  # how many times as wide as the prior the Normal beside it is


def exponential_of(site: Site, ours: Any) -> Linked:
    """`exp` of a variable `log_<name>`, reported under the name."""
    head, _, tail = site.name.rpartition("/")
    u = sample(f"{head}/log_{tail}" if head else f"log_{tail}", ours)
    deterministic(site.name, exp(u))
    site.notes.append("exp of a Gaussian variable")
    return Linked("exp", linear.of_variable(u, site.batch))


def on_the_line(site: Site, ours: Any) -> Any:
    """A Gaussian variable for a number by the map from the real line to its support; the prior is a factor."""
    support, batch = site.base.support, site.shape
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support in (constraints.positive, constraints.nonnegative, constraints.softplus_positive):
        form = None if ours is None else ours.log_form()
        if form is not None and all(not getattr(x, "is_expression", False) for x in form.arguments.values()):
            return exponential_of(site, spread(form, batch))
        centre, width = _standard(ours)
        value = exponential_of(site, kernels.Normal(_filled(centre, batch), std=WIDE * width))
        _prior(site, value.inner, jnp.exp, lambda u: u, centre, WIDE * width)
        return value
    if support in (constraints.real, constraints.real_vector):
        centre, width = _standard(ours)
        wide = kernels.Normal(_filled(centre, batch), std=WIDE * width)
        u = linear.of_variable(sample(site.name, wide), batch)
        _prior(site, u, lambda u: u, jnp.zeros_like, centre, WIDE * width)
        return u
    low, high = (getattr(support, k, None) for k in ("lower_bound", "upper_bound"))
    low, high = (0.0, 1.0) if support is constraints.unit_interval else (low, high)
    if low is None or is_random(low) or is_random(high):
        raise Unlifted
    return _bounded(site, low, high)


def _bounded(site: Site, low: Any, high: Any) -> Any:
    """Between two ends, or above one: the logistic function, or exp, of a Gaussian variable."""
    batch = site.shape
    head, _, tail = site.name.rpartition("/")
    word = "log" if high is None else "logit"
    name = f"{head}/{word}_{tail}" if head else f"{word}_{tail}"
    width = 1.0 if high is None else 1.7
    u = linear.of_variable(sample(name, kernels.Normal(_filled(0.0, batch), std=WIDE * width)), batch)
    low, high = unwrap(low), unwrap(high)

    def to_support(x: Any) -> Any:
        return low + (jnp.exp(x) if high is None else (high - low) * jax.nn.sigmoid(x))

    def log_slope(x: Any) -> Any:
        return x if high is None else jnp.log(high - low) + jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)

    _prior(site, u, to_support, log_slope, 0.0, WIDE * width)
    site.notes.append(f"a function of a Gaussian variable '{name}'")
    if high is not None and not isinstance(low, jax.Array) and np.all(low == 0) and np.all(high == 1):
        return Linked("sigmoid", u)
    return general(to_support, [u], batch)


def _filled(x: Any, batch: tuple[int, ...]) -> Any:
    return jnp.full(batch, x) if batch else x


def _standard(ours: Any) -> tuple[Any, Any]:
    """About where a prior is on the real line, and how wide: of constants."""
    if ours is None or any(getattr(x, "is_expression", False) for x in ours.arguments.values()):
        return 0.0, 1.5
    found = ours.standard(**{k: unwrap(x) for k, x in ours.arguments.items()})
    return tuple(jax.lax.stop_gradient(jnp.asarray(x)) for x in found)  # type: ignore[return-value]


def _prior(site: Site, u: Linear, to_support: Callable, log_slope: Callable, centre: Any, std: Any) -> None:
    """The prior as a factor, divided by the Normal that the variable was declared with."""
    leaves, rebuild = site.leaves()

    def log_density(u: Any, centre: Any, std: Any, *given: Any) -> Any:
        density = rebuild(list(given)).log_prob(to_support(u))
        return density + log_slope(u) - norm.logpdf(u, centre, std)

    if isinstance(site.base, dist.ImproperUniform):

        def log_density(u: Any, centre: Any, std: Any, *given: Any) -> Any:  # noqa: F811
            return log_slope(u) - norm.logpdf(u, centre, std)

        leaves = []
    declare_general(f"{site.name}_prior", general(log_density, [u, centre, std, *leaves], u.shape))
