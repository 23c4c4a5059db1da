"""Checkpoints in Orbax's layout: reading (OCDBT or a zarr array per leaf, zarr 2 or 3) and writing (zarr 3).

    state = weft.checkpointing.orbax.restore("checkpoints/100/default", like=state)

Checkpoints of Orbax are read through the package tensorstore, those of `save` without it; Orbax itself is not needed.
`_METADATA` in the directory lists the leaves with their keys and types. Only the boxes that devices need are read.
"""

from __future__ import annotations

import glob
import os
from typing import Any, Protocol

import numpy as np

from weft.api.devices import is_destination
from weft.base.dtypes import Dtype
from weft.base.errors import ArgumentError, FileFormatError
from weft.base.lazy import load
from weft.base.tree import DictKey
from weft.checkpointing import index as indices, orbax_writing, restoring, tensor_file, zarr
from weft.checkpointing.encoding import decode_array
from weft.checkpointing.index import ArrayEntry, Box, Index
from weft.checkpointing.restoring import Metadata
from weft.checkpointing.saving import Processes
from weft.checkpointing.structure import leaf_name
from weft.random.keys import key_dtype

_METADATA = "_METADATA"
_STRINGS = "_strings.json"
_SEQUENCE = 1  # the type of a key that is an index; all others are keys of dicts
_EMPTY: dict[str, Any] = {"None": None, "Dict": {"dict": []}, "List": {"list": []}, "Tuple": {"list": []}}


def restore(path: str | os.PathLike[str], like: Any = None, shardings: Any = None, *, partial: bool = False) -> Any:
    """Restore a tree from a directory that Orbax wrote; arguments as for `weft.checkpointing.restore`.

    `path` is the directory of a tree: of a step of a CheckpointManager that has one item, the directory of the step
    will do.
    """
    return restoring.restore_from(OrbaxDirectory(path), like, shardings, partial)


def items(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the trees in a checkpoint.

    Args:
        path: the directory of a step.
    """
    directory = os.path.abspath(os.fspath(path))
    return [name for name in sorted(os.listdir(directory)) if os.path.isfile(os.path.join(directory, name, _METADATA))]


def restore_items(path: str, like: Any = None, shardings: Any = None, partial: bool = False) -> dict[str, Any]:
    """Return the trees of a checkpoint by name, or the ones in `like`."""
    if shardings is not None and not is_destination(shardings):
        raise ArgumentError("shardings of a dict of items must be one for all.", received=repr(shardings)[:80])
    names = items(path) if like is None else list(like)
    each = {name: None if like is None else like[name] for name in names}
    return {name: restore(os.path.join(path, name), own, shardings, partial=partial) for name, own in each.items()}


def item_metadata(path: str) -> Metadata:
    """Return the trees of a checkpoint by name, with a `ShapeDtypeStruct` for each array."""
    return Metadata({name: metadata(os.path.join(path, name)).tree for name in items(path)}, None, None, None)


def save(path: str | os.PathLike[str], tree: Any, *, item: str = "default") -> None:
    """Write a tree to a directory in the layout of Orbax, which `orbax.checkpoint` reads.

    Args:
        path: the directory, which must not exist.
        tree: dicts and lists of arrays, numbers and strings.
        item: the name of the tree in the checkpoint.
    """
    directory = os.path.abspath(os.fspath(path))
    if os.path.exists(directory):
        raise FileExistsError(f"The directory {directory!r} already exists.")
    orbax_writing.Items({item: tree}, copy=False).write(directory, Processes.here(None))


def metadata(path: str | os.PathLike[str]) -> Metadata:
    """Return the tree in a directory that Orbax wrote, with a `ShapeDtypeStruct` for each array."""
    return restoring.index_metadata(OrbaxDirectory(path).index)


def _tensorstore() -> Any:
    """Import the package tensorstore; raise ImportError with the command that installs it."""
    try:
        return load("tensorstore")
    except ImportError as error:
        raise ImportError("Reading Orbax checkpoints needs the package tensorstore: pip install tensorstore") from error


class OrbaxDirectory:
    """A checkpoint of Orbax as a `Source`."""

    shown_by = "weft.checkpointing.orbax.metadata(path).tree"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _tree_directory(os.path.abspath(os.fspath(path)))
        self._stores: dict[str, _Store] = {}
        self._known_checksums: dict[str, int] | None = None
        found = self._json(_METADATA)
        leaves = found.get("tree_metadata") if isinstance(found, dict) else None
        if not isinstance(leaves, dict):
            raise self._malformed(f"{_METADATA} has no tree_metadata")
        self._ocdbt = bool(found.get("use_ocdbt", os.path.exists(os.path.join(self.path, "manifest.ocdbt"))))
        self._driver = "zarr3" if found.get("use_zarr3") else "zarr"
        strings = self._json(_STRINGS) if os.path.exists(os.path.join(self.path, _STRINGS)) else {}
        key_dtypes = self._key_dtypes()
        arrays: dict[str, ArrayEntry] = {}
        values: dict[str, Any] = {}
        root = _Node()
        for described in leaves.values():
            keys, kind = self._leaf(described)
            node = root.below(keys)
            name = leaf_name([DictKey(key) for key, _ in keys])
            parameter = ".".join(key for key, _ in keys)
            if kind in _EMPTY:
                node.value = _EMPTY[kind]
                continue
            node.value = name
            if kind == "string":
                if not isinstance(strings, dict) or not isinstance(strings.get(parameter), str):
                    raise self._malformed(f"{_STRINGS} has no string {parameter!r}")
                values[name] = strings[parameter]
                continue
            store = self._stores[name] = self._open(parameter)
            if kind == "scalar":
                if store.shape:
                    raise self._malformed(f"{parameter!r} is a scalar, but its array has the shape {store.shape}")
                values[name] = store.read(()).item()
                continue
            dtype: Dtype = key_dtypes.get(parameter, store.dtype)
            shape = tuple(store.shape[:-1] if parameter in key_dtypes else store.shape)
            arrays[name] = ArrayEntry(shape, dtype, numpy=kind == "np.ndarray")
        self.index = Index(root.structure(), arrays, values)

    def read(self, name: str, box: Box) -> np.ndarray:
        """Read a box of an array."""
        store, dtype = self._stores[name], self.index.arrays[name].dtype
        whole = tuple((0, size) for size in store.shape[len(box) :])  # the words of random keys
        return decode_array(store.read((*box, *whole)), dtype)

    def _open(self, parameter: str) -> _Store:
        """Open the stored array of a leaf."""
        if not self._ocdbt:
            if not parameter or "/" in parameter or "\\" in parameter or parameter in (".", ".."):
                raise self._malformed(f"{parameter!r} cannot be the name of an array")
            directory = os.path.join(self.path, parameter)
            header = zarr.read_header(directory)
            if header is not None:
                return _PlainStore(directory, header, self._checksums(), self.path)
        return _TensorStore(self, parameter)

    def spec(self, parameter: str) -> dict[str, Any]:
        """Return the tensorstore spec of a leaf's array."""
        if self._ocdbt:
            kvstore = {"driver": "ocdbt", "base": f"file://{self.path}/", "path": parameter}
        else:
            kvstore = {"driver": "file", "path": os.path.join(self.path, parameter)}
        return {"driver": self._driver, "kvstore": kvstore}

    def result(self, future: Any, parameter: str) -> Any:
        """Wait for a tensorstore future and return its result; raise `FileFormatError` if it failed."""
        try:
            return future.result()
        except (ValueError, OSError, MemoryError, OverflowError) as error:
            raise self._malformed(f"{parameter!r} cannot be read: {error}") from None

    def _checksums(self) -> dict[str, int]:
        """Read the checksums of chunks that `save` wrote; {} for checkpoints of other programs."""
        if self._known_checksums is None:
            self._known_checksums = {}
            for path in sorted(glob.glob(os.path.join(glob.escape(self.path), f"{zarr.CHECKSUMS}.*.json"))):
                found = self._json(os.path.basename(path))
                if not isinstance(found, dict) or not all(type(value) is int for value in found.values()):
                    raise self._malformed(f"{os.path.basename(path)} must have checksums")
                self._known_checksums |= found
        return self._known_checksums

    def _leaf(self, described: Any) -> tuple[list[tuple[str, bool]], str]:
        """Return the keys of a leaf as `(key, is_index)` pairs, and the type of its value."""
        match described:
            case {"key_metadata": list(keys), "value_metadata": {"value_type": str(kind)}}:
                pass
            case _:
                raise self._malformed(f"{_METADATA} has the invalid leaf {str(described)[:80]}")
        if not all(isinstance(key, dict) and isinstance(key.get("key"), (str, int)) for key in keys):
            raise self._malformed(f"{_METADATA} has the invalid keys {str(keys)[:80]}")
        return [(str(key["key"]), key.get("key_type") == _SEQUENCE) for key in keys], kind

    def _key_dtypes(self) -> dict[str, Dtype]:
        """Return the dtypes of random keys, which are stored as integers, by the names of their leaves."""
        result: dict[str, Dtype] = {}
        for path in sorted(glob.glob(os.path.join(glob.escape(self.path), "array_metadatas", "process_*"))):
            found = self._json(os.path.relpath(path, self.path))
            listed = found.get("array_metadatas", []) if isinstance(found, dict) else []
            if not isinstance(listed, list):
                raise self._malformed("array_metadatas must be a list")
            for each in listed:
                match each:
                    case {"array_metadata": {"param_name": str(name), "ext_metadata": {"random_key_impl": str(impl)}}}:
                        result[name] = key_dtype(impl)
        return result

    def _json(self, name: str) -> Any:
        try:
            return tensor_file.strict_json(tensor_file.content(os.path.join(self.path, name)))
        except FileFormatError:
            raise
        except ValueError as error:
            raise self._malformed(f"{name} cannot be parsed: it {error}") from None

    def _malformed(self, reason: str) -> FileFormatError:
        return indices.malformed(self.path, f"{reason} (read as a checkpoint of Orbax)")


class _Store(Protocol):
    """The interface of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, box: Box) -> np.ndarray:
        """Read a box of the array."""


class _PlainStore:
    """An array in plain zarr files."""

    def __init__(self, directory: str, header: zarr.Header, checksums: dict[str, int], root: str) -> None:
        self.shape, self.dtype = header.shape, header.dtype
        self._directory, self._header, self._checksums, self._root = directory, header, checksums, root

    def read(self, box: Box) -> np.ndarray:
        return zarr.read(self._directory, self._header, box, self._checksums, self._root)


class _TensorStore:
    """An array read by tensorstore."""

    def __init__(self, source: OrbaxDirectory, parameter: str) -> None:
        self._source, self._parameter = source, parameter
        self._store = source.result(_tensorstore().open(source.spec(parameter), open=True, read=True), parameter)
        self.shape, self.dtype = tuple(self._store.shape), np.dtype(self._store.dtype.numpy_dtype)

    def read(self, box: Box) -> np.ndarray:
        slices = tuple(slice(low, high) for low, high in box)
        found: np.ndarray = self._source.result(self._store[slices].read(), self._parameter)
        return found


class _Node:
    """A node of the tree under construction."""

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.is_list = False
        self.value: Any = None

    def below(self, keys: list[tuple[str, bool]]) -> _Node:
        node = self
        for key, is_index in keys:
            node.is_list = is_index
            node = node.children.setdefault(key, _Node())
        return node

    def structure(self) -> Any:
        if not self.children:
            return self.value
        if self.is_list and all(key.isdecimal() for key in self.children):
            return {"list": [self.children[key].structure() for key in sorted(self.children, key=int)]}
        return {"dict": [[key, child.structure()] for key, child in self.children.items()]}


def _tree_directory(path: str) -> str:
    """Return the directory of a tree: `path`, or its only subdirectory that contains a tree."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"There is no directory {path!r}.")
    if os.path.isfile(os.path.join(path, _METADATA)):
        return path
    inside = [name for name in sorted(os.listdir(path)) if os.path.isfile(os.path.join(path, name, _METADATA))]
    if len(inside) == 1:
        return os.path.join(path, inside[0])
    trees = ", ".join(map(repr, inside))
    there = f"there are trees in {trees}" if inside else f"no file {_METADATA} in it or one level below"
    raise FileNotFoundError(f"There is no checkpoint of Orbax in {path!r}: {there}.")
