"""Optimizers: chains of transformations with the defaults of the papers they come from."""
