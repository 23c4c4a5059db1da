"""Logs of steps: results of metrics, packed by the program so that the host reads one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError


class Packing:
    """The layout of a dict of results: scalars as one vector, other arrays one by one, in alphabetical order.

    Args:
        results: a mapping of names to arrays, or to types of arrays.
    """

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.scalars = tuple(sorted(name for name in results if not np.shape(results[name])))
        self.others = tuple(sorted(name for name in results if np.shape(results[name])))
        dtypes = [wnp.result_type(results[name]) for name in self.scalars]
        self.dtype = np.float64 if any(dtype == np.float64 for dtype in dtypes) else np.float32

    def pack(self, results: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """Pack logs inside of a program: scalars as a vector, and the others."""
        parts = [wnp.asarray(results[name]).astype(self.dtype) for name in self.scalars]
        return (wnp.stack(parts) if parts else None), [wnp.asarray(results[name]) for name in self.others]

    def unpack(self, packed: tuple[Any, list[Any]]) -> dict[str, Any]:
        """Unpack logs on the host: floats and NumPy arrays by name, sorted. Waits until they are computed."""
        vector, others = packed
        found: dict[str, Any] = {}
        if vector is not None:
            found.update(zip(self.scalars, np.asarray(vector).tolist(), strict=True))
        if not others:
            return found
        found.update(zip(self.others, (np.asarray(other) for other in others), strict=True))
        return dict(sorted(found.items()))

    @staticmethod
    def is_ready(packed: tuple[Any, list[Any]]) -> bool:
        """Return whether the logs can be read without waiting for the device."""
        return all(leaf.is_ready() for leaf in weft.tree.leaves(packed))


def check_logs(logs: Any, step: str) -> dict[str, Any]:
    """Check that a step returned a mapping of logs (None: no logs) and return it as a dict of arrays."""
    if logs is None:
        return {}
    if not isinstance(logs, Mapping):
        raise ArgumentError(
            f"`{step}` must return a dict of logs: names and scalars.",
            received=f"a {type(logs).__name__}",
            fix='return {"loss": loss}, or self.compute_metrics(x, y, y_pred)',
        )
    return {str(name): wnp.asarray(value) for name, value in logs.items()}
