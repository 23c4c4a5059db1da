"""Emission of a fusion's kernels: one emitter per hero; all other operations are evaluated at an index."""
