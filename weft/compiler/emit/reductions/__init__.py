"""Emitters of reductions."""
