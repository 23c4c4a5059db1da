"""Emitters of maps and of data movement."""
