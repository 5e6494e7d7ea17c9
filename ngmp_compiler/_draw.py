"""Draw a plan as SVG."""

from ._schedule import Plan


def draw(plan: Plan, name: str) -> str:
    """The factor graph with its plates, and the surrogate, as one SVG document."""
    return ""
