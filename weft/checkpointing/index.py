"""The index of a checkpoint: which tree it is, what its leaves are, and in which files they are.

`index.json` is the last file of a checkpoint that is written, so a directory has a checkpoint if it has this file:

    {"format": "weft checkpoint", "version": 1, "step": 3, "metadata": ..., "metrics": ...,
     "tree": the structure (structure.py),
     "values": {name: ["int", 3]},
     "arrays": {name: {"shape": [8, 4], "dtype": "float32", "weak_type": false, "numpy": false,
                       "pieces": [{"index": [[0, 4], [0, 4]], "file": ..., "tensor": ..., "crc32": ...}, ...]}}}

The pieces of an array are a grid: each dimension is cut into intervals, and there is one piece for each of their
combinations. What is read here may hold anything; all of it is checked, and what is wrong is a `FileFormatError`.
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
from weft.checkpointing import structure as structures, tensor_file
from weft.checkpointing.encoding import dtype_named, stored_form

NAME = "index.json"
_FORMAT, _VERSION = "weft checkpoint", 1
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")

Box = tuple[tuple[int, int], ...]
"""A part of an array: for each dimension the first index, and that after the last one."""


class Piece(NamedTuple):
    """A part of an array, and the file and the tensor in it that hold it, with the checksums of its blocks (none in
    checkpoints of versions without them)."""

    box: Box
    file: str
    tensor: str
    checksums: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ArrayEntry:
    """An array of a checkpoint; `numpy` if it was a NumPy array."""

    shape: tuple[int, ...]
    dtype: Dtype
    weak_type: bool = False
    numpy: bool = False
    pieces: tuple[Piece, ...] = ()

    @property
    def box(self) -> Box:
        """All of the array."""
        return tuple((0, size) for size in self.shape)

    def short(self) -> str:
        """Dtype and shape as in jaxprs."""
        return f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Index:
    """What a checkpoint holds: a structure, arrays and Python values by names of leaves, and what is said of it."""

    tree: Any
    arrays: dict[str, ArrayEntry]
    values: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    metadata: Any = None
    metrics: Any = None


# -------------------------------------------------------------------------------------------------------------- writing


def to_json(index: Index) -> bytes:
    """The text of an index."""
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
    return found if piece.checksums is None else {**found, "crc32": checksums_text(piece.checksums)}


def checksums_text(checksums: Sequence[int]) -> str:
    """Checksums as an index has them: eight hexadecimal digits each."""
    return "".join(f"{checksum:08x}" for checksum in checksums)


def checksums_of_text(text: Any) -> tuple[int, ...]:
    """Parse what `checksums_text` returned; a ValueError says what is wrong."""
    if not isinstance(text, str) or not re.fullmatch("(?:[0-9a-f]{8})*", text):
        raise ValueError(f"the checksums are {str(text)[:80]}")
    return tuple(int(text[at : at + 8], 16) for at in range(0, len(text), 8))


# Python values as JSON and back, exactly: JSON has no nan, and Python reads no integers of many decimal digits.
_TO_TEXT: dict[type, Any] = {
    bool: lambda value: value,
    int: hex,
    float: lambda value: value.hex(),
    complex: lambda value: [value.real.hex(), value.imag.hex()],
    str: lambda value: value,
    bytes: lambda value: value.hex(),
}
_FROM_TEXT: dict[str, Any] = {
    "bool": lambda text: _of(bool, text),
    "int": lambda text: int(_of(str, text), 16),
    "float": lambda text: float.fromhex(_of(str, text)),
    "complex": lambda text: complex(*(float.fromhex(_of(str, part)) for part in _of(list, text))),
    "str": lambda text: _of(str, text),
    "bytes": lambda text: bytes.fromhex(_of(str, text)),
}
VALUES = tuple(_TO_TEXT)
"""The types of Python values that a checkpoint can hold."""


def _value_text(value: Any) -> list[Any]:
    return [type(value).__name__, _TO_TEXT[type(value)](value)]


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value


def check_json(value: Any, what: str) -> None:
    """Whether a value comes back from JSON as it is."""
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{what} of a checkpoint must be values of JSON.", received=str(error)) from None
    if not same:
        fix = "dicts with strings as keys, lists, strings, numbers, True, False, None"
        raise ArgumentTypeError(f"{what} of a checkpoint must be values of JSON.", received=repr(value)[:200], fix=fix)


# -------------------------------------------------------------------------------------------------------------- reading


def exists(directory: str) -> bool:
    """Whether there is a checkpoint in a directory."""
    return os.path.isfile(os.path.join(directory, NAME))


def read(directory: str) -> Index:
    """The index of the checkpoint in a directory."""
    path = os.path.join(directory, NAME)
    if not os.path.lexists(path):
        unfinished = (
            "it has no index.json: no save to it was finished" if os.path.isdir(directory) else "no such directory"
        )
        raise FileNotFoundError(f"There is no checkpoint in {directory!r}; {unfinished}.")
    try:
        return from_json(tensor_file.content(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise wrong(path, str(error)) from None


def wrong(file: str, reason: str) -> FileFormatError:
    """The error that says what is wrong with a checkpoint."""
    return FileFormatError(f"No checkpoint: {reason}.", received=file)


def from_json(text: bytes) -> Index:
    """The index of a text; a ValueError says what is wrong with it."""
    try:
        found = tensor_file.strict_json(text)
    except ValueError as error:
        raise ValueError(f"the index {error}") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ValueError(f"the index does not have the format {_FORMAT!r}")
    if found.get("version") != _VERSION:
        raise ValueError(f"the index is of version {found.get('version')!r}, and this Weft reads version {_VERSION}")
    missing = [word for word in ("tree", "values", "arrays") if word not in found]
    if missing or not isinstance(found["values"], dict) or not isinstance(found["arrays"], dict):
        raise ValueError("the index has no tree, values and arrays")
    step = found.get("step")
    if step is not None and type(step) is not int:
        raise ValueError(f"the step is {step!r}")
    values = {name: _value(name, value) for name, value in found["values"].items()}
    arrays = {name: _array(name, entry) for name, entry in found["arrays"].items()}
    names = sorted(structures.leaf_names(found["tree"]))
    if names != sorted([*values, *arrays]):
        raise ValueError("the leaves of the tree are not those of the values and arrays")
    return Index(found["tree"], arrays, values, step, found.get("metadata"), found.get("metrics"))


def _value(name: str, value: Any) -> Any:
    try:
        kind, text = value
        return _FROM_TEXT[kind](text)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"{name!r} has the value {str(value)[:80]}") from None


def _array(name: str, entry: Any) -> ArrayEntry:
    if not isinstance(entry, dict):
        raise ValueError(f"{name!r} is no dict")
    shape: Any = entry.get("shape")
    dtype = dtype_named(entry.get("dtype"))
    if dtype is None:
        raise ValueError(f"{name!r} has the dtype {entry.get('dtype')!r}, which Weft does not have")
    if not tensor_file.are_sizes(shape) or not _is_possible(shape, dtype):
        raise ValueError(f"{name!r} has the shape {str(shape)[:80]}")
    pieces: Any = entry.get("pieces")
    weak_type, numpy = entry.get("weak_type"), entry.get("numpy")
    if type(weak_type) is not bool or type(numpy) is not bool:
        raise ValueError(f"{name!r} does not say weak_type and numpy")
    if not isinstance(pieces, list):
        raise ValueError(f"{name!r} has no list of pieces")
    found = tuple(_piece(name, piece, len(shape)) for piece in pieces)
    if not _is_grid([piece.box for piece in found], shape):
        raise ValueError(f"the pieces of {name!r} do not fill the shape {tuple(shape)} just once")
    return ArrayEntry(tuple(shape), dtype, weak_type, numpy, found)


def _is_possible(shape: list[int], dtype: Dtype) -> bool:
    """Whether NumPy can have an array of this shape as it is stored, for which it looks at empty ones too."""
    stored = stored_form(dtype)
    sizes = [size for size in (*shape, *stored.extra, stored.dtype.itemsize) if size]
    return len(shape) + len(stored.extra) <= 64 and math.prod(sizes) < 1 << 63


def _piece(name: str, piece: Any, ndim: int) -> Piece:
    if not isinstance(piece, dict):
        raise ValueError(f"{name!r} has a piece that is no dict")
    index: Any = piece.get("index")
    file, tensor = piece.get("file"), piece.get("tensor")
    if not isinstance(index, list) or len(index) != ndim:
        raise ValueError(f"{name!r} has a piece at {str(index)[:80]}")
    if not all(tensor_file.are_sizes(interval) and len(interval) == 2 for interval in index):
        raise ValueError(f"{name!r} has a piece at {str(index)[:80]}")
    # A file lies in the directory of the checkpoint, whatever the index says.
    if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
        raise ValueError(f"{name!r} has a piece in the file {file!r}")
    if not isinstance(tensor, str):
        raise ValueError(f"{name!r} has a piece with the name {tensor!r}")
    box = tuple((low, high) for low, high in index)
    return Piece(box, file, tensor, checksums_of_text(piece["crc32"]) if "crc32" in piece else None)


def _is_grid(boxes: Sequence[Box], shape: Sequence[int]) -> bool:
    """Whether boxes are all combinations of intervals that lie one after the other in each dimension."""
    intervals = [sorted({box[dim] for box in boxes}) for dim in range(len(shape))]
    for size, cuts in zip(shape, intervals, strict=True):
        ends = [0, *(high for _, high in cuts)]
        if [low for low, _ in cuts] != ends[:-1] or ends[-1] != size or (len(cuts) > 1 and ends != sorted(set(ends))):
            return False
    # As many as there are combinations, and no two alike: so all of them.
    return len(boxes) == len(set(boxes)) == math.prod(map(len, intervals))
