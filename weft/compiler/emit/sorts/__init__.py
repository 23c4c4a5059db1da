"""Emitters of sorts and selections."""
