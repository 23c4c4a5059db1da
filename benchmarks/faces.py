"""The libraries that are compared, found by name: a peer that is not installed is left out of the table."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, NamedTuple

PEERS = ("jax", "numpy", "torch")
TITLES = {"weft": "Weft", "jax": "JAX", "numpy": "NumPy", "torch": "PyTorch"}


class Faces(NamedTuple):
    """The parts of Weft or JAX that lines are written over, so that both run the same text."""

    np: Any
    lax: Any
    nn: Any
    random: Any
    top: Any


def installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def load(library: str) -> Faces:
    """The faces of "weft" or "jax". Only this library is imported, which measurements of fresh processes rely on."""
    parts = (importlib.import_module(f"{library}.{part}") for part in ("numpy", "lax", "nn", "random"))
    return Faces(*parts, importlib.import_module(library))


def versions(libraries: tuple[str, ...]) -> dict[str, str]:
    return {library: importlib.import_module(library).__version__ for library in libraries}
