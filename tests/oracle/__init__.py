"""Slow, obvious references in plain numpy: an interpreter of declared graphs, and textbook algorithms.

Nothing here uses the compiler's passes behind `declare`: no roll, no schedule, no executor, no kernel.
"""
