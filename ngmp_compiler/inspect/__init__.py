"""Inspect: plans in words and as drawings."""
