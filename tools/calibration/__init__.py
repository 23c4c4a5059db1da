"""Measurements behind the cost constants of targets, run by `tools/calibrate.py`."""
