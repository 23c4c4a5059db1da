"""`debug_nans` and `debug_infs`: look at results as they are made and name the operation and the line of the first
bad one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import NonFiniteValueError
from weft.base.settings import config
from weft.base.source import Location
from weft.ir.primitive import Primitive


def check_finite(primitive: Primitive, results: Sequence[Any], location: Location | None) -> None:
    """Raise when a float result has nan (or inf, as the settings say)."""
    for number, value in enumerate(results):
        if not isinstance(value, (np.ndarray, np.generic)) or dtypes.kind(value.dtype) not in "fc":
            continue
        wide = np.asarray(value, np.complex128 if value.dtype.kind == "c" else np.float64)
        for wanted, test, word in ((config.debug_nans, np.isnan, "nan"), (config.debug_infs, np.isinf, "inf")):
            bad = test(wide) if wanted else np.False_
            if bad.any():
                place = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
                raise NonFiniteValueError(
                    f"{word} in result {number} of `{primitive.name}`, {int(bad.sum())} of {max(bad.size, 1)} "
                    f"elements, the first at index {place}.",
                    at=location.describe() if location is not None else None,
                )
