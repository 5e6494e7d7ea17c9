"""Edges: what the interfaces of n factors stand on.

Each has a `family` and an `event_shape`, `ends()`, the variables under it, a `prior` to start from and, printed, says
what it touches. Gaussian interfaces stand on affine functionals, others on a variable each, or on a table of classes.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ngmp_kernels.families import AbstractFamily, Categorical, Gaussian, MvGaussian

from .index import IndexMap
from .planes import Plane

Totals = Mapping[Plane, Any]  # the sum of the conjugate messages on the variables of a plane


class Link(NamedTuple):
    """One variable of an affine functional: `op(coefficient, plane[index])`."""

    plane: Plane
    index: IndexMap
    op: str
    coefficient: Any  # (n|1), (n|1, D) or (n|1, m, D); None is one

    def __str__(self) -> str:
        return {"scale": "", "dot": "dot ", "matmul": "A@ "}[self.op] + f"{self.plane}[{self.index}]"


class Functional(NamedTuple):
    """n affine functionals `r = sum_j coefficient_j x_j + offset`, scalars or vectors of length `width`."""

    links: tuple[Link, ...]
    offset: Any  # (n|1, *event)
    n: int
    width: int | None  # None: scalar

    @property
    def family(self) -> type[AbstractFamily]:
        return Gaussian if self.width is None else MvGaussian

    @property
    def event_shape(self) -> tuple[int, ...]:
        return () if self.width is None else (self.width,)

    @property
    def shared(self) -> bool:
        return False

    def ends(self) -> tuple[Link, ...]:
        return self.links

    def prior(self, totals: Totals, dtype: Any) -> Any:
        """N(0, 1): what is known of its variables is known jointly."""
        if self.width is None:
            return Gaussian.from_mean_variance(jnp.zeros(self.n, dtype), jnp.ones(self.n, dtype))
        eye = jnp.broadcast_to(jnp.eye(self.width, dtype=dtype), (self.n, self.width, self.width))
        return MvGaussian.from_information(0 * eye[..., 0], eye)

    def __str__(self) -> str:
        return " + ".join(map(str, self.links))


class PlaneEdge(NamedTuple):
    """n interfaces that are variables of a non-Gaussian plane."""

    plane: Plane
    index: IndexMap

    @property
    def family(self) -> type[AbstractFamily]:
        return self.plane.family

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.plane.event_shape

    @property
    def shared(self) -> bool:
        """Whether one row stands for all n, so that nodes are placed once."""
        return self.index.kind == "one" and self.family.core == "product"

    def ends(self) -> tuple[Link, ...]:
        return (Link(self.plane, self.index, "scale", None),)

    def marginal(self, planes: Totals) -> Any:
        return jax.tree.map(self.index.take, planes[self.plane])

    def prior(self, totals: Totals, dtype: Any) -> Any:
        """Its conjugate messages."""
        return self.marginal(totals)

    def __str__(self) -> str:
        return f"{self.plane}[{self.index}]"


class TableEdge(NamedTuple):
    """n joint interfaces over two or more categorical variables, the axes of a table.

    As an interface it is one categorical variable, whose classes are the cells of the table in row-major order.
    """

    sides: tuple[PlaneEdge, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(side.plane.event_shape[0] for side in self.sides)

    @property
    def family(self) -> type[AbstractFamily]:
        return Categorical

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (math.prod(self.shape),)

    @property
    def shared(self) -> bool:
        return False

    def ends(self) -> tuple[Link, ...]:
        return tuple(end for side in self.sides for end in side.ends())

    def prior(self, totals: Totals, dtype: Any) -> Any:
        return Categorical.flat((self.sides[0].index.n,), self.event_shape, dtype)

    def __str__(self) -> str:
        return " x ".join(map(str, self.sides))


Edge = Functional | PlaneEdge | TableEdge
