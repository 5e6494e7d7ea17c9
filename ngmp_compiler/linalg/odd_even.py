"""Odd-even reduction of a scalar Gaussian chain: every second variable is eliminated, all of them at once.

A tie $-\\tfrac12 l (a y - b x)^2$ from $x$ to the next variable $y$ is stored by its three products: `ahead` $= l a^2$
(acts on $y$), `behind` $= l b^2$ (acts on $x$) and `coupling` $= l a b$. Between its two neighbours $x, z$ the variable
$y$ has the pivot $s = u_y + \\mathrm{ahead}_{xy} + \\mathrm{behind}_{yz}$, and integrating it out leaves, exactly,

- at $x$ the unary term $\\mathrm{behind}_{xy} u_y / s$ and the linear term $\\mathrm{coupling}_{xy} h_y / s$,
- at $z$ the unary term $\\mathrm{ahead}_{yz} u_y / s$ and the linear term $\\mathrm{coupling}_{yz} h_y / s$,
- a new tie from $x$ to $z$, each of whose products is the product of the two old ones divided by $s$.

Nothing is subtracted, so nearly flat unary terms survive next to strong ties. The pivots are those of a symmetric
elimination in another order: they are all positive if and only if the joint density is proper.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Chain(NamedTuple):
    """Potentials of a scalar chain."""

    unary: Float[Array, " T"]
    linear: Float[Array, " T"]
    ahead: Float[Array, " T-1"]
    behind: Float[Array, " T-1"]
    coupling: Float[Array, " T-1"]


class Moments(NamedTuple):
    """Moments of a scalar chain."""

    mean: Float[Array, " T"]
    variance: Float[Array, " T"]
    covariance: Float[Array, " T-1"]


class Odd(NamedTuple):
    """Conditionals $x_k | x_{k-1}, x_{k+1} \\sim N(c + w_- x_{k-1} + w_+ x_{k+1}, 1/s)$ of the odd variables."""

    inverse: Float[Array, " n"]  # 1 / s
    centre: Float[Array, " n"]
    before: Float[Array, " n"]  # w_-
    after: Float[Array, " n"]  # w_+


def pad(chain: Chain, count: int) -> Chain:
    """Append `count` unlinked standard normal variables."""
    fill = (1.0, 0.0, 0.0, 0.0, 0.0)  # in the order of the fields
    return Chain(*(jnp.pad(x, (0, count), constant_values=v) for x, v in zip(chain, fill, strict=True)))


def reduce(chain: Chain) -> tuple[Chain, Odd, Float[Array, ""]]:
    """Integrate out the odd variables of a chain of odd length.

    Returns:
        The chain of the even variables, the conditionals of the odd ones, and $\\sum_k h_k^2 / s_k$ over these.
    """
    ahead, behind, coupling = ((x[0::2], x[1::2]) for x in chain[2:])
    unary, linear = chain.unary[1::2], chain.linear[1::2]
    inverse = 1.0 / (unary + ahead[0] + behind[1])
    share, centre = unary * inverse, linear * inverse
    even = Chain(
        chain.unary[0::2] + _ends(behind[0] * share, ahead[1] * share),
        chain.linear[0::2] + _ends(coupling[0] * centre, coupling[1] * centre),
        *(x[0] * x[1] * inverse for x in (ahead, behind, coupling)),
    )
    odd = Odd(inverse, centre, coupling[0] * inverse, coupling[1] * inverse)
    return even, odd, jnp.sum(linear * centre)


def expand(even: Moments, odd: Odd) -> Moments:
    """Moments of all variables from those of the even ones and the conditionals of the odd ones."""
    mean = odd.centre + odd.before * even.mean[:-1] + odd.after * even.mean[1:]
    with_left = odd.before * even.variance[:-1] + odd.after * even.covariance
    with_right = odd.before * even.covariance + odd.after * even.variance[1:]
    variance = odd.inverse + odd.before * with_left + odd.after * with_right
    return Moments(
        jnp.append(_interleave(even.mean[:-1], mean), even.mean[-1:]),
        jnp.append(_interleave(even.variance[:-1], variance), even.variance[-1:]),
        _interleave(with_left, with_right),
    )


def _ends(left, right):
    """What n odd variables add to their left and right neighbours: (n+1,)."""
    return jnp.pad(left, (0, 1)) + jnp.pad(right, (1, 0))


def _interleave(first, second):
    return jnp.stack([first, second], -1).reshape(-1)
