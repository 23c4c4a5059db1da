"""The safetensors file format: a header of JSON that says where each array lies, then the arrays.

Eight bytes hold the length of the header (little endian); the header maps names to dtype, shape and the range of bytes
after it. A tree is stored under dotted names: `{"params": {"Dense_0": {"kernel": k}}}` as `params.Dense_0.kernel`.

Any tree can be saved, such as the state of an optimizer: elements of sequences go by their index and fields by their
names. A file knows only names, so it is read back as nested dicts, or as a tree like a given `target`.

A file may hold anything: what is no file of this format raises `FileFormatError`, which names the file and the reason.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import stat
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError, FileFormatError, NarrowingOverflowError, ParameterShapeError
from weft.modules.metadata import replace_boxed, unbox
from weft.modules.serialization import children_of

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
_METADATA = "__metadata__"
# What numbers of Python are restored as, if the target has them.
_NUMBERS = (bool, int, float, complex)


def flat(tree: Any, separator: str = ".") -> dict[str, Any]:
    """The leaves of a tree by their dotted names."""
    found: dict[str, Any] = {}

    def visit(node: Any, prefix: str) -> None:
        children = children_of(node)
        if children is None:
            _add(found, prefix.removesuffix(separator) if prefix else "", node)
            return
        for key, child in children:
            if not key or separator in key:
                raise ArgumentError(
                    f"A key in a tree to save must be a string without {separator!r}, got {key!r} below "
                    f"{prefix.removesuffix(separator)!r}; choose another separator=."
                )
            visit(child, f"{prefix}{key}{separator}")

    visit(unbox(tree), "")
    return found


def _add(found: dict[str, Any], name: str, leaf: Any) -> None:
    if name in ("", _METADATA):
        what = "a tree of keys" if not name else "another key: this one is the format's own"
        raise ArgumentError(f"What is saved must be {what}.", received=f"{type(leaf).__name__} under {name!r}")
    if name in found:
        raise ArgumentError("Two keys of a tree to save are the same as text.", received=repr(name))
    found[name] = leaf


def nested(arrays: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The nested dict of arrays that have dotted names."""
    tree: dict[str, Any] = {}
    for name, value in arrays.items():
        *outer, last = name.split(separator)
        node = tree
        for part in outer:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or last in node:
            raise ArgumentError(
                f"The name {name!r} is an array, and with {separator!r} a dict of others or inside of another array.",
                received=", ".join(repr(other) for other in arrays if _related(name, other, separator)),
                fix='separator="/", or another one that is not in the names: they are the keys of one dict then',
            )
        node[last] = value
    return tree


def _related(name: str, other: str, separator: str) -> bool:
    return f"{name}{separator}".startswith(f"{other}{separator}") or other.startswith(f"{name}{separator}")


# -------------------------------------------------------------------------------------------------------------- writing


def serialize(tree: Any, metadata: Mapping[str, str] | None = None, separator: str = ".") -> bytes:
    """A tree of arrays and numbers as the bytes of a safetensors file."""
    header: dict[str, Any] = {_METADATA: _checked_metadata(metadata)} if metadata else {}
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


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError("The metadata of a file must be strings.", received=f"{key!r}: {value!r}")
    return dict(metadata)


def save_file(
    tree: Any,
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    separator: str = ".",
) -> None:
    """Write a tree of arrays and numbers to a file; a file that is there is replaced when the new one is whole."""
    data = serialize(tree, metadata, separator)
    target = os.path.realpath(filename)
    temporary = f"{target}.{secrets.token_hex(4)}.partial"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# -------------------------------------------------------------------------------------------------------------- reading


class _Entry(NamedTuple):
    """What the header says of one array."""

    low: int
    high: int
    name: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]


def deserialize(data: bytes, separator: str = ".", target: Any = None) -> Any:
    """The nested dict of arrays in the bytes of a safetensors file, or a tree like `target`."""
    return _tree(_arrays(data, "these bytes"), separator, target, "these bytes")


def load_file(filename: str | os.PathLike[str], separator: str = ".", target: Any = None) -> Any:
    """The nested dict of arrays in a file, or a tree like `target`: with its nodes, and numbers where it has numbers.
    The shapes must be those of the target."""
    file = os.fspath(filename)
    return _tree(_arrays(_content(file), file), separator, target, file)


def metadata_of(data: bytes) -> dict[str, str]:
    """The metadata that was saved with the arrays."""
    return _header(data, "these bytes")[0].get(_METADATA, {})


def _content(file: str) -> bytes:
    if not stat.S_ISREG(os.stat(file).st_mode):  # reading anything else may never end
        raise _wrong(file, "it is no regular file")
    with open(file, "rb") as opened:
        return opened.read()


def _wrong(file: str, reason: str) -> FileFormatError:
    return FileFormatError(f"No safetensors file: {reason}.", received=file)


def _arrays(data: bytes, file: str) -> dict[str, Any]:
    """The arrays of a file by name."""
    header, start = _header(data, file)
    entries = sorted(_entry(name, entry, file) for name, entry in header.items() if name != _METADATA)
    arrays, end = {}, 0
    for low, high, name, kind, shape in entries:
        size = math.prod(shape) * kind.itemsize
        if low != end or high - low != size or start + high > len(data):
            described = f"{name!r} of shape {shape} and dtype {kind} lies at bytes {low} to {high}"
            expected = f"it should lie at {end} to {end + size}, and the file has {len(data) - start}"
            raise _wrong(file, f"{described}; {expected}")
        end = high
        try:
            elements = np.frombuffer(memoryview(data)[start + low : start + high], kind) if size else np.empty(0, kind)
            arrays[name] = wnp.asarray(elements.reshape(shape))
        except NarrowingOverflowError as error:
            raise NarrowingOverflowError(f"{file}: {name!r}: {error.what}", fix=error.fix) from None
        except ValueError as error:  # more dimensions than NumPy has
            raise _wrong(file, f"{name!r} cannot have the shape {shape}: {error}") from None
    if start + end != len(data):
        raise _wrong(file, f"the arrays end at byte {start + end}, the file at {len(data)}")
    return arrays


def _entry(name: str, entry: Any, file: str) -> _Entry:
    """What the header says of an array, if it is as it should be."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise _wrong(file, f"{name!r} has no dtype, shape and data_offsets in the header")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise _wrong(file, f"{name!r} has the dtype {kind!r}, which Weft does not have")
    if not _are_sizes(shape):
        raise _wrong(file, f"{name!r} has the shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _wrong(file, f"{name!r} has the data_offsets {offsets!r}")
    return _Entry(offsets[0], offsets[1], name, np.dtype(_DTYPES[kind]), tuple(shape))


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _header(data: bytes, file: str) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    if len(data) < 8:
        raise _wrong(file, f"{len(data)} bytes are too few to be a file")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise _wrong(file, f"a header of {length} bytes does not fit into a file of {len(data)}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            names = [name for name, _ in pairs]
            raise _wrong(file, f"the header has {next(n for n in names if names.count(n) > 1)!r} twice")
        return entries

    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise _wrong(file, f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _wrong(file, f"the header is no dict but a {type(header).__name__}")
    metadata = header.get(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _wrong(file, "the metadata are no strings")
    return header, 8 + length


def _tree(arrays: dict[str, Any], separator: str, target: Any, file: str) -> Any:
    """The arrays as nested dicts, or as a tree like the target."""
    if target is None:
        try:
            return nested(arrays, separator)
        except ArgumentError as error:
            raise FileFormatError(f"{file}: {error.what}", received=error.received, fix=error.fix) from None
    opened = unbox(target)
    wanted = flat(opened, separator)
    if wanted.keys() != arrays.keys():
        missing, more = sorted(wanted.keys() - arrays.keys()), sorted(arrays.keys() - wanted.keys())
        raise ArgumentError(
            f"The arrays in {file} are not those of the target.", received=f"missing {missing}, too many {more}"
        )
    for name, leaf in wanted.items():
        if np.shape(leaf) != arrays[name].shape:
            shapes = f"{arrays[name].shape} in the file, {np.shape(leaf)} in the target"
            raise ParameterShapeError(f"{name!r} in {file} has another shape than in the target.", received=shapes)
    leaves, structure = weft.tree.flatten(opened)  # in the order of their names
    restored = [_restored(arrays[name], leaf) for name, leaf in zip(wanted, leaves, strict=True)]
    return replace_boxed(target, weft.tree.unflatten(structure, restored))


def _restored(array: Any, leaf: Any) -> Any:
    """An array from a file as what the target has there."""
    if type(leaf) in _NUMBERS:
        return type(leaf)(array.item())
    return np.asarray(array) if isinstance(leaf, (np.ndarray, np.generic)) else array
