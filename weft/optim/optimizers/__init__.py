"""Optimizers: chains of transformations with the defaults of the original papers."""
