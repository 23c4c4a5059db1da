"""Transformations, by the rules of primitives: jvp, linearize, transpose, batch."""
