"""Shardings and axis factors: pure data, no devices."""
