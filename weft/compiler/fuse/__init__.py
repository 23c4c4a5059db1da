"""Fusion: which equations become one kernel, and why. `driver.fuse` is where to start reading."""
