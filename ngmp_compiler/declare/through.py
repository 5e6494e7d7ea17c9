"""Parameters that are functions of unknowns, of outcomes that are observed: `Poisson(softplus(f))`, `Normal(a * exp(-k
* t), std=s)`, `Bernoulli(logits=a * (theta - b))`.

Where a distribution has no kernel for them, its density at known parameters still is known, and the factor of the data
is that density with all unknowns behind the parameters on it (`ngmp_kernels.Through`).
"""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

from ngmp_kernels import Distribution, GenericDensity, Signature, Through
from ngmp_kernels.distribution import GAUSSIAN, same_function
from ngmp_kernels.families.mv_gaussian import MOST_DIMENSIONS

from .affine import Affine
from .compound import Product, Take
from .expressions import kinds_of
from .frame import refuse
from .functions import scalars
from .gates import key_of
from .inputs import Input
from .multiple import Multiple
from .smooth import ADD, MULTIPLY, Smooth, is_function, is_random
from .variables import Variable

MOST_OTHERS = 3  # unknowns of a factor, where several of them are not Gaussian


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Functions of values, as trees: a place among the values, or an operation with what it is of."""

    trees: tuple[Any, ...]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return tuple(_evaluate(tree, values) for tree in self.trees)


@dataclasses.dataclass(frozen=True)
class _Composed:
    """A function of the user, of functions of values."""

    function: Callable[..., Any] = dataclasses.field(compare=False)
    key: Hashable
    recipe: Recipe

    def __call__(self, *values: Any) -> Any:
        return self.function(*self.recipe(*values))


def _evaluate(tree: Any, values: tuple[Any, ...]) -> Any:
    if isinstance(tree, int):
        return values[tree]
    operation, *arguments = tree
    return operation.value(*(_evaluate(x, values) for x in arguments))


class _Unfit(Exception):
    """An expression that no factor of numbers can be made of."""


class _Trees:
    """Trees of expressions, and the unknowns and constants at their leaves, each once.

    Args:
        apart: whether affine expressions come apart in their variables, as they must where two of them share some.
    """

    def __init__(self, apart: bool):
        self.apart, self.values = apart, []
        self._places: dict[Hashable, int] = {}
        self._keep: list[Any] = []  # what is told apart by its id must stay

    def tree(self, x: Any) -> Any:
        if isinstance(x, Smooth):
            return (x.operation, *map(self.tree, x.arguments))
        if is_function(x):
            return x.link, self.tree(x.inner)
        if isinstance(x, Product):
            return self._product(x)
        if isinstance(x, Multiple):
            return MULTIPLY, self.tree(x.variable), self.tree(x.scale)
        if isinstance(x, Variable) and x.plane.family.core != "gaussian":
            if x.plane.family.integrated != "always":
                raise _Unfit
            return self._place(key_of(x), x)
        if isinstance(x, (Variable, Affine)):
            return self._affine(x.affine())
        if is_random(x):
            raise _Unfit
        return self._place(_constant_key(x), x)

    def _product(self, x: Product) -> Any:
        if x.rows is not None or any(side.event_shape for pair in x.pairs for side in pair):
            raise _Unfit
        total = self.tree(x.rest)
        for left, right in x.pairs:
            total = ADD, (MULTIPLY, self.tree(left), self.tree(right)), total
        return total

    def _affine(self, x: Affine) -> Any:
        """One variable times a constant is a function of the variable; of several, they are one unknown, their sum."""
        plain = all(t.op == "scale" and not t.variable.event_shape for t in x.terms)
        if not plain or (len(x.terms) > 1 and not self.apart):
            terms = tuple((key_of(v), op, _constant_key(c)) for v, op, c in x.terms)
            return self._place(("affine", terms, _constant_key(x.offset)), scalars(x))
        total = None if x.offset is None else self.tree(x.offset)
        for variable, _, c in x.terms:
            own: Any = self._place(key_of(variable), variable.affine())
            own = own if c is None else (MULTIPLY, self.tree(c), own)
            total = own if total is None else (ADD, own, total)
        return total

    def _place(self, key: Hashable, x: Any) -> int:
        self._keep.append(x)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(x)
        return self._places[key]

    def overlap(self) -> bool:
        """Whether two unknowns are of the same variable."""
        of = [{key_of(t.variable) for t in x.terms} for x in self.values if isinstance(x, Affine)]
        return sum(map(len, of)) > len(set().union(*of))

    def fit(self) -> bool:
        """Whether one factor can have all the unknowns."""
        kinds = [x.kind == "gaussian" for x in self.values if is_random(x)]
        return 0 < len(kinds) <= (MOST_DIMENSIONS if kinds.count(False) <= 1 else MOST_OTHERS)


def _constant_key(x: Any) -> Hashable:
    if isinstance(x, Input):
        return "input", id(x.root), x.index
    return (type(x), x) if isinstance(x, (int, float)) or x is None else ("array", id(x))


def _trees(values: tuple[Any, ...]) -> tuple[Recipe, tuple[Any, ...]] | None:
    """Values as functions of the unknowns and constants behind them; None if there is no factor of these."""
    try:
        found = None
        for apart in (False, True):
            trees = _Trees(apart)
            recipe = Recipe(tuple(map(trees.tree, values)))
            if trees.fit():
                found = recipe, tuple(trees.values)
            if found is None or not trees.overlap():
                break
        return found
    except _Unfit:
        return None


def through(name: str, distribution: Any) -> Any:
    """The distribution of an observed outcome, with all unknowns on its factor if it has no kernel for the functions
    that its arguments are."""
    arguments = distribution.arguments
    functions = [k for k, x in arguments.items() if is_function(x)]
    products = {k: x for k, x in arguments.items() if type(x) is Product}
    # Where no Gaussian may stand, as for a rate, no product of them may: it can be negative.
    real = all(any(GAUSSIAN <= s.arguments.get(k, frozenset()) for s in distribution.signatures) for k in products)
    taken = any("lefts" in s.arguments for s in distribution.signatures)
    plain = not functions and (not products or taken or not real) or fits(distribution, "constant")
    if plain and not _too_wide(distribution):
        return distribution
    known = [i for i, s in enumerate(distribution.signatures)
             if all("constant" in s.arguments.get(k, ()) for k in ("out", *arguments))]  # fmt: skip
    vector = any(distribution.event_ndims.get(k, 0) != 0 for k in ("out", *arguments))
    found = None if vector or not known else _trees(tuple(arguments.values()))
    if found is not None:
        return Through(distribution, known[0], *found)
    if products and not taken:
        refuse(name, f"argument {next(iter(products))}", f"a product of unknowns in a {distribution.label}",
               "write it with ngmp.factor")  # fmt: skip
    return distribution


def composed(density: GenericDensity) -> GenericDensity:
    """A factor by its log-density, of the unknowns behind the functions that it is given."""
    values = tuple(density.arguments.values())
    if not any(is_function(x) or type(x) is Product for x in values) or (found := _trees(values)) is None:
        return density
    recipe, leaves = found
    return GenericDensity(_Composed(density.log_density, same_function(density.log_density), recipe), leaves)


def fits(distribution: Distribution, out: str) -> bool:
    """Whether there is a kernel for the kinds of arguments that a distribution has."""
    if any(isinstance(x, Take) for x in distribution.arguments.values()):
        return True  # becomes a gate, or has a kernel of its own
    return _kernel(distribution, out) is not None


def _kernel(distribution: Distribution, out: str) -> Signature | None:
    kinds = {}
    for k, x in distribution.arguments.items():
        if isinstance(x, Product):
            if k != "mean" or not any("left" in s.arguments or "lefts" in s.arguments for s in distribution.signatures):
                return None
            kinds |= _product_kinds(x)
            continue
        if isinstance(x, (list, tuple)):
            x = 0.0
        if is_random(x) and distribution.event_ndims.get(k) == 0:
            x = scalars(x)
        kinds |= kinds_of({k: x})
    if "out" in distribution.event_ndims:
        kinds["out"] = out
    return next(
        (s for s in distribution.signatures
         if set(s.arguments) == set(kinds) and all(kinds[k] in v for k, v in s.arguments.items())), None,
    )  # fmt: skip


def _too_wide(distribution: Distribution) -> bool:
    """Whether the kernel integrates over more numbers than there are unknowns: `Gamma(exp(k), rate=2.0)`, where both
    concentration and mean are functions of k."""
    if any(isinstance(x, (Take, Product)) for x in distribution.arguments.values()):
        return False
    kernel = _kernel(distribution, "constant")
    if kernel is None or getattr(kernel.factor, "joins", None) != "always":
        return False
    found = _trees(tuple(distribution.arguments.values()))
    if found is None or any(t.variable.event_shape for x in found[1] if isinstance(x, Affine) for t in x.terms):
        return False
    most = kernel.factor.interfaces  # a property where arguments that are known are left out
    wide = len(most) if isinstance(most, tuple) else sum(map(is_random, distribution.arguments.values()))
    return sum(map(is_random, found[1])) < wide


def _product_kinds(x: Product) -> dict[str, str]:
    rest = kinds_of({"mean": x.rest})
    if len(x.pairs) == 1:
        return {**rest, "left": "gaussian", "right": "gaussian"}
    return {**rest, "lefts": "mvgaussian", "rights": "mvgaussian"}
