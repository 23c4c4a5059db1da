"""Layers that make one result of several inputs."""

from weft.errors import export as _export
from weft.keras.layers.merging.concatenate import Concatenate as Concatenate, concatenate as concatenate
from weft.keras.layers.merging.dot import Dot as Dot, dot as dot
from weft.keras.layers.merging.elementwise import (
    Add as Add,
    Average as Average,
    Maximum as Maximum,
    Minimum as Minimum,
    Multiply as Multiply,
    Subtract as Subtract,
    add as add,
    average as average,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    subtract as subtract,
)

_export(__name__)
