"""Ranges of results of equations over evaluations with perturbed last digits.

A difference of two functions has no budget of its own, but it moves with them. Where it passes an integer it may be
that integer, at which functions have poles and jump; no evaluation needs to hit it by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes


class Between:
    """Least and greatest numbers so far, for each result in the order of evaluation."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, np.ndarray, np.ndarray]] = []
        self._position: int | None = 0

    def start(self) -> None:
        """Another evaluation begins."""
        self._position = 0

    def add(self, name: str, result: Any, to_integers: bool) -> Any:
        """Add a result of the evaluation, unchanged or, `to_integers`, rounded where an integer has been passed."""
        is_float = isinstance(result, (np.ndarray, np.generic)) and dtypes.kind(result.dtype) == "f"
        if self._position is None or not is_float:
            return result
        key, wide = (name, result.shape, result.dtype), result.astype(np.float64)
        if self._position == len(self._seen):
            self._seen.append((key, wide, wide))
        known, least, greatest = self._seen[self._position]
        if known != key:  # a branch or a loop went another way: nothing is known of what follows
            self._position = None
            return result
        if to_integers:
            first, last = np.ceil(least), np.floor(greatest)
            passed = (least < greatest) & (first <= last) & np.isfinite(first) & np.isfinite(last) & np.isfinite(wide)
            nearest = np.clip(np.rint(wide), first, last) + 0.0
            result = np.where(passed, nearest.astype(result.dtype), result)
        self._seen[self._position] = key, np.minimum(least, wide), np.maximum(greatest, wide)
        self._position += 1
        return result
