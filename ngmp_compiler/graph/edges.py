"""Edges: what the interfaces of n factors stand on.

Gaussian interfaces stand on affine functionals, others on a variable each, or on a table of classes. What all passes
ask of them is in `AbstractEdge`; only the pass that makes them and those that take them apart know which is which.
"""

import abc
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ngmp_kernels.families import AbstractFamily, Categorical, Gaussian, MvGaussian

from .index import IndexMap
from .planes import Plane

Marginals = Mapping[Plane, Any]  # of all variables of a plane, or what messages say of them


class Link(NamedTuple):
    """One variable of an affine functional: `op(coefficient, plane[index])`."""

    plane: Plane
    index: IndexMap
    op: str
    coefficient: Any  # (n|1), (n|1, D) or (n|1, m, D); None is one

    def __str__(self) -> str:
        return {"scale": "", "dot": "dot ", "matmul": "A@ "}[self.op] + f"{self.plane}[{self.index}]"


class AbstractEdge(eqx.Module):
    """n interfaces; printed, it says what it touches."""

    n: eqx.AbstractVar[int]
    family: eqx.AbstractVar[type[AbstractFamily]]
    event_shape: eqx.AbstractVar[tuple[int, ...]]
    plane: eqx.AbstractVar[Plane | None]  # whose variables stand there, one each; None where it takes several
    shared: eqx.AbstractVar[bool]  # whether one row stands for all n, so that nodes are placed once

    @abc.abstractmethod
    def ends(self) -> tuple[Link, ...]:
        """The variables under it."""

    @abc.abstractmethod
    def marginal(self, planes: Marginals, joint: Any = None) -> Any:
        """Its marginals (n,): those of its variables; of several variables the `joint` one, or as if independent."""

    @abc.abstractmethod
    def prior(self, totals: Marginals, dtype: Any) -> Any:
        """What to start from, given the sums of the conjugate messages on variables."""

    def labels(self, interface: str) -> tuple[str, ...]:
        """What each of its variables is at the interface of this name."""
        return (interface,) * len(self.ends())

    def __str__(self) -> str:
        return " + ".join(map(str, self.ends()))


class Functional(AbstractEdge):
    """n affine functionals `r = sum_j coefficient_j x_j + offset`, scalars or vectors of length `width`."""

    links: tuple[Link, ...]
    offset: Any  # (n|1, *event)
    n: int
    width: int | None  # None: scalar
    family: type[AbstractFamily] = eqx.field(init=False, static=True)
    event_shape: tuple[int, ...] = eqx.field(init=False, static=True)
    plane: None = eqx.field(init=False, static=True)
    shared: bool = eqx.field(init=False, static=True)  # of vectors only: numbers have few nodes

    def __post_init__(self) -> None:
        self.family, self.event_shape = (Gaussian, ()) if self.width is None else (MvGaussian, (self.width,))
        self.plane = None  # set, as copies of a Module of equinox 0.13 that lacks a field are not equal to it
        numbers = [self.offset, *(link.coefficient for link in self.links)]
        one = all(x is None or x.shape[0] == 1 for x in numbers)
        self.shared = self.width is not None and one and all(link.index.kind == "one" for link in self.links)

    def ends(self) -> tuple[Link, ...]:
        return self.links

    def moments(self, planes: Marginals) -> tuple[Array, Array]:
        """Means and (co)variances where the variables are independent of each other."""
        mean: Any = self.offset
        spread: Any = 0.0
        for plane, index, op, c in self.links:
            m, v = _linear(op, c, index.take(planes[plane].mean), index.take(planes[plane].covariance), plane)
            mean, spread = mean + m, spread + v
        return mean, spread

    def marginal(self, planes: Marginals, joint: Any = None) -> Any:
        return self.family.from_mean_covariance(*self.moments(planes)) if joint is None else joint  # type: ignore[attr-defined]

    def prior(self, totals: Marginals, dtype: Any) -> Any:
        """N(0, 1): what is known of its variables is known jointly."""
        return self.family.standard((self.n,), self.event_shape, dtype)  # type: ignore[attr-defined]


def _linear(op: str, c: Any, m: Array, v: Array, plane: Plane) -> tuple[Array, Array]:
    """Mean and (co)variance of `c x`."""
    if op == "scale":
        a = jnp.ones(1, m.dtype) if c is None else jnp.asarray(c)
        return a.reshape(-1, *(1,) * (m.ndim - 1)) * m, (a**2).reshape(-1, *(1,) * (v.ndim - 1)) * v
    if op == "dot":
        return jnp.einsum("...d,...d->...", c, m), jnp.einsum("...d,...de,...e->...", c, v, c)
    if not plane.event_shape:  # stacked scalars
        m, v = m[..., None], v[..., None, None]
    return jnp.einsum("...md,...d->...m", c, m), jnp.einsum("...md,...de,...ke->...mk", c, v, c)


class PlaneEdge(AbstractEdge):
    """n interfaces that are variables of a non-Gaussian plane."""

    plane: Plane = eqx.field(static=True)
    index: IndexMap
    n: int = eqx.field(init=False)
    family: type[AbstractFamily] = eqx.field(init=False, static=True)
    event_shape: tuple[int, ...] = eqx.field(init=False, static=True)
    shared: bool = eqx.field(init=False, static=True)

    def __post_init__(self) -> None:
        self.n, (self.family, self.event_shape) = self.index.n, self.plane
        self.shared = self.index.kind == "one" and self.family.core == "product"

    def ends(self) -> tuple[Link, ...]:
        return (Link(self.plane, self.index, "scale", None),)

    def marginal(self, planes: Marginals, joint: Any = None) -> Any:
        return jax.tree.map(self.index.take, planes[self.plane])

    def prior(self, totals: Marginals, dtype: Any) -> Any:
        """Its conjugate messages."""
        return self.marginal(totals)


class TableEdge(AbstractEdge):
    """n joint interfaces over two or more categorical variables, the axes of a table.

    As an interface it is one categorical variable, whose classes are the cells of the table in row-major order.
    """

    sides: tuple[PlaneEdge, ...]
    n: int = eqx.field(init=False)
    shape: tuple[int, ...] = eqx.field(init=False, static=True)
    event_shape: tuple[int, ...] = eqx.field(init=False, static=True)
    family: type[AbstractFamily] = eqx.field(init=False, static=True)
    plane: None = eqx.field(init=False, static=True)
    shared: bool = eqx.field(init=False, static=True)

    def __post_init__(self) -> None:
        self.n, self.shape = self.sides[0].n, tuple(side.event_shape[0] for side in self.sides)
        self.event_shape = (math.prod(self.shape),)
        self.family, self.plane, self.shared = Categorical, None, False

    def ends(self) -> tuple[Link, ...]:
        return tuple(end for side in self.sides for end in side.ends())

    def marginal(self, planes: Marginals, joint: Any = None) -> Any:
        if joint is not None:
            return joint
        logits = (jax.nn.log_softmax(side.marginal(planes).eta1, -1) for side in self.sides)
        return Categorical(functools.reduce(lambda a, b: (a[:, :, None] + b[:, None, :]).reshape(self.n, -1), logits))

    def prior(self, totals: Marginals, dtype: Any) -> Any:
        return Categorical.flat((self.n,), self.event_shape, dtype)

    def labels(self, interface: str) -> tuple[str, ...]:
        """A table's interface names its axes: "(z, out)"."""
        return tuple(interface.strip("()").split(", "))

    def __str__(self) -> str:
        return " x ".join(map(str, self.sides))
