"""Devices, buffers, concrete arrays and the evaluator at the bottom of the trace."""
