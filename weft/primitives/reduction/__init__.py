"""Reductions, running reductions and windows."""
