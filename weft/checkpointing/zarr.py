"""Arrays in the zarr format, version 3, as plain files: `zarr.json`, and one uncompressed file for each chunk.

It reads only the encoding that it writes, chunks of raw bytes; tensorstore reads other codecs.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.errors import FileFormatError
from weft.checkpointing import tensor_file
from weft.checkpointing.encoding import parse_dtype
from weft.checkpointing.index import Box

NAME = "zarr.json"
CHECKSUMS = "weft-checksums"
"""Prefix of the files beside the arrays that hold checksums of chunks by file name. Other programs ignore them."""


class Header(NamedTuple):
    """The contents of `zarr.json`: shape, chunk shape and dtype of an array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]


def describe(shape: Sequence[int], chunk: Sequence[int], dtype: str) -> dict[str, Any]:
    """Return the value of `zarr.json` for an array.

    Args:
        shape: the shape of the array.
        chunk: the shape of all chunks; chunks at the end are padded.
        dtype: the name of the dtype.
    """
    zero: Any = 0.0 if dtype.startswith(("float", "bfloat")) else 0
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if dtype == "bool" else [zero, zero] if dtype.startswith("complex") else zero,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }


def chunk_file(position: Sequence[int]) -> str:
    """Return the path of a chunk below the directory of its array."""
    return "/".join(["c", *map(str, position)])


def chunk_bytes(value: np.ndarray, chunk: Sequence[int]) -> memoryview:
    """Return the bytes of a chunk; one at the end of an array is padded with zeros."""
    if value.shape != tuple(chunk):
        full = np.zeros(chunk, value.dtype)
        full[tuple(slice(0, size) for size in value.shape)] = value
        value = full
    little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def read_header(directory: str) -> Header | None:
    """Read the header of the array in a directory; return None if its encoding is not the one written here."""
    path = os.path.join(directory, NAME)
    if not os.path.isfile(path):
        return None
    try:
        found = tensor_file.strict_json(tensor_file.content(path))
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"{path} must be a zarr header, but {error}.") from None
    match found:
        case {
            "zarr_format": 3,
            "shape": list(shape),
            "data_type": str(name),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes"}],
        }:
            dtype = parse_dtype(name)
            sizes = tensor_file.are_sizes(shape) and tensor_file.are_sizes(chunk)
            if sizes and len(shape) == len(chunk) <= 64 and all(chunk) and isinstance(dtype, np.dtype):
                return Header(tuple(shape), tuple(chunk), dtype)
            raise FileFormatError(f"{path} does not describe a valid array.", received=f"{str(shape)[:80]} {name[:40]}")
    return None


def read(directory: str, header: Header, box: Box, checksums: Mapping[str, int] = {}, root: str = "") -> np.ndarray:
    """Read a box of an array; its chunk files must exist and have the right size.

    Args:
        directory: the directory of the array.
        header: the result of `read_header`.
        box: the box.
        checksums: checksums of chunks by their paths relative to `root`; chunks without one are not verified.
        root: the directory that the paths of checksums are relative to.
    """
    size = math.prod(header.chunk) * header.dtype.itemsize
    parts = list(_chunks(header, box))
    for _, _, _, name in parts:
        path = os.path.join(directory, name)
        if not os.path.isfile(path) or os.path.getsize(path) != size:
            there = f"{os.path.getsize(path):,} bytes" if os.path.isfile(path) else "no file"
            raise FileFormatError(f"{path} must have {size:,} bytes, a chunk of {header.chunk}.", received=there)
    result = np.empty(tuple(high - low for low, high in box), header.dtype)
    for inside, target, _, name in parts:
        path = os.path.join(directory, name)
        data = tensor_file.content(path)
        expected = checksums.get(os.path.relpath(path, root).replace(os.sep, "/")) if checksums else None
        if expected is not None and zlib.crc32(data) != expected:
            raise FileFormatError(f"{path} was changed after it was written: its checksum does not match.")
        result[target] = np.frombuffer(data, header.dtype.newbyteorder("<")).reshape(header.chunk)[inside]
    return result


def _chunks(header: Header, box: Box) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...], str]]:
    """Yield for each chunk that a box overlaps: the slices in the chunk, the slices in the box, its position and its
    file name.
    """
    ranges = [range(low // chunk, -(-high // chunk)) for (low, high), chunk in zip(box, header.chunk, strict=True)]
    if any(low == high for low, high in box):
        return
    for position in itertools.product(*ranges):
        starts = [i * chunk for i, chunk in zip(position, header.chunk, strict=True)]
        bounds = [
            (max(low, start), min(high, start + chunk))
            for (low, high), start, chunk in zip(box, starts, header.chunk, strict=True)
        ]
        inside = tuple(slice(a - start, b - start) for (a, b), start in zip(bounds, starts, strict=True))
        target = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(bounds, box, strict=True))
        yield inside, target, position, chunk_file(position)
