"""The safetensors file format: a JSON header with the dtype, shape and byte range of each array, then the arrays.

Eight bytes hold the length of the header (little endian); the header maps names to dtype, shape and byte range,
relative to its end. Files are untrusted input: a malformed file raises `FileFormatError` with its name and the reason,
and nothing in a file is ever executed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import mmap
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from weft.base.errors import ArgumentTypeError, FileFormatError
from weft.checkpointing import storage

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
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
    }.items()
}
NAMES = {kind: name for name, kind in DTYPES.items()}
METADATA = "__metadata__"
PARTIAL = ".partial"  # suffix of files that are being written
SUFFIX = ".safetensors"
Bytes: TypeAlias = "bytes | mmap.mmap | storage.RemoteBytes"
_LONGEST_HEADER = 100_000_000


# -------------------------------------------------------------------------------------------------------------- writing


def chunks(
    arrays: Sequence[tuple[str, np.ndarray]], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file with these arrays in this order: the header, then the bytes of each array."""
    header: dict[str, Any] = {METADATA: _check_metadata(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays:
        kind = NAMES.get(array.dtype.newbyteorder("="))
        if kind is None:
            raise ArgumentTypeError(f"safetensors has no dtype {array.dtype}, which {name!r} has.")
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for _, array in arrays:
        if array.size:
            little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            yield little.reshape(-1).view(np.uint8).data


def _check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError("The metadata of a file must be strings.", received=f"{key!r}: {value!r}")
    return dict(metadata)


@contextlib.contextmanager
def replacing(target: str) -> Iterator[IO[bytes]]:
    """Return a context that opens a temporary file and renames it to `target` once its bytes are on disk.

    If the block fails, the temporary file is deleted and an existing `target` stays. A URL becomes an object.
    """
    if storage.is_url(target):
        with storage.replace_object(target, streams=target.endswith(SUFFIX)) as opened:
            yield opened
        return
    temporary = f"{target}.{secrets.token_hex(4)}{PARTIAL}"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def make_directory(path: str) -> None:
    """Create a directory and its parents unless they exist, and flush them to disk; object storage needs none."""
    if not storage.is_url(path) and not os.path.isdir(path):
        parent = os.path.dirname(path)
        make_directory(parent)
        with contextlib.suppress(FileExistsError):  # another process has created it
            os.mkdir(path)
        sync_directory(parent)


def sync_directory(path: str) -> None:
    """Flush the entries of a directory to disk."""
    if storage.is_url(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------------------------ checksums

BLOCK = 1 << 22
"""Bytes per checksum. Reading a box verifies only the blocks that it touches, in parallel."""
_INLINE = 1 << 16  # up to this many bytes, starting threads takes longer than the checksum
# zlib.crc32 takes 1 s per GB and releases the interpreter lock.
_WORKERS = max(1, min(8, (os.cpu_count() or 1)))


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process that compute checksums; a forked process gets its own."""
    return ThreadPoolExecutor(_WORKERS, "checksums")


def begin_checksums(data: Any) -> Callable[[], list[int]]:
    """Start to compute the checksums (CRC-32) of the blocks of a buffer in threads.

    Args:
        data: bytes, or a view of them.

    Returns:
        A function that waits for them.
    """
    if len(data) <= _INLINE:
        found = [zlib.crc32(data)] if len(data) else []
        return lambda: found
    view = memoryview(data)
    futures = [_pool(os.getpid()).submit(zlib.crc32, view[at : at + BLOCK]) for at in range(0, len(view), BLOCK)]
    return lambda: [future.result() for future in futures]


# -------------------------------------------------------------------------------------------------------------- reading


class Entry(NamedTuple):
    """The header entry of one array: its range of bytes in the file, name, dtype and shape."""

    low: int
    high: int
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Header(NamedTuple):
    """The arrays of a file by name, in the order of their bytes, and the metadata saved with them."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


def malformed(file: str, reason: str) -> FileFormatError:
    """Return the error for a malformed file."""
    return FileFormatError(f"No safetensors file: {reason}.", received=file)


def content(file: str) -> bytes:
    """Read all bytes of a regular file, or of an object at a URL."""
    if storage.is_url(file):
        return storage.read_object(file)
    with _open_regular(file) as opened:
        return opened.read()


def map_file(file: str) -> Bytes:
    """Map a regular file into memory; its pages are read when they are used. Of an object at a URL, ranges are read."""
    if storage.is_url(file):
        return storage.RemoteBytes(file)
    with _open_regular(file) as opened:
        if not os.fstat(opened.fileno()).st_size:
            return b""  # an empty file cannot be mapped
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _open_regular(file: str) -> IO[bytes]:
    """Open a regular file. Reading anything else, such as a pipe, might never end."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise malformed(file, "it is not a regular file")
    return open(file, "rb")


def read_header(data: Bytes, file: str) -> Header:
    """Parse and validate the header of a file: the arrays must lie one after the other and fill the file."""
    header, start = _parse_header(data, file)
    metadata = header.pop(METADATA, {})
    end = 0
    entries = {}
    for low, high, name, dtype, shape in sorted(_entry(name, entry, file) for name, entry in header.items()):
        size = math.prod(shape) * dtype.itemsize
        if low != end or high - low != size or start + high > len(data):
            found = f"{name!r} of shape {shape} and dtype {dtype} is at bytes {low} to {high} of {len(data) - start}"
            raise malformed(file, f"{found}, but must be at {end} to {end + size}")
        end = high
        entries[name] = Entry(start + low, start + high, name, dtype, shape)
    if start + end != len(data):
        raise malformed(file, f"the arrays end at byte {start + end}, but the file at {len(data)}")
    return Header(entries, metadata)


def read_array(data: Bytes, entry: Entry, file: str) -> np.ndarray:
    """Return one array of a file as a view of its bytes."""
    try:
        if entry.low == entry.high:
            return np.empty(entry.shape, entry.dtype)
        count = (entry.high - entry.low) // entry.dtype.itemsize
        if isinstance(data, storage.RemoteBytes):
            return np.frombuffer(data[entry.low : entry.high], entry.dtype, count).reshape(entry.shape)
        return np.frombuffer(data, entry.dtype, count, entry.low).reshape(entry.shape)
    except ValueError as error:  # more dimensions than NumPy has
        raise malformed(file, f"{entry.name!r} cannot have the shape {entry.shape}: {error}") from None


def _entry(name: str, entry: Any, file: str) -> Entry:
    """Validate the header entry of an array; its byte range is relative to the end of the header."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise malformed(file, f"the header entry of {name!r} must have dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise malformed(file, f"{name!r} has the unknown dtype {kind!r}")
    if not are_sizes(shape):
        raise malformed(file, f"{name!r} has the invalid shape {shape!r}")
    if not are_sizes(offsets) or len(offsets) != 2:
        raise malformed(file, f"{name!r} has the invalid data_offsets {offsets!r}")
    return Entry(offsets[0], offsets[1], name, DTYPES[kind], tuple(shape))


def are_sizes(value: Any) -> bool:
    """Return whether a JSON value is a list of sizes."""
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _parse_header(data: Bytes, file: str) -> tuple[dict[str, Any], int]:
    """Parse the JSON of a header; return it and the offset of the first array."""
    if len(data) < 8:
        raise malformed(file, f"{len(data)} bytes are too few for a header")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise malformed(file, f"a header of {length} bytes does not fit into a file of {len(data)}")
    try:
        header = strict_json(data[8 : 8 + length])
    except ValueError as error:
        raise malformed(file, f"the header {error}") from None
    if not isinstance(header, dict):
        raise malformed(file, f"the header must be a dict, got a {type(header).__name__}")
    metadata = header.get(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise malformed(file, "the metadata must be strings")
    return header, 8 + length


def strict_json(text: bytes) -> Any:
    """Parse a JSON text in UTF-8; raise ValueError if it is malformed or a dict has a duplicate key."""
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            repeated.append(next(name for name in names if names.count(name) > 1))
        return result

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if repeated:
        raise ValueError(f"has the key {repeated[0]!r} twice")
    return value
