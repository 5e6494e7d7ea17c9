r"""Integrated sites: hyperparameters that stand as numbers while a model is declared.

A site that `integrate=` names is not a variable of the graph: `ngmp.sample` returns its value, a traced number, and the
site itself is declared as if that value had been observed, so that its prior is part of the evidence. Values come from
standard coordinates $v$, one for every number: $u = c + b(v)$ where c is about the median of the prior and b has its
spread as the slope at zero (`supports.stretched`), and $\theta = T(u)$ maps the real line to the support. The logarithm
of $|d\theta/dv|$ is kept beside it.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ngmp_kernels.numerics.supports import from_real, log_slope, stretched

from ..errors import ModelError, Problem
from .expressions import kinds_of
from .inputs import Input, unwrap

SLOTS = 64  # coordinates that a program has room for
MOST = 8  # numbers in one integrated site
COMBINATIONS = 10_000  # of classes that are summed: each has a grid of its own


class Integrated(NamedTuple):
    """One integrated site: its value, and where in the coordinates it comes from."""

    value: Array  # (), or (k,) for a small plate or proportions
    log_jacobian: Float[Array, ""]
    start: int
    size: int  # coordinates; 0 for a class, which takes one slot
    classes: int  # 0: continuous
    support: str
    ends: tuple[Array, Array]  # of the interval that the value is in, where the support is one
    why: str = ""


AUTO = "auto"
ASKED = "integrate= names it"


class Coordinates:
    """The standard coordinates that a model is declared at, and the sites that have taken some of them.

    Args:
        names: the sites that are to be integrated, and why.
        v: their coordinates, more than are needed.
        automatic: whether to integrate sites that have no family as well, and to note what else might be.
        direct: whether `v` are the values themselves, and no coordinates.
    """

    def __init__(
        self, names: dict[str, str], v: Float[Array, " slots"], automatic: bool = False, direct: bool = False
    ):
        self.names, self.v, self.automatic, self.direct, self.used = names, v, automatic, direct, 0
        self.found: dict[str, Integrated] = {}
        self.candidates: dict[str, str] = {}  # scalars that no Gaussian part holds, in case nothing else works

    def wants(self, name: str, distribution: Any, batch: tuple[int, ...], observed: bool) -> bool:
        """Whether a site is to be integrated: of plates the small ones, as long as there are few numbers in all."""
        number = distribution.support not in (None, "classes", "simplex")
        given = all(kind == "constant" for kind in kinds_of(distribution.arguments).values())
        if self.automatic and not observed and number and given:
            label, few = distribution.label, not batch or self.used + int(np.prod(batch)) <= MOST
            if distribution.family is None and few:
                self.names.setdefault(name, f"{label} has no family that messages could be in")
            elif distribution.family is not None and distribution.family.core == "product" and not batch:
                self.candidates[name] = f"there is no kernel where this {label} stands"
        return name in self.names

    def draw(self, name: str, distribution: Any, arguments: dict[str, Any], batch: tuple[int, ...]) -> Array:
        """The value of an integrated site, of the shape of its parameters."""
        arguments = {k: jnp.asarray(unwrap(x), self.v.dtype) for k, x in arguments.items()}
        if distribution.support == "classes":
            site = self._class(arguments)
        elif distribution.support == "simplex":
            site = self._simplex(arguments)
        else:
            site = self._numbers(distribution, arguments, batch)
        if self.direct and not site.classes:
            site = site._replace(value=self._given(site))
        self.used += max(site.size, 1)
        self.found[name] = site._replace(why=self.names[name])
        combinations = math.prod(s.classes or 1 for s in self.found.values())
        if combinations > COMBINATIONS:
            works = f"at most {COMBINATIONS} are summed: leave one of them to message passing, or give it fewer classes"
            given = f"integrate= names classes with {combinations} combinations in all"
            raise ModelError(Problem(name, None, given, works))
        return site.value

    def _given(self, site: Integrated) -> Array:
        """The value of a site, read where its coordinates would be."""
        own = self.v[self.used : self.used + site.size]
        if site.support == "simplex":
            return jnp.append(own, 1 - jnp.sum(own))
        return own.reshape(site.value.shape)

    def _class(self, arguments: dict[str, Array]) -> Integrated:
        table = arguments.get("probs", arguments.get("logits"))
        classes = table.shape[-1] if table is not None and table.ndim else 2
        value = jnp.round(self.v[self.used]).astype(int)
        return Integrated(value, jnp.zeros((), self.v.dtype), self.used, 0, classes, "classes", self._unit())

    def _simplex(self, arguments: dict[str, Array]) -> Integrated:
        """Proportions as a softmax with the last score zero: $\\log |d\\theta/du| = \\sum_k \\log \\theta_k$."""
        size = arguments["concentration"].shape[-1] - 1
        two = jnp.full(size, 2.0, self.v.dtype)
        scores, slope = stretched("simplex", self.v[self.used : self.used + size], two)
        logs = jax.nn.log_softmax(jnp.append(scores, 0.0))
        jacobian = jnp.sum(logs) + jnp.sum(slope)
        return Integrated(jnp.exp(logs), jacobian, self.used, size, 0, "simplex", self._unit())

    def _unit(self) -> tuple[Array, Array]:
        return jnp.zeros((), self.v.dtype), jnp.ones((), self.v.dtype)

    def _numbers(self, distribution: Any, arguments: dict[str, Array], batch: tuple[int, ...]) -> Integrated:
        size = int(np.prod(batch))
        rows = {k: jnp.broadcast_to(x, batch).reshape(size) for k, x in arguments.items()}
        standard = jax.lax.stop_gradient(distribution.standard(**rows))
        centre, spread = (jnp.broadcast_to(jnp.asarray(x, self.v.dtype), size) for x in standard)
        support, ends = distribution.support, self._unit()
        off, slope = stretched(support, self.v[self.used : self.used + size], spread)
        u = centre + off
        if bounded := support in ("interval", "above", "below"):
            low, high = (jnp.broadcast_to(jnp.asarray(x, self.v.dtype), size) for x in distribution.ends(**rows))
            ends = low, high
        jacobian = jnp.sum(log_slope(support, u, ends) + slope)
        value = from_real(support, u, ends).reshape(batch)
        ends = tuple(jnp.reshape(x, batch if bounded else ()) for x in ends)
        return Integrated(value, jacobian, self.used, size, 0, support, ends)  # type: ignore[arg-type]


def integrate(coordinates: Coordinates, name: str, distribution: Any, batch: tuple[int, ...], inside: bool) -> Any:
    """The value of a site that is to be integrated; refused, in words, where it cannot be."""
    problem = _refusal(coordinates, name, distribution, batch, inside)
    if problem is not None:
        raise ModelError(problem)
    return Input(coordinates.draw(name, distribution, distribution.arguments, batch))


def _refusal(
    coordinates: Coordinates, name: str, distribution: Any, batch: tuple[int, ...], inside: bool
) -> Problem | None:
    if inside:
        works = "declare it before the loop, and use its value inside"
        return Problem(name, None, "integrate= names a site in the body of an ngmp.scan", works)
    if name in coordinates.found:
        return Problem(name, None, "integrate= names a site that is declared twice", "give each a name of its own")
    if distribution.support is None:
        works = "integrate numbers, small plates, proportions (Dirichlet) and classes (Categorical)"
        return Problem(name, None, f"integrate= names a {distribution.label} site", works)
    for argument, kind in kinds_of(distribution.arguments).items():
        if kind != "constant":
            given = f"integrate= names it, but its {argument} depends on a variable that is not integrated"
            works = f"integrate that variable too, declared before '{name}', or leave '{name}' to message passing"
            return Problem(name, f"argument {argument}", given, works)
    size = int(np.prod(batch))
    if size > MOST or (size > 1 and distribution.support in ("classes", "simplex")):
        works = f"a site of at most {MOST} numbers, or of one class or one vector of proportions, can be integrated"
        return Problem(name, None, f"integrate= names a plate of shape {batch}", works)
    if coordinates.used + size > SLOTS:
        return Problem(name, None, f"integrate= names more than {SLOTS} numbers in all", "integrate fewer of them")
    return None
