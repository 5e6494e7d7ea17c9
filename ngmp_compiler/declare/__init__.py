"""Declare: what a model function calls, and the graph it leaves behind."""
