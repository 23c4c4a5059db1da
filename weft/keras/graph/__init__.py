"""Graphs of operations on tensors that have shapes and dtypes only: what functional models are built from."""
