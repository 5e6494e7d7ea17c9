"""Which axes of latent variables are summed over: their entries are then better declared as one vector."""

from typing import Any

_ELEMENTWISE = {"add", "sub", "mul", "div", "neg", "convert_element_type", "copy", "select_n", "stop_gradient"}
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
Marks = list[frozenset[tuple[str, int]]]  # for every axis, those of latent variables that it is


def contracted(jaxpr: Any) -> set[tuple[str, int]]:
    """The axes, by name and place, of latent variables over which sums or products with matrices go."""
    found: set[tuple[str, int]] = set()
    _walk(jaxpr, {}, found)
    return found


def _walk(jaxpr: Any, marks: dict[Any, Marks], found: set[tuple[str, int]]) -> None:
    none: frozenset[tuple[str, int]] = frozenset()

    def of(atom: Any) -> Marks:
        own = None if hasattr(atom, "val") else marks.get(atom)
        return own or [none] * len(atom.aval.shape)

    for e in jaxpr.eqns:
        name, p, out = e.primitive.name, e.params, e.outvars[0]
        rank = len(getattr(out.aval, "shape", ()))
        if name == "latent":
            marks[out] = [frozenset({(p["name"], i)}) for i in range(rank)]
        elif name in _ELEMENTWISE:
            every = [of(a) for a in e.invars]
            marks[out] = [frozenset().union(*(m[i - rank] for m in every if len(m) >= rank - i)) for i in range(rank)]
        elif name == "broadcast_in_dim":
            own, places = of(e.invars[0]), p["broadcast_dimensions"]
            marks[out] = [own[places.index(i)] if i in places else none for i in range(rank)]
        elif name == "transpose":
            marks[out] = [of(e.invars[0])[i] for i in p["permutation"]]
        elif name in ("reshape", "squeeze", "expand_dims"):
            own, shape = of(e.invars[0]), e.invars[0].aval.shape
            long = [m for m, n in zip(own, shape, strict=True) if n != 1]
            sizes = [n for n in shape if n != 1]
            if sizes == [n for n in out.aval.shape if n != 1]:
                rest = iter(long)
                marks[out] = [next(rest) if n != 1 else none for n in out.aval.shape]
        elif name in ("reduce_sum", "cumsum"):
            axes = p.get("axes", (p.get("axis"),))
            own = of(e.invars[0])
            found.update(m for i in axes for m in own[i])
            if name == "reduce_sum":
                marks[out] = [m for i, m in enumerate(own) if i not in axes]
        elif name == "dot_general":
            (cx, cy), (bx, by) = p["dimension_numbers"]
            x, y = of(e.invars[0]), of(e.invars[1])
            found.update(m for side, axes in ((x, cx), (y, cy)) for i in axes for m in side[i])
            fx = [m for i, m in enumerate(x) if i not in (*cx, *bx)]
            marks[out] = [x[i] | y[j] for i, j in zip(bx, by, strict=True)] + fx
            marks[out] += [m for i, m in enumerate(y) if i not in (*cy, *by)]
        else:
            _inner(e, of, marks, found)


def _inner(e: Any, of: Any, marks: dict[Any, Marks], found: set[tuple[str, int]]) -> None:
    for key in _INNER:
        inner = e.params.get(key)
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(inner.invars) == len(e.invars):
            own = {v: of(a) for v, a in zip(inner.invars, e.invars, strict=True)}
            _walk(inner, own, found)
            for v, o in zip(inner.outvars, e.outvars, strict=True):
                if not hasattr(v, "val") and v in own:
                    marks[o] = own[v]
