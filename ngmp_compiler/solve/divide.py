"""A function in two parts: what a loop needs of every turn, and what is only made of the last one.

`divide(f, *args)` takes `f(*args) -> (now, later)` apart by its jaxpr: `first(*args) -> (now, kept)` does what `now`
depends on, and `rest(kept) -> later` the remainder, from values that the first part has on its way. In a loop that
carries `kept`, no turn pays for `later`, and nothing of it is compiled twice.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend.core import Literal


def divide(function: Callable[..., tuple[Any, Any]], *args: Any) -> tuple[Callable, Callable, Any]:
    """Both parts of a function for arguments of such shapes, and the shapes of what the first keeps for the second."""
    given = jax.tree.leaves(args)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given]
    tree = jax.tree.structure(args)
    closed, found = jax.make_jaxpr(lambda x: function(*jax.tree.unflatten(tree, x)), return_shape=True)(shapes)
    jaxpr, consts = closed.jaxpr, closed.consts
    now, later = (jax.tree.structure(x) for x in found)
    ends, outs = jaxpr.outvars[: now.num_leaves], jaxpr.outvars[now.num_leaves :]
    loop = _needed(jaxpr.eqns, ends)
    mine = set(map(id, loop))
    left = _needed([e for e in jaxpr.eqns if id(e) not in mine], outs)
    made = {v for e in left for v in e.outvars} | set(jaxpr.constvars)
    read = dict.fromkeys(v for v in (*(v for e in left for v in e.invars), *outs) if not isinstance(v, Literal))
    kept = [v for v in read if v not in made]
    one = _part(jaxpr, jaxpr.constvars, jaxpr.invars, loop, [*ends, *kept])
    other = _part(jaxpr, jaxpr.constvars, kept, left, outs)

    def first(*args: Any) -> tuple[Any, list[Any]]:
        values = eval_jaxpr(one, consts, *jax.tree.leaves(args))
        return jax.tree.unflatten(now, values[: now.num_leaves]), values[now.num_leaves :]

    def rest(kept: list[Any]) -> Any:
        return jax.tree.unflatten(later, eval_jaxpr(other, consts, *kept))

    return first, rest, [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in kept]


def _needed(equations: Any, ends: Any) -> list[Any]:
    """The equations that some variables depend on, in order."""
    wanted, found = {v for v in ends if not isinstance(v, Literal)}, []
    for equation in reversed(equations):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            wanted |= {v for v in equation.invars if not isinstance(v, Literal)}
            found.append(equation)
    return found[::-1]


def _part(jaxpr: Any, constvars: Any, invars: Any, equations: Any, outvars: Any) -> Any:
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return jaxpr.replace(
        constvars=constvars, invars=list(invars), eqns=equations, outvars=list(outvars), debug_info=info
    )
