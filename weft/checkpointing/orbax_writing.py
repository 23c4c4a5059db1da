"""Writing checkpoints in the layout of Orbax: a directory of items, each a tree of arrays, numbers and strings.

Arrays are zarr arrays in plain files, which Orbax reads because the metadata say `use_zarr3`. A checkpoint is written
to `<path>.orbax-checkpoint-tmp` and renamed when it is complete.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base import dtypes, tree as trees
from weft.base.errors import ArgumentTypeError
from weft.checkpointing import index as indices, structure as structures, tensor_file, zarr
from weft.checkpointing.encoding import decode_array
from weft.checkpointing.processes import Processes
from weft.checkpointing.saving import Snapshot, snapshot

CHECKPOINT = "_CHECKPOINT_METADATA"
TREE = "_METADATA"
STRINGS = "_strings.json"
COMMITTED = "commit_success.txt"
UNFINISHED = ".orbax-checkpoint-tmp"
_HANDLER = "orbax.checkpoint.experimental.v1._src.handlers.pytree_handler.PyTreeHandler"
_DICT, _LIST = 2, 1  # the types of keys
_PLAIN_NAME = re.compile(r"[^/\\\0]+")
_SCALARS = (bool, int, float)


class Items:
    """Trees in host memory, ready to be written.

    Args:
        items: trees of dicts and lists by name; leaves are arrays, numbers and strings.
        copy: copy the arrays, so that later changes to their memory do not affect the checkpoint.
    """

    def __init__(self, items: Mapping[str, Any], copy: bool) -> None:
        self._items: dict[str, tuple[Snapshot, dict[str, list[tuple[str, int]]]]] = {}
        for item, tree in items.items():
            pairs, _ = trees.flatten_with_path(tree)
            keys = {structures.leaf_name(path): _keys(path) for path, _ in pairs}
            self._items[item] = snapshot(tree, copy=copy), keys

    def write(self, path: str, processes: Processes, prepare: Callable[[], None] | None = None) -> None:
        """Write a checkpoint to a new directory, after `prepare`. All processes call it."""
        temporary = path + UNFINISHED
        started = time.time_ns()
        with processes.stage("the directory of a checkpoint exists"):
            if prepare is not None:
                prepare()
            if processes.index == 0:
                shutil.rmtree(temporary, ignore_errors=True)
                tensor_file.make_directory(temporary)
        with processes.stage("files of a checkpoint are written"):
            for item, (taken, keys) in self._items.items():
                _write_tree(os.path.join(temporary, item), taken, keys, processes)
        with processes.stage("the checkpoint is renamed"):
            if processes.index == 0:
                self._commit(path, temporary, started)

    def _commit(self, path: str, temporary: str, started: int) -> None:
        """Write the metadata of a checkpoint, and rename its directory."""
        about = {
            "item_handlers": {item: _HANDLER for item in self._items},
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": started,
            "commit_timestamp_nsecs": time.time_ns(),
            "custom_metadata": {},
        }
        _write_json(os.path.join(temporary, CHECKPOINT), about)
        for folder in (*(os.path.join(temporary, item) for item in self._items), temporary):
            _write(os.path.join(folder, COMMITTED), f"Checkpoint commit was successful to {path}".encode())
            tensor_file.sync_directory(folder)
        os.rename(temporary, path)
        tensor_file.sync_directory(os.path.dirname(path))


def _keys(path: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Return the keys of a leaf with their Orbax types."""
    kinds = [_LIST if isinstance(key, trees.SequenceKey) else _DICT for key in path]
    found = [(trees.keystr((key,), simple=True), kind) for key, kind in zip(path, kinds, strict=True)]
    for key, _ in found:
        if not _PLAIN_NAME.fullmatch(key) or key in (".", ".."):
            raise ArgumentTypeError("A key in Orbax's layout must be the name of a file.", received=repr(key))
    if not found:
        raise ArgumentTypeError("A tree in Orbax's layout must be a dict or list.", received="a leaf")
    return found


def _write_tree(
    directory: str, taken: Snapshot, keys: Mapping[str, list[tuple[str, int]]], processes: Processes
) -> None:
    """Write one item."""
    tensor_file.make_directory(directory)
    checksums: dict[str, int] = {}
    described: dict[str, Any] = {}
    strings: dict[str, str] = {}
    arrays: list[dict[str, Any]] = []
    for name, path in keys.items():
        parameter = ".".join(key for key, _ in path)
        value = taken.index.values.get(name)
        entry = taken.index.arrays.get(name)
        if isinstance(value, str):
            strings[parameter] = value
            kind: dict[str, Any] = {"value_type": "string", "skip_deserialize": False}
        elif entry is None and type(value) in _SCALARS:
            scalar = np.asarray(value)
            header = zarr.Header((), (), scalar.dtype)
            checksums |= _write_chunks(directory, parameter, header, [((), scalar)], processes)
            kind = {"value_type": "scalar", "skip_deserialize": False}
        elif entry is None or not isinstance(entry.dtype, np.dtype) or dtypes.storage(entry.dtype) != entry.dtype:
            shown = type(value).__name__ if entry is None else entry.short()
            raise ArgumentTypeError("Leaves in Orbax's layout must be arrays, numbers and strings.", received=shown)
        else:
            parts = taken.parts[name]
            # All shards have one shape, except for smaller ones at the end: they are the chunks of a regular grid.
            extents = [[part.box[i][1] - part.box[i][0] for part in parts] for i in range(len(entry.shape))]
            chunk = tuple(max(1, *sizes) for sizes in extents)
            own = [
                (tuple(low // size for (low, _), size in zip(part.box, chunk, strict=True)), part.stored)
                for part in parts
                if part.process == processes.index and part.stored is not None and 0 not in entry.shape
            ]
            values = [(position, decode_array(np.asarray(stored), entry.dtype)) for position, stored in own]
            header = zarr.Header(entry.shape, chunk, entry.dtype)
            checksums |= _write_chunks(directory, parameter, header, values, processes)
            # The value type "jax.Array" would need names of JAX devices, and restore only where these exist.
            kind = {"value_type": "np.ndarray", "skip_deserialize": False}
            kind["write_shape"] = list(chunk) if entry.shape else []
            metadata = {"param_name": parameter, "write_shape": list(chunk), "chunk_shape": list(chunk)}
            arrays.append({"array_metadata": {**metadata, "ext_metadata": None}})
        key_metadata = [{"key": key, "key_type": kind_of_key} for key, kind_of_key in path]
        described[str(tuple(key for key, _ in path))] = {"key_metadata": key_metadata, "value_metadata": kind}
    _write_json(os.path.join(directory, f"{zarr.CHECKSUMS}.{processes.index}.json"), checksums)
    if processes.index == 0:
        options = {"use_ocdbt": False, "use_zarr3": True, "store_array_data_equal_to_fill_value": True}
        _write_json(os.path.join(directory, TREE), {"tree_metadata": described, **options, "custom_metadata": None})
        if strings:
            _write_json(os.path.join(directory, STRINGS), strings)
        if arrays:
            tensor_file.make_directory(os.path.join(directory, "array_metadatas"))
            _write_json(os.path.join(directory, "array_metadatas", "process_0"), {"array_metadatas": arrays})


def _write_chunks(
    directory: str,
    parameter: str,
    header: zarr.Header,
    values: list[tuple[tuple[int, ...], np.ndarray]],
    processes: Processes,
) -> dict[str, int]:
    """Write the chunks of an array that this process holds; return their checksums by file name."""
    checksums: dict[str, int] = {}
    tensor_file.make_directory(os.path.join(directory, parameter))
    if processes.index == 0:
        described = zarr.describe(header.shape, header.chunk, dtypes.name(header.dtype))
        _write_json(os.path.join(directory, parameter, zarr.NAME), described)
    for position, value in values:
        name = f"{parameter}/{zarr.chunk_file(position)}"
        os.makedirs(os.path.dirname(os.path.join(directory, name)), exist_ok=True)
        data = zarr.chunk_bytes(value, header.chunk)
        checksums[name] = zlib.crc32(data)
        _write(os.path.join(directory, name), data)
    return checksums


def _write_json(path: str, value: Any) -> None:
    _write(path, json.dumps(value).encode())


def _write(path: str, data: bytes | memoryview) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def exists(path: str) -> bool:
    """Return whether a directory contains a checkpoint of Orbax or of `weft.checkpointing.save`."""
    return any(os.path.isfile(os.path.join(path, name)) for name in (CHECKPOINT, TREE, indices.NAME))


def delete_partial(directory: str) -> None:
    """Delete the remains of unfinished saves in a directory of checkpoints."""
    for name in os.listdir(directory):
        if name.endswith(UNFINISHED):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def delete(path: str) -> None:
    """Delete a checkpoint. Its metadata go first, so that a crash leaves no incomplete checkpoint."""
    for name in (CHECKPOINT, TREE, indices.NAME):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            continue
    shutil.rmtree(path, ignore_errors=True)
