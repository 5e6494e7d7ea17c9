"""Prefer: where moments are matched if no rule is asked for.

`prefer(groups, free) -> groups`. NGMP() is the rule wherever neither `method=` nor `rules=` says anything, but for two
kinds of factors, which EP() gets right more often (`benchmarks/accuracy.py --rules`, read in `benchmarks/README.md`):

- products of Gaussian unknowns that are one edge (`matches` is "jointly"): one Gaussian of all of them, by NGMP, is the
  one that is best in the sense of KL[q||p], and too narrow for coefficients by a tenth and more;
- noise of an unknown scale that many factors share, around a variable of each factor's own (`matches` is "own"): the
  effects of a plate, whose marginals are mixtures over scales.

Matching moments is right there, and takes fewer sweeps. `describe` says where that was chosen, and why.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ngmp_kernels.families import MvGaussian

from ..graph.groups import FactorGroup
from .join import candidates
from .tied import own_interfaces

_JOINTLY = "products of unknowns on one edge: matching moments keeps their widths"
_OWN = "a scale that many share, of variables of each factor's own: their marginals are mixtures over it"


def prefer(groups: list[FactorGroup], free: Callable[[FactorGroup], bool]) -> list[FactorGroup]:
    """The groups, with the reason noted (`preferred`) where moments are to be matched; `free` says where no rule was
    asked for."""
    whys = [_why(group, groups) if group.projected and free(group) else "" for group in groups]
    return [dataclasses.replace(g, preferred=why) if why else g for g, why in zip(groups, whys, strict=True)]


def _why(group: FactorGroup, groups: list[FactorGroup]) -> str:
    factor: Any = group.factor
    if factor.matches == "jointly" and factor.families == (MvGaussian,):
        return _JOINTLY
    if factor.matches != "own":
        return ""
    return _OWN if own_interfaces(group, candidates(group), groups) == {0} else ""  # the residual, and not its scale
