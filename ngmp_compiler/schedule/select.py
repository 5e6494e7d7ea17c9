"""The choice of executors, the same for every core: the first that fits and needs the fewest operations."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..executors.base import AbstractExecutor, AbstractPart

FEW = 4  # executors of one kind that differ in size only

Executors = tuple[type[AbstractExecutor], ...]
Chosen = list[tuple[Any, type[AbstractExecutor]]]  # parts and what solves them


def default(part: AbstractPart, executors: Sequence[type[AbstractExecutor]]) -> type[AbstractExecutor] | None:
    """The first executor that fits a part at the lowest cost; None if none does."""
    best, least = None, float("inf")
    for executor in executors:
        if part.misfit(executor) is None:
            cost = executor.cost(part)
            if cost < least:
                best, least = executor, cost
            if cost == 0:
                break
    return best


def fewer(chosen: Chosen, executors: Executors) -> Chosen:
    """Where parts of a kind are of many sizes, they move to an executor that any parts can share: programs stay small.

    What has half of their variables or more keeps its own executor, and so does what was asked for.
    """
    out = []
    minor = {e: _minor([p for p, own in chosen if own is e], e) for e in {e for _, e in chosen}}
    for part, executor in chosen:
        if id(part) in minor[executor]:
            fit = (e for e in executors if e is not executor and part.misfit(e) is None)
            shared = [e for e in fit if e.alike(part) is None]
            executor = default(part, shared) or executor
        out.append((part, executor))
    return out


def _minor(parts: list[Any], executor: type[AbstractExecutor]) -> set[int]:
    alike = _grouped(parts, executor.alike)
    sizes = [sum(len(part.nodes) for part in own) for own in alike]
    if len(alike) <= FEW:
        return set()
    pairs = zip(alike, sizes, strict=True)
    return {id(part) for own, size in pairs if 2 * size < sum(sizes) for part in own if not part.asked}


def build(chosen: Chosen, executors: Executors) -> list[tuple[Any, list[Any]]]:
    """The executors in their order, each with the parts that it was built with others for."""
    out = []
    for executor in executors:
        for parts in _grouped([part for part, own in chosen if own is executor], executor.alike):
            others = (e.name for e in executors if e is not executor and all(e.may_fit(part) for part in parts))
            others = tuple(others)
            for built in executor.build(parts):
                built.others = others
                out.append((built, parts))
    return out


def _grouped(parts: list[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    out: dict[Hashable, list[Any]] = {}
    for part in parts:
        out.setdefault((key(part), part.asked), []).append(part)
    return list(out.values())
