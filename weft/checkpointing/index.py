"""The index of a checkpoint: the structure of its tree, and for each leaf a value or the files with its elements.

`index.json` is written last, so a directory contains a complete checkpoint exactly if it contains this file:

    {"format": "weft checkpoint", "version": 1, "step": 3, "metadata": ..., "metrics": ...,
     "tree": the structure (structure.py),
     "values": {name: ["int", 3]},
     "arrays": {name: {"shape": [8, 4], "dtype": "float32", "weak_type": false, "numpy": false,
                       "pieces": [{"index": [[0, 4], [0, 4]], "file": ..., "tensor": ..., "crc32": ...}, ...]}}}

The pieces of an array form a grid: each dimension is cut into intervals, and each combination of intervals is one
piece. Files are untrusted input: everything is validated, and a malformed file raises `FileFormatError`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.base.dtypes import Dtype
from weft.base.errors import ArgumentTypeError, FileFormatError
from weft.checkpointing import storage, structure as structures, tensor_file
from weft.checkpointing.encoding import parse_dtype, storage_format

NAME = "index.json"
_FORMAT, _VERSION = "weft checkpoint", 1
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")

Box = tuple[tuple[int, int], ...]
"""A contiguous slice of an array: the half-open interval `(low, high)` of each dimension."""


class Piece(NamedTuple):
    """A box of an array, the file and tensor that hold it, and the checksums of its blocks (None in old files)."""

    box: Box
    file: str
    tensor: str
    checksums: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ArrayEntry:
    """Type and pieces of an array in a checkpoint. `numpy` is true if it was saved from a NumPy array."""

    shape: tuple[int, ...]
    dtype: Dtype
    weak_type: bool = False
    numpy: bool = False
    pieces: tuple[Piece, ...] = ()

    @property
    def box(self) -> Box:
        """The box of all elements."""
        return tuple((0, size) for size in self.shape)

    def short(self) -> str:
        """Return dtype and shape as jaxprs print them."""
        return f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Index:
    """Contents of a checkpoint: the structure of its tree, arrays and Python values by leaf name, and metadata."""

    tree: Any
    arrays: dict[str, ArrayEntry]
    values: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    metadata: Any = None
    metrics: Any = None


# -------------------------------------------------------------------------------------------------------------- writing


def to_json(index: Index) -> bytes:
    """Serialize an index as JSON."""
    return json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "step": index.step,
            "metadata": index.metadata,
            "metrics": index.metrics,
            "tree": index.tree,
            "values": {name: _value_text(value) for name, value in index.values.items()},
            "arrays": {name: _array_text(entry) for name, entry in index.arrays.items()},
        },
        allow_nan=False,
    ).encode()


def _array_text(entry: ArrayEntry) -> dict[str, Any]:
    return {
        "shape": entry.shape,
        "dtype": dtypes.name(entry.dtype),
        "weak_type": entry.weak_type,
        "numpy": entry.numpy,
        "pieces": [_piece_text(piece) for piece in entry.pieces],
    }


def _piece_text(piece: Piece) -> dict[str, Any]:
    found: dict[str, Any] = {"index": piece.box, "file": piece.file, "tensor": piece.tensor}
    return found if piece.checksums is None else {**found, "crc32": format_checksums(piece.checksums)}


def format_checksums(checksums: Sequence[int]) -> str:
    """Format checksums as the index stores them: eight hexadecimal digits each."""
    return "".join(f"{checksum:08x}" for checksum in checksums)


def parse_checksums(text: Any) -> tuple[int, ...]:
    """Parse the text of `format_checksums`; raise ValueError if it is malformed."""
    if not isinstance(text, str) or not re.fullmatch("(?:[0-9a-f]{8})*", text):
        raise ValueError(f"checksums must be hexadecimal digits, got {str(text)[:80]}")
    return tuple(int(text[at : at + 8], 16) for at in range(0, len(text), 8))


# Exact encodings of Python values in JSON, which has no NaN. Integers are hexadecimal: Python limits decimal digits.
_TO_TEXT: dict[type, Any] = {
    bool: lambda value: value,
    int: hex,
    float: lambda value: value.hex(),
    complex: lambda value: [value.real.hex(), value.imag.hex()],
    str: lambda value: value,
    bytes: lambda value: value.hex(),
}
_FROM_TEXT: dict[str, Any] = {
    "bool": lambda text: _expect(bool, text),
    "int": lambda text: int(_expect(str, text), 16),
    "float": lambda text: float.fromhex(_expect(str, text)),
    "complex": lambda text: complex(*(float.fromhex(_expect(str, part)) for part in _expect(list, text))),
    "str": lambda text: _expect(str, text),
    "bytes": lambda text: bytes.fromhex(_expect(str, text)),
}
VALUES = tuple(_TO_TEXT)
"""Types of Python values that a checkpoint can hold."""


def _value_text(value: Any) -> list[Any]:
    return [type(value).__name__, _TO_TEXT[type(value)](value)]


def _expect(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    return value


def check_json(value: Any, what: str) -> None:
    """Raise unless a value survives a round trip through JSON unchanged."""
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{what} of a checkpoint must be values of JSON.", received=str(error)) from None
    if not same:
        fix = "dicts with strings as keys, lists, strings, numbers, True, False, None"
        raise ArgumentTypeError(f"{what} of a checkpoint must be values of JSON.", received=repr(value)[:200], fix=fix)


# -------------------------------------------------------------------------------------------------------------- reading


def exists(directory: str) -> bool:
    """Return whether a directory contains a complete checkpoint."""
    return storage.exists(os.path.join(directory, NAME))


def read(directory: str) -> Index:
    """Read and validate the index of the checkpoint in a directory."""
    path = os.path.join(directory, NAME)
    if not (storage.exists(path) or os.path.lexists(path)):
        is_there = storage.is_directory(directory)
        unfinished = "it has no index.json: no save to it was finished" if is_there else "no such directory"
        raise FileNotFoundError(f"There is no checkpoint in {directory!r}; {unfinished}.")
    try:
        return from_json(tensor_file.content(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise malformed(path, str(error)) from None


def malformed(file: str, reason: str) -> FileFormatError:
    """Return the error for a malformed checkpoint file."""
    return FileFormatError(f"No checkpoint: {reason}.", received=file)


def from_json(text: bytes) -> Index:
    """Parse and validate an index; raise ValueError with the reason if it is malformed."""
    try:
        found = tensor_file.strict_json(text)
    except ValueError as error:
        raise ValueError(f"the index cannot be parsed: it {error}") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ValueError(f"the index must have the format {_FORMAT!r}")
    if found.get("version") != _VERSION:
        raise ValueError(f"the index must have version {_VERSION}, got {found.get('version')!r}")
    missing = [word for word in ("tree", "values", "arrays") if word not in found]
    if missing or not isinstance(found["values"], dict) or not isinstance(found["arrays"], dict):
        raise ValueError("the index must have a tree, a dict of values and a dict of arrays")
    step = found.get("step")
    if step is not None and type(step) is not int:
        raise ValueError(f"the step must be an integer, got {step!r}")
    values = {name: _value(name, value) for name, value in found["values"].items()}
    arrays = {name: _array(name, entry) for name, entry in found["arrays"].items()}
    names = sorted(structures.leaf_names(found["tree"]))
    if names != sorted([*values, *arrays]):
        raise ValueError("the leaves of the tree must be those of the values and arrays")
    return Index(found["tree"], arrays, values, step, found.get("metadata"), found.get("metrics"))


def _value(name: str, value: Any) -> Any:
    try:
        kind, text = value
        return _FROM_TEXT[kind](text)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"{name!r} has the invalid value {str(value)[:80]}") from None


def _array(name: str, entry: Any) -> ArrayEntry:
    if not isinstance(entry, dict):
        raise ValueError(f"the entry of {name!r} must be a dict")
    shape: Any = entry.get("shape")
    dtype = parse_dtype(entry.get("dtype"))
    if dtype is None:
        raise ValueError(f"{name!r} has the unknown dtype {entry.get('dtype')!r}")
    if not tensor_file.are_sizes(shape) or not _is_possible(shape, dtype):
        raise ValueError(f"{name!r} has the invalid shape {str(shape)[:80]}")
    pieces: Any = entry.get("pieces")
    weak_type, numpy = entry.get("weak_type"), entry.get("numpy")
    if type(weak_type) is not bool or type(numpy) is not bool:
        raise ValueError(f"{name!r} must have the booleans weak_type and numpy")
    if not isinstance(pieces, list):
        raise ValueError(f"{name!r} must have a list of pieces")
    found = tuple(_piece(name, piece, len(shape)) for piece in pieces)
    if not _is_grid([piece.box for piece in found], shape):
        raise ValueError(f"the pieces of {name!r} must cover the shape {tuple(shape)} exactly once")
    return ArrayEntry(tuple(shape), dtype, weak_type, numpy, found)


def _is_possible(shape: list[int], dtype: Dtype) -> bool:
    """Return whether NumPy can represent the stored array: at most 64 dimensions and less than 2**63 bytes.

    NumPy applies its limit to the product of the nonzero sizes, so empty arrays are checked too.
    """
    stored = storage_format(dtype)
    sizes = [size for size in (*shape, *stored.extra, stored.dtype.itemsize) if size]
    return len(shape) + len(stored.extra) <= 64 and math.prod(sizes) < 1 << 63


def _piece(name: str, piece: Any, ndim: int) -> Piece:
    if not isinstance(piece, dict):
        raise ValueError(f"the pieces of {name!r} must be dicts")
    index: Any = piece.get("index")
    file, tensor = piece.get("file"), piece.get("tensor")
    is_list = isinstance(index, list) and len(index) == ndim
    if not is_list or not all(tensor_file.are_sizes(interval) and len(interval) == 2 for interval in index):
        raise ValueError(f"{name!r} has a piece with the invalid index {str(index)[:80]}")
    # A plain name, so that a forged index cannot refer to files outside of the checkpoint's directory.
    if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
        raise ValueError(f"{name!r} has a piece with the invalid file name {file!r}")
    if not isinstance(tensor, str):
        raise ValueError(f"{name!r} has a piece with the invalid tensor name {tensor!r}")
    box = tuple((low, high) for low, high in index)
    return Piece(box, file, tensor, parse_checksums(piece["crc32"]) if "crc32" in piece else None)


def _is_grid(boxes: Sequence[Box], shape: Sequence[int]) -> bool:
    """Return whether boxes form a grid that covers a shape: consecutive intervals in each dimension, every combination
    once.
    """
    intervals = [sorted({box[dim] for box in boxes}) for dim in range(len(shape))]
    for size, cuts in zip(shape, intervals, strict=True):
        ends = [0, *(high for _, high in cuts)]
        if [low for low, _ in cuts] != ends[:-1] or ends[-1] != size or (len(cuts) > 1 and ends != sorted(set(ends))):
            return False
    # Distinct, and as many as there are combinations of intervals: so each combination occurs.
    return len(boxes) == len(set(boxes)) == math.prod(map(len, intervals))
