"""Factorizations, solves and Fourier transforms."""
