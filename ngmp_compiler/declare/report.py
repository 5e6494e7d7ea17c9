"""`ngmp.deterministic` and `ngmp.plate`, as they are called in NumPyro."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ngmp_kernels import Report

from .arguments import checked_arguments, common_batch_shape, site_name
from .frame import Site, current_frame, outermost, refuse, report
from .redirect import redirected


@redirected
def deterministic(name: str, value: Any) -> Any:
    """Report the marginal of an expression as `post[name]`.

    Args:
        name: of the report.
        value: a variable, an affine expression of Gaussian ones, or `exp` of one; of a vector, every entry by itself.
            Constants are returned as they are, and not reported.

    Returns:
        The expression.
    """
    frame = current_frame("ngmp.deterministic")
    full = site_name(frame, "ngmp.deterministic(name, expression)", name)
    if not getattr(value, "is_expression", False) or frame.root.fresh is not None:
        return value
    if full in frame.nodes or full in frame.observed:
        report(full, "the name is that of another site", "give the expression a name of its own")
        return value
    distribution = Report(full, value)
    arguments = checked_arguments(full, distribution)
    batch = common_batch_shape(full, distribution, arguments)
    if batch is not None:
        frame.sites.append(Site(full, distribution, dict(arguments), distribution.event_ndims, None, batch, False))
    return value


@contextlib.contextmanager
def plate(name: str, size: int, dim: int | None = None) -> Iterator[np.ndarray]:
    """Independent copies: variables declared inside have a batch axis of this size, the last one that is free.

    `with ngmp.plate("rows", n) as i:`; `i` counts them. Arrays of that size among the parameters make a plate as well,
    so it is needed only where all parameters are single numbers.

    Args:
        name: for messages.
        size: an integer.
        dim: the axis, from the right: -1, -2, ...
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        refuse(name, None, f"plate of size {size!r}", "give a whole number, at least one")
    plates = outermost().plates
    if dim is None:
        dim = next(-k for k in range(1, len(plates) + 2) if -k not in plates)
    if dim >= 0 or dim in plates:
        refuse(name, None, f"plate with dim={dim}", "axes are counted from the right, -1, -2, ..., each used once")
    plates[dim] = int(size)
    try:
        yield np.arange(size)
    finally:
        del plates[dim]
