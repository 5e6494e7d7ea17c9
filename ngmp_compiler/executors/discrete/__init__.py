"""Executors of categorical variables."""
