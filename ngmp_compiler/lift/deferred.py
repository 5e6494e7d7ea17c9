"""Standard normal variables that are only multiplied by a random scale, and shifted: declared as what that makes them.

`a = m + exp(s) * z` with z standard normal is `a ~ Normal(m, std=exp(s))`, the centred graph, in which the scale has a
kernel. Where the scale turns out to be a number, z is declared as it stands.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .linear import Linear
from .values import Linked, Native, is_random, whole_shape

_THROUGH = {"broadcast_in_dim", "reshape", "convert_element_type", "squeeze", "expand_dims", "copy"}


class Deferred:
    """A standard normal array that was not declared yet, times `scale`, which is None for one.

    `declare(mean, scale)` declares Normal variables of the shape, and returns their value. It is called once: the
    array is used once, and so is its product with a scale where something is added to that (`shifted`).
    """

    is_random = True

    def __init__(
        self, shape: tuple[int, ...], declare: Callable[[Any, Any], Linear], shifted: bool, scale: Any = None
    ):
        self.shape, self.declare, self.shifted, self.scale = shape, declare, shifted, scale

    def settled(self, mean: Any = None) -> Linear:
        """The variables, with a mean of zero or the one that is given."""
        return self.declare(mean, self.scale)


def settled(x: Any) -> Any:
    return x.settled() if isinstance(x, Deferred) else x


def deferred(name: str, shape: tuple[int, ...], given: list[Any]) -> Any:
    """An equation of a deferred value as one, or as the variables that it becomes; None: it has to be settled."""
    if name in _THROUGH and shape == given[0].shape:
        return given[0]
    if len(given) != 2 or isinstance(given[0], Deferred) == isinstance(given[1], Deferred):
        return None
    x, y = given if isinstance(given[0], Deferred) else given[::-1]
    if name == "mul" and x.scale is None and shape == x.shape:
        if isinstance(y, Native) or isinstance(y, Linked) and y.link == "exp":
            return Deferred(shape, x.declare, True, y) if x.shifted else x.declare(None, y)
    if name == "add" and x.scale is not None and shape == x.shape and (isinstance(y, Linear) or not is_random(y)):
        return x.settled(whole_shape(y, shape))
    return None


def only_scaled(jaxpr: Any) -> dict[str, tuple[Any, bool]]:
    """Latent variables whose only use is a product, by name: the variable that this is, or a sum that is its only use,
    and whether it is a sum."""
    uses: dict[Any, list[Any]] = {}
    for e in jaxpr.eqns:
        for v in e.invars:
            if not hasattr(v, "val"):
                uses.setdefault(v, []).append(e)
    outputs = {v for v in jaxpr.outvars if not hasattr(v, "val")}

    def only(v: Any, *names: str) -> Any:
        own = uses.get(v, [])
        return own[0] if len(own) == 1 and v not in outputs and own[0].primitive.name in names else None

    found = {}
    for e in jaxpr.eqns:
        if e.primitive.name != "latent":
            continue
        v = e.outvars[0]
        while (step := only(v, *_THROUGH)) is not None and step.outvars[0].aval.shape == v.aval.shape:
            v = step.outvars[0]
        product = only(v, "mul")
        if product is not None and product.outvars[0].aval.shape == np.shape(v.aval):
            total = only(product.outvars[0], "add")
            found[e.params["name"]] = (total or product).outvars[0], total is not None
    return found
