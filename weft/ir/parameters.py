"""Keys for parameters of equations: equal exactly for parameters that mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Params

# Parameters of these types are equal exactly if they mean the same.
PLAIN = frozenset({int, bool, str, type(None)})


def params_key(params: Params) -> Any:
    """Return a hashable key of parameters; raise TypeError if one of them is not hashable."""
    return tuple([(name, freeze(params[name])) for name in sorted(params)])


def freeze(value: Any) -> Any:
    """Return a hashable key of one parameter. It includes the type, because 0, 0.0, -0.0 and False compare equal."""
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if kind is tuple:
        return tuple([freeze(v) for v in value])
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    hash(value)
    return kind, value
