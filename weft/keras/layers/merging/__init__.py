"""Layers that make one result of several inputs."""

from weft.keras.layers.merging.concatenate import Concatenate, concatenate
from weft.keras.layers.merging.dot import Dot, dot
from weft.keras.layers.merging.elementwise import (
    Add,
    Average,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
    add,
    average,
    maximum,
    minimum,
    multiply,
    subtract,
)

__all__ = [
    "Add",
    "Average",
    "Concatenate",
    "Dot",
    "Maximum",
    "Minimum",
    "Multiply",
    "Subtract",
    "add",
    "average",
    "concatenate",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "subtract",
]
