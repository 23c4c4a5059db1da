"""Integers known only by name: expressions, their ranges, dimensions of shapes, and maps between tensor indices."""
