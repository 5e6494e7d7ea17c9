"""Executors of Gaussian variables."""
