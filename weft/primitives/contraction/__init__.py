"""Contractions and convolutions."""
