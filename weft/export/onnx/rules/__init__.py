"""Rules that write primitives as ONNX operations, one file for each family."""

from weft.export.onnx.rules import (
    contraction,
    control,
    elementwise,
    fourier,
    functions,
    indexing,
    linalg,
    movement,
    random,
    reduction,
    sorting,
    windows,
)

# Importing the files fills the tables.
LOADED = (
    contraction,
    control,
    elementwise,
    fourier,
    functions,
    indexing,
    linalg,
    movement,
    random,
    reduction,
    sorting,
    windows,
)
