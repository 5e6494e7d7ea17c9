"""Numerics: special functions and small linear algebra."""
