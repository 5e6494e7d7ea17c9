"""Factors: one file for each distribution or kind of factor."""
