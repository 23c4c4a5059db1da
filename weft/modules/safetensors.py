"""Trees of arrays as safetensors files (`checkpointing/tensor_file.py` has the format).

A tree is stored under dotted names: `{"params": {"Dense_0": {"kernel": k}}}` as `params.Dense_0.kernel`.

Any tree can be saved, such as the state of an optimizer: elements of sequences are named by index, fields by name. A
file contains names only, so it is read back as nested dicts, or as a tree like a given `target`.

Files are untrusted input: a malformed file raises `FileFormatError` with its name and the reason.
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
from weft.modules.serialization import list_children

# Python numbers in a target are restored as numbers of the same type.
_NUMBERS = (bool, int, float, complex)


def flat(tree: Any, separator: str = ".") -> dict[str, Any]:
    """Flatten a tree to a dict from dotted names to leaves."""
    found: dict[str, Any] = {}

    def visit(node: Any, prefix: str) -> None:
        children = list_children(node)
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
        what = "A tree to save cannot use the format's own key." if name else "A tree to save must have keys."
        raise ArgumentError(what, received=f"{type(leaf).__name__} under {name!r}")
    if name in found:
        raise ArgumentError("The keys of a tree to save must differ as text.", received=repr(name))
    found[name] = leaf


def nested(arrays: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Build the nested dict of arrays with dotted names."""
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
                f"With the separator {separator!r} the array {name!r} must not be a dict too, or inside of an array.",
                received=", ".join(repr(other) for other in arrays if _related(name, other, separator)),
                fix='separator="/", or another one that does not occur in the names',
            )
        node[last] = value
    return tree


def _related(name: str, other: str, separator: str) -> bool:
    return f"{name}{separator}".startswith(f"{other}{separator}") or other.startswith(f"{name}{separator}")


# -------------------------------------------------------------------------------------------------------------- writing


def serialize(tree: Any, metadata: Mapping[str, str] | None = None, separator: str = ".") -> bytes:
    """Serialize a tree of arrays and numbers to the bytes of a safetensors file."""
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
    """Read the bytes of a safetensors file as a nested dict of arrays, or as a tree like `target`."""
    return _tree(_arrays(data, "these bytes"), separator, target, "these bytes")


def load_file(filename: str | os.PathLike[str], separator: str = ".", target: Any = None) -> Any:
    """Read a file as a nested dict of arrays, or as a tree with the node types and Python numbers of `target`.

    Shapes must equal those of `target`.
    """
    file = os.fspath(filename)
    return _tree(_arrays(tensor_file.content(file), file), separator, target, file)


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata saved with the arrays."""
    return tensor_file.read_header(data, "these bytes").metadata


def _arrays(data: bytes, file: str) -> dict[str, Any]:
    """Return the arrays of a file by name."""
    arrays = {}
    for name, entry in tensor_file.read_header(data, file).entries.items():
        try:
            arrays[name] = wnp.asarray(tensor_file.read_array(data, entry, file))
        except NarrowingOverflowError as error:
            raise NarrowingOverflowError(f"{file}: {name!r}: {error.what}", fix=error.fix) from None
    return arrays


def _tree(arrays: dict[str, Any], separator: str, target: Any, file: str) -> Any:
    """Build nested dicts of arrays, or a tree like the target."""
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
            f"The arrays in {file} must be those of the target.", received=f"missing {missing}, too many {more}"
        )
    for name, leaf in wanted.items():
        if np.shape(leaf) != arrays[name].shape:
            shapes = f"{arrays[name].shape} in the file, {np.shape(leaf)} in the target"
            raise ParameterShapeError(f"{name!r} in {file} must have the shape of the target.", received=shapes)
    leaves, structure = weft.tree.flatten(opened)  # in the order of their names
    restored = [_restore_leaf(arrays[name], leaf) for name, leaf in zip(wanted, leaves, strict=True)]
    return replace_boxed(target, weft.tree.unflatten(structure, restored))


def _restore_leaf(array: Any, leaf: Any) -> Any:
    """Convert an array of a file to the type of the target's leaf."""
    if type(leaf) in _NUMBERS:
        return type(leaf)(array.item())
    return np.asarray(array) if isinstance(leaf, (np.ndarray, np.generic)) else array
