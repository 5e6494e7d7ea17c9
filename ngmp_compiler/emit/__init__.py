"""Emit: the fixed-point map of a plan, as pure functions of its leaves."""
