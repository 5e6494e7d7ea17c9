"""Solve: the guarded iteration, its steps, and derivatives of its fixed point."""
