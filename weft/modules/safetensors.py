"""Trees of arrays as safetensors files (`checkpointing/tensor_file.py` has the format).

A tree is stored under dotted names: `{"params": {"Dense_0": {"kernel": k}}}` as `params.Dense_0.kernel`.

Any tree can be saved, such as the state of an optimizer: elements of sequences go by their index and fields by their
names. A file knows only names, so it is read back as nested dicts, or as a tree like a given `target`.

A file may hold anything: what is no file of this format raises `FileFormatError`, which names the file and the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, FileFormatError, NarrowingOverflowError, ParameterShapeError
from weft.modules.metadata import replace_boxed, unbox
from weft.modules.serialization import children_of

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
    if name in ("", tensor_file.METADATA):
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
    return b"".join(_chunks(tree, metadata, separator))


def _chunks(tree: Any, metadata: Mapping[str, str] | None, separator: str) -> Iterator[bytes | memoryview]:
    arrays = [(name, np.asarray(value)) for name, value in sorted(flat(tree, separator).items())]
    return tensor_file.chunks(arrays, metadata)


def save_file(
    tree: Any,
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    separator: str = ".",
) -> None:
    """Write a tree of arrays and numbers to a file; an existing file is replaced once the new one is complete."""
    with tensor_file.replacing(os.path.realpath(filename)) as file:
        file.writelines(_chunks(tree, metadata, separator))


# -------------------------------------------------------------------------------------------------------------- reading


def deserialize(data: bytes, separator: str = ".", target: Any = None) -> Any:
    """The nested dict of arrays in the bytes of a safetensors file, or a tree like `target`."""
    return _tree(_arrays(data, "these bytes"), separator, target, "these bytes")


def load_file(filename: str | os.PathLike[str], separator: str = ".", target: Any = None) -> Any:
    """The nested dict of arrays in a file, or a tree like `target`: with its nodes, and numbers where it has numbers.
    The shapes must be those of the target."""
    file = os.fspath(filename)
    return _tree(_arrays(tensor_file.content(file), file), separator, target, file)


def metadata_of(data: bytes) -> dict[str, str]:
    """The metadata that was saved with the arrays."""
    return tensor_file.read_header(data, "these bytes").metadata


def _arrays(data: bytes, file: str) -> dict[str, Any]:
    """The arrays of a file by name."""
    arrays = {}
    for name, entry in tensor_file.read_header(data, file).entries.items():
        try:
            arrays[name] = wnp.asarray(tensor_file.read_array(data, entry, file))
        except NarrowingOverflowError as error:
            raise NarrowingOverflowError(f"{file}: {name!r}: {error.what}", fix=error.fix) from None
    return arrays


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
