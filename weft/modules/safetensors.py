"""The safetensors file format: a header of JSON that says where each array lies, then the arrays.

Eight bytes hold the length of the header (little endian); the header maps names to dtype, shape and the range of bytes
after it. A tree is stored under dotted names: `{"params": {"Dense_0": {"kernel": k}}}` as `params.Dense_0.kernel`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError
from weft.modules.metadata import unbox

_DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
    "C64": np.complex64,
}
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000


def flat(tree: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The arrays of a nested dict by their dotted names."""
    found: dict[str, Any] = {}

    def visit(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            if not isinstance(key, str) or not key or separator in key:
                raise ArgumentError(
                    f"A key in a tree to save must be a string without {separator!r}, got {key!r} below "
                    f"{prefix.removesuffix(separator)!r}; choose another separator=."
                )
            if isinstance(value, Mapping):
                visit(value, f"{prefix}{key}{separator}")
            else:
                found[prefix + key] = value

    visit(unbox(tree), "")
    return found


def nested(arrays: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The nested dict of arrays that have dotted names."""
    made: dict[str, Any] = {}
    for name, value in arrays.items():
        *outer, last = name.split(separator)
        node = made
        for part in outer:
            node = node.setdefault(part, {})
        node[last] = value
    return made


def serialize(tree: Mapping[str, Any], metadata: Mapping[str, str] | None = None, separator: str = ".") -> bytes:
    """A nested dict of arrays as the bytes of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[bytes] = []
    offset = 0
    for name, value in sorted(flat(tree, separator).items()):
        array = np.asarray(value)
        kind = _NAMES.get(array.dtype)
        if kind is None:
            raise ArgumentTypeError(f"safetensors has no dtype {array.dtype}, that of {name!r}.")
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def deserialize(data: bytes, separator: str = ".") -> dict[str, Any]:
    """The nested dict of arrays in the bytes of a safetensors file."""
    header, start = _header(data)
    arrays = {}
    end = 0
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    for name, entry in sorted(entries, key=lambda pair: pair[1]["data_offsets"]):
        low, high = entry["data_offsets"]
        kind, shape = _DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if kind is None:
            raise ArgumentError(f"safetensors: {name!r} has the dtype {entry['dtype']!r}, which Weft does not have.")
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        if low != end or high - low != size or start + high > len(data):
            raise ArgumentError(
                f"safetensors: {name!r} of shape {shape} and dtype {entry['dtype']} lies at bytes {low} to {high}; "
                f"it should lie at {end} to {end + size}, and the file has {len(data) - start}."
            )
        end = high
        array = np.frombuffer(data, kind, offset=start + low, count=size // np.dtype(kind).itemsize).reshape(shape)
        arrays[name] = wnp.asarray(array)
    if start + end != len(data):
        raise ArgumentError(f"safetensors: the arrays end at byte {start + end}, the file at {len(data)}.")
    return nested(arrays, separator)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    if len(data) < 8:
        raise ArgumentError(f"safetensors: {len(data)} bytes are too few to be a file.")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise ArgumentError(f"safetensors: a header of {length} bytes does not fit into a file of {len(data)}.")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise ArgumentError(f"safetensors: the header is no JSON: {error}.") from error
    if not isinstance(header, dict):
        raise ArgumentError(f"safetensors: the header is no dict but a {type(header).__name__}.")
    return header, 8 + length


def metadata_of(data: bytes) -> dict[str, str]:
    """The metadata that was saved with the arrays."""
    return dict(_header(data)[0].get("__metadata__", {}))


def save_file(
    tree: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    separator: str = ".",
) -> None:
    """Write a nested dict of arrays to a file; a file that is there is replaced when the new one is whole."""
    data = serialize(tree, metadata, separator)
    temporary = f"{os.fspath(filename)}.partial"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, filename)


def load_file(filename: str | os.PathLike[str], separator: str = ".") -> dict[str, Any]:
    """The nested dict of arrays in a file."""
    with open(filename, "rb") as file:
        return deserialize(file.read(), separator)
