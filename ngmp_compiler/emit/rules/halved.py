"""Half of a factor at a time: what a rule becomes where its cavities turn improper for ever."""

import dataclasses
from typing import Any

from .base import AbstractRule


def halved(rule: AbstractRule, factor: Any) -> AbstractRule:
    r"""The rule of half the power on a factor of two interfaces; the rule itself where it has no power to halve.

    A cavity of the power p is $\lambda - p \eta$, so of a leaf that outweighs all else half is left in it. Rows whose
    whole message is convex, outliers that are noise or signal, no longer take the cavities of others with them.
    """
    power = getattr(rule, "power", None)
    if not isinstance(power, float) or len(factor.interfaces) != 2 or not rule.divides(factor):
        return rule
    half: AbstractRule = dataclasses.replace(rule, power=0.5 * power)  # type: ignore[type-var]
    return half if half.instead(factor) is half else rule  # of some factors a fraction has no projection
