"""Tracers, and staging a Python function to a jaxpr."""
