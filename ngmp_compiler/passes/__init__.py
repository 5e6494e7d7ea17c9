"""Passes: functions from one value to the next."""
