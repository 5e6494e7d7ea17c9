"""Latent sites: which variables stand for them, and the value that the rest of the model sees."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

import ngmp_kernels as kernels

from ..declare.frame import attempt, outermost
from ..declare.inputs import unwrap
from ..declare.sample import sample
from ..declare.through import fits
from ..declare.variables import Variable
from ..lift import linear
from ..lift.general import Whole
from ..lift.interpret import Broken, Stuck
from ..lift.linear import Linear
from ..lift.values import (
    Native,
    Unlifted,
    Vectors,
    expression,
    is_random,
    whole_shape,
)
from .classes import classes
from .correlation import correlation
from .observed import converted, noise
from .ordered import Ordered
from .real_line import exponential_of, on_the_line
from .site import Site, integrated, spread


def declare(site: Site, contracted: bool, natively: Callable[[str], bool]) -> Any:
    """Declare a latent site; the value that the rest of the model sees.

    Args:
        site: what was recorded of it.
        contracted: whether its last axis is summed over, with or without weights.
        natively: whether a site of that name may be of its own family.
    """
    base = site.base
    if site.mask is not None and not _all(site.mask):
        if site.name.endswith("_unobserved"):  # the half of an obs_mask that nothing is known of
            return Broken(Stuck("obs_mask", "what is missing is left to predictions"), site.shape)
        raise Unlifted
    if site.scale is not None:
        raise Unlifted  # a power of a prior
    if isinstance(base, dist.Delta):
        return base.v
    if base.support.is_discrete:
        return classes(site)
    special = _SPECIAL.get(type(base).__name__)
    if special is not None:
        return special(site, contracted)
    ours = _with_kernel(site)
    if ours is None and not any(map(is_random, site.leaves()[0])) and not site.batch and not site.event_ndim:
        ours = _density(site)
    if ours is not None and integrated(site.name, ours, site.batch):
        site.notes.append("integrated: a number")
        return sample(site.name, spread(ours, site.batch) if site.batch else ours)
    family = type(base).__name__
    if ours is not None and natively(site.name) and ours.family is not None and fits(ours, ours.family.kind):
        if family in ("Gamma", "InverseGamma", "Beta", "Exponential"):
            return Native(sample(site.name, spread(ours, site.batch)))
        if family == "Dirichlet":
            return Vectors(sample(site.name, spread(ours, site.batch)))
        if ours.support == "real":
            return linear.of_variable(sample(site.name, spread(ours, site.batch)), site.shape)
    return on_the_line(site, ours)


def _with_kernel(site: Site) -> Any:
    """The distribution of this language, or None; with random parameters only where it has a kernel for them."""
    try:
        with attempt():
            ours = converted(site)
            if any(map(is_random, site.leaves()[0])) and (ours.family is None or not fits(ours, ours.family.kind)):
                raise Unlifted
            return ours
    except Unlifted:
        return None


def _all(mask: Any) -> bool:
    return not isinstance(mask, Tracer) and bool(np.all(mask))


def _density(site: Site) -> Any:
    """A density of one number that has no other name here."""
    leaves, rebuild = site.leaves()
    d, support = rebuild(leaves), site.base.support
    names = (("real", constraints.real), ("positive", constraints.positive), ("positive", constraints.nonnegative),
             ("unit", constraints.unit_interval))  # fmt: skip
    known: Any = next((name for name, own in names if support is own), None)
    ends = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if known is None and all(isinstance(e, (int, float)) for e in ends):
        known = ends
    if known is None and isinstance(ends[0], (int, float)) and ends[0] == 0 and ends[1] is None:
        known = "positive"
    return None if known is None else kernels.Density(lambda x: d.log_prob(x), known)


def _normal(site: Site, contracted: bool) -> Any:
    """Scalars; or a vector, if its entries are summed and its scale is constant."""
    base, shape = site.base, site.shape
    scale = noise(site)
    mean = base.loc
    if isinstance(mean, Whole):
        raise Unlifted
    if len(shape) <= 1 and "std" in scale and integrated(site.name, kernels.Normal(0.0, std=1.0), shape):
        if not is_random(mean) and not is_random(base.scale):
            return sample(site.name, kernels.Normal(whole_shape(unwrap(mean), shape), **scale))
    constant = "std" in scale and not getattr(scale["std"], "is_expression", False)
    if contracted and constant and (isinstance(mean, Linear) or not is_random(mean)):
        site.note("loc", mean)
        site.notes.append("a vector")
        centre = whole_shape(mean if is_random(mean) else unwrap(mean), shape)
        variance = jnp.broadcast_to(jnp.asarray(unwrap(scale["std"])) ** 2, shape)
        vector = centre.vector() if is_random(centre) else centre
        out = sample(site.name, kernels.MvNormal(vector, covariance=variance))
        return linear.of_variable(out, shape, len(shape) - 1)
    site.note("loc", mean)
    centre = expression(whole_shape(mean, shape)) if is_random(mean) else _whole_number(unwrap(mean), shape)
    return _value(sample(site.name, kernels.Normal(centre, **scale)), shape)


def is_standard(site: Site) -> bool:
    """Whether a site is standard normal, and no number that is integrated."""
    base, known = site.base, isinstance(site.base, dist.Normal)
    parts = [unwrap(x) for x in (base.loc, base.scale)] if known and site.mask is None else []
    if not parts or any(is_random(x) or isinstance(x, Tracer) for x in parts):
        return False
    one = bool(np.all(np.asarray(parts[0]) == 0) and np.all(np.asarray(parts[1]) == 1))
    return one and not integrated(site.name, kernels.Normal(0.0, std=1.0), site.shape)


def declare_scaled(site: Site, name: str, mean: Any, scale: Any) -> Linear:
    """A standard normal site as it stands, or times a random scale and shifted."""
    own = Site(site.name if scale is None else name, site.base, None, None, site.line)
    own.shape, own.base = site.shape, dist.Normal(0.0, 1.0)
    own.base.loc, own.base.scale = (0.0 if mean is None else mean), (1.0 if scale is None else scale)
    return _normal(own, False)


def _whole_number(x: Any, shape: tuple[int, ...]) -> Any:
    """A constant of the whole shape; a number that is known stays one."""
    if not shape and not isinstance(x, jax.Array):
        return float(x)
    return whole_shape(x, shape)


def _value(out: Any, shape: tuple[int, ...]) -> Any:
    return linear.of_variable(out, shape) if isinstance(out, Variable) else out


def _mv_normal(site: Site, contracted: bool) -> Any:
    site.base.loc = whole_shape(site.base.loc, site.shape)  # a covariance has no axes of a plate
    ours = converted(site)
    if not fits(ours, "mvgaussian"):
        raise Unlifted
    return linear.of_variable(sample(site.name, ours), site.shape, len(site.shape) - 1)


def _log_normal(site: Site, contracted: bool) -> Any:
    ours = kernels.LogNormal(site.number("loc"), std=site.number("scale"))
    if integrated(site.name, ours, site.batch):
        return sample(site.name, spread(ours, site.batch) if site.batch else ours)
    return exponential_of(site, _log_of(site))


def _log_of(site: Site) -> Any:
    mean = site.base.loc
    mean = expression(whole_shape(mean, site.batch)) if is_random(mean) else _whole_number(unwrap(mean), site.batch)
    return kernels.Normal(mean, **noise(site))


def _random_walk(site: Site, contracted: bool) -> Any:
    """A chain: the first step from zero, the others each from the one before."""
    from ..declare.scan import scan

    steps = site.shape[-1]
    if site.batch:
        raise Unlifted
    scale = noise(site)
    first = sample(site.name, kernels.Normal(0.0, **scale))

    def step(x: Any, _: Any) -> tuple[Any, None]:
        return sample(site.name, kernels.Normal(x, **scale)), None

    if steps > 1:
        scan(step, first, None, length=steps - 1)
    return linear.of_variable(declared(site.name, first), site.shape)


def declared(name: str, like: Variable) -> Variable:
    """All variables of a name, in order."""
    frame = like.frame
    node = frame.nodes[frame.prefix + name]
    return Variable(frame, node.plane, node.positions())


def _transformed(site: Site, contracted: bool) -> Any:
    """A Gaussian distribution after transformations that the interpreter can follow."""
    base = site.base
    kinds = [type(t).__name__ for t in base.transforms]
    inner = Site(site.name, base.base_dist, None, None, site.line)
    if kinds == ["OrderedTransform"] and type(inner.base).__name__ == "Normal":
        inner.name = f"{site.name}_base"
        inner.shape = site.shape
        coordinates = outermost().coordinates
        if coordinates is not None:
            if site.name in coordinates.names:
                coordinates.names[inner.name] = coordinates.names.pop(site.name)
            coordinates.candidates[inner.name] = "there is no kernel where these ordered numbers stand"
        value = _normal(inner, True)
        return Ordered(value) if is_random(value) else OrderedTransform()(value)
    raise Unlifted


_SPECIAL: dict[str, Callable] = {
    "Normal": _normal, "MultivariateNormal": _mv_normal, "LogNormal": _log_normal,
    "ImproperUniform": lambda site, _: on_the_line(site, None),
    "GaussianRandomWalk": _random_walk, "TransformedDistribution": _transformed,
    "LKJ": correlation, "LKJCholesky": correlation,
}  # fmt: skip
