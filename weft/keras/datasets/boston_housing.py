"""Prices of houses in Boston, of 1978."""

from __future__ import annotations

from weft.keras.datasets.files import Split, find, read_npz, shuffled_split


def load_data(path: str = "boston_housing.npz", test_split: float = 0.2, seed: int = 113) -> Split:
    """Load 506 rows of 13 properties of neighbourhoods, and median prices in thousands of dollars.

    One property is about the people of a neighbourhood, so the data also serves as a warning; `california_housing` has
    no such property.

    Args:
        path: The name of the file in the cache.
        test_split: The fraction of rows for tests.
        seed: What the order of rows depends on.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: properties float64 `(n, 13)` and prices float64 `(n,)`.
    """
    found = read_npz(find("boston_housing.npz", path))
    return shuffled_split(found["x"], found["y"], test_split, seed)
