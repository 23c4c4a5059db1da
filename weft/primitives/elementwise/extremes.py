"""NumPy's maximum and minimum with the order that Weft has: nan wins, and -0 is less than 0.

NumPy leaves open which of two zeros it keeps; it depends on their order, and on the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes


class OrderedExtreme:
    """`np.maximum` or `np.minimum` with its methods, for arrays of floats, integers and complex numbers."""

    def __init__(self, ufunc: Any) -> None:
        self.ufunc = ufunc

    def __call__(self, x: Any, y: Any) -> Any:
        made = self.ufunc(x, y)
        if made.dtype.kind != "f" or made.all():  # no zero, so nothing to decide
            return made
        return self._back(self.ufunc(self._key(x), self._key(y)), made)

    def reduce(self, x: np.ndarray, axis: Any) -> Any:
        if x.dtype.kind == "V" and dtypes.kind(x.dtype) == "f":  # a type that NumPy does not know
            return self.reduce(x.astype(np.float32), axis).astype(x.dtype)
        made = self.ufunc.reduce(x, axis=axis)
        if x.dtype.kind != "f" or (made.all() if made.ndim else made):
            return made
        return self._back(self.ufunc.reduce(self._key(x), axis=axis), made)

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        made = self.ufunc.accumulate(x, axis=axis)
        if x.dtype.kind != "f" or made.all():
            return made
        return self._back(self.ufunc.accumulate(self._key(x), axis=axis), made)

    def at(self, x: np.ndarray, indices: Any, values: np.ndarray) -> None:
        """Update elements of `x` in place."""
        if dtypes.kind(x.dtype) == "f" and x.dtype.kind != "f":  # a type that NumPy does not know
            made = x.astype(np.float32)
            self.at(made, indices, values.astype(np.float32))
            x[...] = made
            return
        if x.dtype.kind != "f":
            self.ufunc.at(x, indices, values)
            return
        keys = self._key(x)
        self.ufunc.at(keys, indices, self._key(values))
        self.ufunc.at(x, indices, values)
        x[...] = self._back(keys, x)

    def _key(self, x: Any) -> np.ndarray:
        """Integers in the order of floats, with nan at the end that wins."""
        x = np.asarray(x)
        nan = np.array(np.nan, x.dtype)
        winner = nan if self.ufunc is np.maximum else -nan
        bits: Any = np.where(np.isnan(x), winner, x).view(f"i{x.dtype.itemsize}")
        return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)

    def _back(self, keys: Any, made: Any) -> np.ndarray:
        """The numbers of keys; where NumPy made a nan, that one, with its bits."""
        keys, made = np.asarray(keys), np.asarray(made)
        numbers = np.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys).view(made.dtype)
        return np.where(np.isnan(made), made, numbers)


maximum = OrderedExtreme(np.maximum)
minimum = OrderedExtreme(np.minimum)
