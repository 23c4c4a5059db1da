"""Prices of houses in California, of 1990."""

from __future__ import annotations

from weft.errors import ArgumentError
from weft.keras.datasets.files import Split, find, read_npz, shuffled_split


def load_data(
    version: str = "large", path: str = "california_housing.npz", test_split: float = 0.2, seed: int = 113
) -> Split:
    """Load 20640 rows of 8 properties of districts, and median prices in dollars.

    Args:
        version: "large", or "small" for 600 rows.
        path: The name of the file in the cache.
        test_split: The fraction of rows for tests.
        seed: What the order of rows depends on.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: properties `(n, 8)` and prices `(n,)`.
    """
    if version not in ("small", "large"):
        raise ArgumentError("version must be 'small' or 'large'.", received=repr(version))
    found = read_npz(find("california_housing.npz", path))
    rows = slice(0, 600 if version == "small" else None)
    return shuffled_split(found["x"][rows], found["y"][rows], test_split, seed)
