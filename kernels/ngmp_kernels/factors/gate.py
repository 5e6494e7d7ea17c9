"""The declaration of a gate: what `take` of random parameters becomes, one site for every class."""

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from ..distribution import TAKE, Distribution, Lowered, Signature
from .gated import Gated, GatedConstant


class Gate(Distribution):
    """`base` where `selector`, a table of zeros and ones, has a one; not declared by users, and not in the registry."""

    __slots__ = ("base", "classes", "tied")

    def __init__(self, base: Distribution, arguments: dict[str, Any], selector: Any, parts: int, tied: bool):
        self.base, self.classes, self.tied = base, parts, tied
        self.arguments = {**arguments, "selector": selector}

    @property
    def family(self) -> Any:  # type: ignore[override]
        return self.base.family

    @property
    def event_ndims(self) -> Mapping[str, int | None]:  # type: ignore[override]
        return {**self.base.event_ndims, "selector": 0}

    @property
    def placeholder(self) -> float | int:  # type: ignore[override]
        return self.base.placeholder

    def blank(self) -> "Gate":
        out = super().blank()
        assert isinstance(out, Gate)
        out.base = self.base.blank()
        return out

    @property
    def key(self) -> Hashable:
        return Gate, self.base.key, self.classes, self.tied

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        return tuple(
            Signature({**s.arguments, "selector": TAKE}, lambda s=s, **given: self._lower(s, **given), Gated)
            for s in self.base.signatures
        )

    def _lower(self, signature: Signature, selector: Any, **given: Any) -> Lowered:
        base, interfaces = signature.lower(**given)
        shape, z = selector.table.shape[1:], selector.indices
        k = selector.table.reshape(selector.table.shape[0], -1)
        z = z[0] if len(z) == 1 else z
        if all(isinstance(x, (jax.Array, np.ndarray)) for x in interfaces):
            return Lowered(GatedConstant(base, tuple(interfaces), k, self.classes, shape), (z,))
        gated = Gated(base=base, k=k, parts=self.classes, tied=self.tied)  # type: ignore[call-arg]
        return Lowered(gated, (*interfaces, z))
