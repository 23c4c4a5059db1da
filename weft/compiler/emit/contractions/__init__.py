"""Emitters of contractions and convolutions, and of small matrices."""
