r"""Sums of many: variables that only one functional ties to others are integrated out of it before anything else.

Let $r = \sum_i a_i z_i + r'$ carry the potential $(\xi, \Lambda)$, with every $z_i$ of own precision $u_i$ and linear
coefficient $h_i$ and in no other functional of several variables, and $r'$ the rest. With
$M = \sum_i a_i h_i / u_i$ and $V = \sum_i a_i^2 / u_i$, integrating them out leaves on r' the potential

$$ \Lambda' = \frac{\Lambda}{1 + \Lambda V}, \qquad \xi' = \frac{\xi - \Lambda M}{1 + \Lambda V}, $$

a functional of fewer variables, which another executor solves. Back, from the marginal $N(m', v')$ of r', the sum has
mean $S = (M + V (\xi - \Lambda m')) / (1 + \Lambda V)$ and variance
$V / (1 + \Lambda V) + (\Lambda V / (1 + \Lambda V))^2 v'$, and every $z_i$ takes its share of it,
$w_i = a_i^2 / (u_i V)$.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels.families import Gaussian

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ...value import Value
from .base import Centred, Draws, Leaf, Solution, numbered, offset, potential, scale
from .pieces import Piece, PieceLink
from .vectors import Term, seen


class Sum(NamedTuple):
    """A functional with private variables: all its rows; the first `left` of its links are those of r'."""

    piece: Piece
    left: int


class Terms(NamedTuple):
    """The private variables of a sum, all of its links in one: where they are, link by link, and coefficients
    (links, n or 1). A sum of thousands is a few operations on arrays."""

    at: IndexMap
    coefficient: Any

    def take(self, x: Array) -> Array:
        """Values (..., total) of the variables, as (..., links, n)."""
        links = np.shape(self.coefficient)[0]
        taken = self.at.take(x) if x.ndim == 1 else jax.vmap(self.at.take)(x)
        return taken.reshape(*x.shape[:-1], links, -1)

    def add(self, x: Array) -> Array:
        """Values (..., links, n), as (..., total)."""
        flat = x.reshape(*x.shape[:-2], -1)
        return self.at.add(flat) if flat.ndim == 1 else jax.vmap(self.at.add)(flat)


def _coefficients(links: tuple[PieceLink, ...]) -> Any:
    """Coefficients of links, (links, n or 1); a constant where all of them are."""
    each = [np.ones(1) if k.coefficient is None else k.coefficient for k in links]
    known = all(isinstance(c, np.ndarray) for c in each)
    return (np if known else jnp).stack((np if known else jnp).broadcast_arrays(*each))


class Reduced(NamedTuple):
    """What integrating out leaves, and what is needed to come back."""

    leaves: list[Leaf]
    log_volume: Array
    proper: Array
    own: tuple[Array, Array]  # precisions and linear coefficients of the private variables
    kept: list[tuple[Array, ...]]  # of every sum


class Sums(Value):
    """The private variables of a model, taken out before its executors run and put back after them."""

    name = "sums"
    others = ("dense", "banded")  # would do too: jointly with the rest

    def __init__(self, sizes: dict[Plane, int], members: dict[Plane, np.ndarray], sums: list[Sum], unary: list[Piece]):
        self.members, self.sums, self.unary = members, sums, unary
        self.number, total = numbered(sizes, members)
        self.total = total
        self.terms = [self._terms(s.piece.links[s.left :]) for s in sums]
        self.own = [self._index(p.links[:1]) for p in unary]
        self.functionals = frozenset(s.piece.functional for s in sums)
        self.why = f"{total} scalars that a single functional ties to others, integrated out of it"
        self.work = f"O({total})"

    def _index(self, links: tuple[PieceLink, ...]) -> IndexMap:
        return index_map(np.concatenate([self.number[k.plane][k.positions] for k in links]), self.total)

    def _terms(self, links: tuple[PieceLink, ...]) -> Terms:
        return Terms(self._index(links), _coefficients(links))

    def reduce(self, leaves: list[Leaf]) -> Reduced:
        """Leaves with the reduced potentials of the sums."""
        zero: Any = 0.0
        u, h = zero, zero
        for piece, index in zip(self.unary, self.own, strict=True):
            lam, e = potential(piece, leaves)
            a = scale(piece.links[0].coefficient)
            u += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
            h += index.add(jnp.broadcast_to(e * a, (piece.n,)))
        proper = jnp.all(u > 0) & jnp.all(jnp.isfinite(h))
        u = jnp.where(u > 0, u, 1.0)
        log_volume = -0.5 * jnp.sum(jnp.log(u / (2 * jnp.pi)))
        reduced, kept = list(leaves), []
        for (piece, _), terms in zip(self.sums, self.terms, strict=True):
            leaf: Any = leaves[piece.functional]
            xi, lam = leaf.eta1, -2 * leaf.eta2
            a = terms.coefficient
            mean = (a * terms.take(h / u)).sum(0)
            variance = (a**2 * terms.take(1 / u)).sum(0)
            gain = 1 + lam * variance
            proper &= jnp.all(gain > 0)
            log_volume -= 0.5 * jnp.sum(jnp.log(jnp.abs(gain)))
            rest = Gaussian.from_information((xi - lam * mean) / gain, lam / gain)
            reduced[piece.functional] = Centred(rest.eta1, rest.eta2) if isinstance(leaf, Centred) else rest
            kept.append((xi, lam, mean, variance, gain))
        return Reduced(reduced, log_volume, proper, (u, h), kept)

    def draw(self, reduced: Reduced, others: dict[Plane, Array], key: PRNGKeyArray, count: int) -> Draws:
        """Private variables given draws of all others, as deviations. Their precision is $u + \\Lambda a a^T$, whose
        root is known: in units of $u^{-1/2}$ it is one but along $a u^{-1/2}$, where it is $1 + \\Lambda V$."""
        u, _ = reduced.own
        noise = jax.random.normal(key, (count, self.total), u.dtype)
        found, root = noise / jnp.sqrt(u), jnp.sqrt(u)
        for (piece, left), terms, (_, lam, _, v, gain) in zip(self.sums, self.terms, reduced.kept, strict=True):
            rest: Any = 0.0
            for link in piece.links[:left]:
                where = index_map(link.positions, others[link.plane].shape[1])
                rest += seen(Term(piece._replace(links=(link,)), 0, where), others[link.plane])
            a, size = terms.coefficient, jnp.sqrt(jnp.where(v > 0, v, 1))
            along = (a / (terms.take(root) * size) * terms.take(noise)).sum(-2)
            more = (1 / jnp.sqrt(gain) - 1) * along / size - lam * rest / gain
            found += terms.add(a / terms.take(u) * more[:, None])
        return {plane: (at, found[:, self.number[plane][at]]) for plane, at in self.members.items()}

    def expand(self, reduced: Reduced, rests: dict[int, tuple[Array, Array]], requested: frozenset[int]) -> Solution:
        """Marginals of the private variables and of the sums, from means and variances of what was left of them."""
        (u, h), leaves = reduced.own, reduced.leaves
        mean, variance, functionals = h / u, 1 / u, {}
        for (piece, left), terms, (xi, lam, m, v, gain) in zip(self.sums, self.terms, reduced.kept, strict=True):
            number = jnp.broadcast_to(offset(piece, leaves), (piece.n,)).astype(m.dtype)
            # What is left where nothing is: a number, the offset.
            rest_mean, rest_variance = rests[piece.functional] if left else (number, jnp.zeros_like(number))
            total = (m + v * (xi - lam * rest_mean)) / gain
            spread = v / gain + (lam * v / gain) ** 2 * rest_variance
            a, own = terms.coefficient, terms.take(u)
            share = a / (own * jnp.where(v > 0, v, 1))  # zero coefficients take no share
            mean += terms.add(share * (total - m))
            variance += terms.add(share**2 * spread - a * share / own)
            if piece.functional in requested:
                functionals[piece.functional] = (None, rest_mean + total, v / gain + rest_variance / gain**2)
        for piece, index in zip(self.unary, self.own, strict=True):
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(mean) + offset(piece, leaves), a**2 * index.take(variance)
                functionals[piece.functional] = (piece.rows, m, v)
        marginals, means = {}, {}
        for plane, positions in self.members.items():
            at = index_map(self.number[plane][positions], self.total)
            means[plane] = (positions, at.take(mean))
            marginals[plane] = (positions, Gaussian.from_mean_variance(means[plane][1], at.take(variance)))
        return Solution(reduced.log_volume, reduced.proper, marginals, functionals, means=means)
