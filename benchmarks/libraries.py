"""Libraries that are compared. Those that are not installed are skipped."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, NamedTuple

PEERS = ("jax", "numpy", "torch")
TITLES = {"weft": "Weft", "jax": "JAX", "numpy": "NumPy", "torch": "PyTorch"}


class Library(NamedTuple):
    """Modules of Weft or JAX that benchmarks use, so that both run the same source."""

    np: Any
    lax: Any
    nn: Any
    random: Any
    top: Any


def installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def load(library: str) -> Library:
    """Import the modules of "weft" or "jax" and no other library, as measurements of import and first calls require."""
    parts = (importlib.import_module(f"{library}.{part}") for part in ("numpy", "lax", "nn", "random"))
    return Library(*parts, importlib.import_module(library))


def versions(libraries: tuple[str, ...]) -> dict[str, str]:
    return {library: importlib.import_module(library).__version__ for library in libraries}
