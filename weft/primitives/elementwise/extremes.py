"""NumPy's maximum and minimum with the order that Weft has: nan wins, and -0 is less than 0.

NumPy leaves open which of two zeros it returns; it depends on their order, and on the machine.
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
        result = self.ufunc(x, y)
        if result.dtype.kind != "f" or result.all():  # no zero, so nothing to decide
            return result
        return self._back(self.ufunc(self._key(x), self._key(y)), result)

    def reduce(self, x: np.ndarray, axis: Any) -> Any:
        if x.dtype.kind == "V" and dtypes.kind(x.dtype) == "f":  # a type that NumPy does not know
            return self.reduce(x.astype(np.float32), axis).astype(x.dtype)
        result = self.ufunc.reduce(x, axis=axis)
        if x.dtype.kind != "f" or (result.all() if result.ndim else result):
            return result
        return self._back(self.ufunc.reduce(self._key(x), axis=axis), result)

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        result: np.ndarray = self.ufunc.accumulate(x, axis=axis)
        if x.dtype.kind != "f" or result.all():
            return result
        return self._back(self.ufunc.accumulate(self._key(x), axis=axis), result)

    def at(self, x: np.ndarray, indices: Any, values: np.ndarray) -> None:
        """Update elements of `x` in place."""
        if dtypes.kind(x.dtype) == "f" and x.dtype.kind != "f":  # a type that NumPy does not know
            wider = x.astype(np.float32)
            self.at(wider, indices, values.astype(np.float32))
            x[...] = wider
            return
        if x.dtype.kind != "f":
            self.ufunc.at(x, indices, values)
            return
        keys = self._key(x)
        self.ufunc.at(keys, indices, self._key(values))
        self.ufunc.at(x, indices, values)
        x[...] = self._back(keys, x)

    def _key(self, x: Any) -> np.ndarray:
        """Map floats to integers in the same order, with nan at the end that wins."""
        x = np.asarray(x)
        nan = np.array(np.nan, x.dtype)
        winner = nan if self.ufunc is np.maximum else -nan
        bits: Any = np.where(np.isnan(x), winner, x).view(f"i{x.dtype.itemsize}")
        result: np.ndarray = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
        return result

    def _back(self, keys: Any, result: Any) -> np.ndarray:
        """Convert keys back to floats; where NumPy's result is nan, return that nan with its bits."""
        keys, result = np.asarray(keys), np.asarray(result)
        values = np.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys).view(result.dtype)
        found: np.ndarray = np.where(np.isnan(result), result, values)
        return found


maximum = OrderedExtreme(np.maximum)
minimum = OrderedExtreme(np.minimum)
