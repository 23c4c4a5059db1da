"""Emitters of reductions over windows."""
