"""Tables and columns of pandas and of libraries with its interface, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError


def recognises(data: Any) -> bool:
    """Return whether a value is a table or a column."""
    return hasattr(data, "to_numpy") and hasattr(data, "iloc")


def as_array(table: Any) -> np.ndarray:
    """Return the values of a table. A column becomes a table with one column, as in Keras."""
    found = table.to_numpy()
    if found.dtype == object:
        kinds = {str(kind) for kind in np.atleast_1d(getattr(table, "dtypes", found.dtype))}
        raise ArgumentError(
            "A table of data must contain numbers only.",
            received=f"columns of {', '.join(sorted(kinds))}",
            fix=("table.astype('float32')", "a dict of columns: {'age': table['age'].to_numpy(), ...}"),
        )
    return found[:, None] if found.ndim == 1 else found
