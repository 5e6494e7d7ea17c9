"""Jaxprs as expressions: an abstract interpreter that finds how values depend on random variables."""
