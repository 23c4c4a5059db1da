"""Saving a tree: a snapshot in host memory, a plan of files, and a write that a crash at any moment cannot damage.

A checkpoint is a directory with safetensors files and `index.json`. The files of a save have new names. When all of
them are on disk, the index is replaced atomically, and files that it does not name are removed last. So a reader of the
index finds all of the old checkpoint or all of the new one.

Several processes write into one directory, each the boxes that it holds (`Processes` is the interface to them). Each
process makes the plan for all of them, since it depends on shapes and shardings only; the first one writes the index
after all processes have written their files.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import described
from weft.base.dtypes import Dtype
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    DonatedArrayError,
    ProcessFailureError,
    ProgramMismatchError,
)
from weft.base.promotion import DTYPES
from weft.checkpointing import index as indices, storage, structure as structures, tensor_file
from weft.checkpointing.encoding import encode_array, storage_format
from weft.checkpointing.index import ArrayEntry, Box, Index, Piece
from weft.checkpointing.processes import Processes
from weft.runtime.held import HeldArray
from weft.runtime.sharded import ShardedArray
from weft.sharding.shardings import Index as Slices, NamedSharding
from weft.trace.tracer import Tracer

MAX_FILE_BYTES = 4_000_000_000
_PREFIX, _SUFFIX = "arrays-", tensor_file.SUFFIX
_CHECKSUMS = ".crc32"  # suffix of checksum files, by which other processes hand checksums to the first one


# ------------------------------------------------------------------------------------------------------- the snapshot


@dataclass(frozen=True)
class Part:
    """A box of an array that is stored once, the process that writes it, and its encoded elements in that process."""

    box: Box
    process: int
    stored: np.ndarray | None


@dataclass(frozen=True)
class Snapshot:
    """A tree in host memory: an index without pieces, and the parts of each array."""

    index: Index
    parts: dict[str, list[Part]]


def snapshot(
    tree: Any,
    *,
    copy: bool,
    step: int | None = None,
    metadata: Any = None,
    metrics: Any = None,
    near: frozenset[int] | None = None,
) -> Snapshot:
    """Take a snapshot of a tree. With `copy`, later changes to its NumPy arrays do not affect it.

    Arrays of Weft are immutable, so it refers to their memory. They may be donated and deleted: a donated buffer with
    other references is not reused.
    """
    if step is not None and type(step) is not int:
        raise ArgumentTypeError("The step of a checkpoint must be an int.", received=described(step), fix="int(step)")
    indices.check_json(metadata, "The metadata")
    indices.check_json(metrics, "The metrics")
    leaves, _ = structures.leaves_by_name(tree)
    refused = [f"{name}: {reason}" for name, leaf in leaves.items() if (reason := _refusal(leaf))]
    if refused:
        raise ArgumentTypeError(
            "Leaves of a checkpoint must be arrays, numbers, strings or None.",
            received="\n".join(refused),
            fix="register the class as a tree node (weft.tree_util.register_dataclass), or leave it out of the tree",
        )
    values = {name: leaf for name, leaf in leaves.items() if type(leaf) in indices.VALUES}
    arrays: dict[str, ArrayEntry] = {}
    parts: dict[str, list[Part]] = {}
    for name, leaf in leaves.items():
        if name in values:
            continue
        dtype = _dtype(leaf)
        weak = bool(getattr(leaf, "weak_type", False))
        arrays[name] = ArrayEntry(tuple(leaf.shape), dtype, weak, isinstance(leaf, (np.ndarray, np.generic)))
        try:
            parts[name] = [_part(box, process, data, dtype, copy) for box, process, data in _shards(leaf, near)]
        except DonatedArrayError as error:
            raise DonatedArrayError(f"{name}: {error.what}", received=error.received, fix=error.fix) from None
    index = Index(structures.describe(tree), arrays, values, step, metadata, metrics)
    return Snapshot(index, parts)


def _refusal(leaf: Any) -> str | None:
    """Return the reason why a leaf cannot be saved, or None."""
    if isinstance(leaf, Tracer):
        return f"{leaf.aval.short()} is traced; save outside of jit, grad and vmap"
    if isinstance(leaf, (np.ndarray, np.generic)):
        return None if _dtype(leaf) in (*DTYPES.values(), dtypes.float0) else f"a NumPy array of dtype {leaf.dtype}"
    if isinstance(leaf, ShardedArray) and isinstance(leaf.sharding, NamedSharding) and leaf.sharding.spec.unreduced:
        return f"{leaf.aval.short()} is unreduced; weft.sharding.reshard(x, spec) sums it"
    return None if isinstance(leaf, HeldArray) or type(leaf) in indices.VALUES else described(leaf)


def _dtype(leaf: Any) -> Dtype:
    return leaf.dtype.newbyteorder("=") if isinstance(leaf, (np.ndarray, np.generic)) else leaf.dtype


def _shards(leaf: Any, near: frozenset[int] | None) -> Iterator[tuple[Box, int, Any]]:
    """Yield the distinct boxes of an array, the process that writes each, and its data if this process has them.

    Of equal shards the first in the order of the mesh is written, and the first of the processes `near`, if they are
    given and have one. An array that is not sharded exists in every process, and the first process writes it.
    """
    if not isinstance(leaf, ShardedArray):
        yield tuple((0, size) for size in leaf.shape), 0 if near is None else min(near), leaf
        return
    found: dict[Box, tuple[int, Any]] = {}
    for shard in leaf.global_shards:
        box, process = box_from_slices(shard.index, leaf.shape), shard.device.process_index
        empty = any(low == high and size for (low, high), size in zip(box, leaf.shape, strict=True))
        is_nearer = near is not None and process in near and box in found and found[box][0] not in near
        if not empty and (box not in found or is_nearer):
            found[box] = process, shard.data
    for box, (process, data) in found.items():
        yield box, process, data


def box_from_slices(index: Slices, shape: tuple[int, ...]) -> Box:
    """Convert slices of an array to a box."""
    bounds = [part.indices(size) for part, size in zip(index, shape, strict=True)]
    return tuple((low, high) for low, high, _ in bounds)


def _part(box: Box, process: int, data: Any, dtype: Dtype, copy: bool) -> Part:
    if data is None:
        return Part(box, process, None)
    is_immutable = isinstance(data, HeldArray)
    value = np.asarray(data._value if is_immutable else data)
    stored = encode_array(value.astype(dtypes.storage(dtype), copy=False), dtype)
    return Part(box, process, np.array(stored) if copy and not is_immutable else stored)


# ------------------------------------------------------------------------------------------------------------ the plan


Checksums = dict[str, dict[str, tuple[int, ...]]]
"""Checksums of blocks, by file and tensor."""


@dataclass(frozen=True)
class File:
    """A file to write: its name, the process that writes it, and its tensors as `(tensor, leaf, index of the part)`."""

    name: str
    process: int
    tensors: list[tuple[str, str, int]]


def plan(snapshot: Snapshot, token: str, max_file_bytes: int) -> list[File]:
    """Distribute the parts of a snapshot over files of at most `max_file_bytes`, unless one part alone is larger.

    Each file has parts of one process. The widest elements come first, so that all arrays are aligned.
    """
    entries = snapshot.index.arrays
    widest = sorted(entries, key=lambda name: (-storage_format(entries[name].dtype).dtype.itemsize, name))
    files: dict[int, list[File]] = {}
    sizes: dict[int, int] = {}
    for name in widest:
        stored, parts = storage_format(entries[name].dtype), snapshot.parts[name]
        for i, part in enumerate(parts):
            size = stored.dtype.itemsize
            for extent in (*(high - low for low, high in part.box), *stored.extra):
                size *= extent
            own = files.setdefault(part.process, [])
            if not own or (own[-1].tensors and sizes[part.process] + size > max_file_bytes):
                own.append(File(f"{_PREFIX}{token}-{part.process}-{len(own)}{_SUFFIX}", part.process, []))
                sizes[part.process] = 0
            suffix = "" if len(parts) == 1 else f"[{','.join(f'{low}:{high}' for low, high in part.box)}]"
            own[-1].tensors.append((name + suffix, name, i))
            sizes[part.process] += size
    return [file for own in files.values() for file in own]


def _with_pieces(snapshot: Snapshot, files: list[File], checksums: Checksums) -> Index:
    """Return the index of a snapshot with the pieces that were written to files."""
    pieces: dict[str, list[Piece]] = {name: [] for name in snapshot.parts}
    for file in files:
        for tensor, name, i in file.tensors:
            found = checksums.get(file.name, {}).get(tensor)  # None for files on other hosts
            pieces[name].append(Piece(snapshot.parts[name][i].box, file.name, tensor, found))
    arrays = {name: replace(entry, pieces=tuple(pieces[name])) for name, entry in snapshot.index.arrays.items()}
    return replace(snapshot.index, arrays=arrays)


# -------------------------------------------------------------------------------------------------------------- writing


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    step: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    max_file_bytes: int = MAX_FILE_BYTES,
    barrier: Callable[[str], None] | None = None,
) -> None:
    """Write a tree to the directory `path`, or to object storage at a URL such as `s3://bucket/run`, through fsspec.

    If the process is killed, the previous checkpoint can still be read. Only one save may write to a path at a time.

    Args:
        path: the directory or URL.
        tree: the tree. Leaves are arrays (also sharded ones, NumPy arrays and random keys), Python numbers and strings.
        step: the step, an int.
        metadata: value of JSON, which `metadata(path)` returns.
        overwrite: replace an existing checkpoint, which is an error otherwise.
        max_file_bytes: largest number of bytes in a file, unless one shard alone is larger.
        barrier: if several processes save together, a function of a name that returns when all processes have called
            it. After `weft.distributed.initialize` it is not needed.
    """
    write(
        os.fspath(path),
        snapshot(tree, copy=False, step=step, metadata=metadata),
        overwrite=overwrite,
        max_file_bytes=max_file_bytes,
        processes=Processes.here(barrier),
    )


def write(
    directory: str,
    snapshot: Snapshot,
    *,
    overwrite: bool,
    max_file_bytes: int,
    processes: Processes,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Write a snapshot to a directory, after `prepare`."""
    if type(max_file_bytes) is not int or max_file_bytes < 1:
        raise ArgumentError("max_file_bytes must be a positive int.", received=f"max_file_bytes={max_file_bytes!r}")
    directory = storage.absolute(directory)
    if not overwrite and indices.exists(directory):
        raise FileExistsError(f"There is a checkpoint in {directory!r} already; pass overwrite=True to replace it.")
    files = plan(snapshot, _token(directory, processes), max_file_bytes)
    written: list[str] = []
    try:
        with processes.stage("files of a checkpoint are written"):
            if prepare is not None:
                prepare()
            checksums = _write_files(directory, snapshot, files, processes, written)
    except (ProcessFailureError, ProgramMismatchError):
        # The first process may have passed the stage, and write an index that names these files. A later save removes
        # them otherwise.
        raise
    except BaseException:
        _remove_written(directory, written, processes)
        raise
    with processes.stage("the index of a checkpoint is written"):
        if processes.is_first:
            tensor_file.sync_directory(directory)
            others = [f.name for f in files if f.process != processes.index and processes.share(f.process)]
            checksums |= {name: _read_checksums(os.path.join(directory, name + _CHECKSUMS)) for name in others}
            with tensor_file.replacing(os.path.join(directory, indices.NAME)) as opened:
                opened.write(indices.to_json(_with_pieces(snapshot, files, checksums)))
            tensor_file.sync_directory(directory)
            remove_stale(directory, {file.name for file in files})


def _write_files(
    directory: str, snapshot: Snapshot, files: list[File], processes: Processes, written: list[str]
) -> Checksums:
    """Write the files of this process, and append their paths to `written`; return their checksums."""
    tensor_file.make_directory(directory)
    checksums: Checksums = {}
    for file in files:
        if file.process == processes.index:
            path = os.path.join(directory, file.name)
            with tensor_file.replacing(path) as opened:
                checksums[file.name] = _write_tensors(opened, _encode_tensors(snapshot, file))
            written.append(path)
            if not processes.is_first:  # which enters them in the index
                written.append(path + _CHECKSUMS)
                _write_checksums(path + _CHECKSUMS, checksums[file.name])
    return checksums


def _remove_written(directory: str, written: Sequence[str], processes: Processes) -> None:
    """Remove the files of a save that has failed, and the directory if that was all.

    Other processes may still write to the directory, unless they have failed together, in a stage.
    """
    for path in written:
        with contextlib.suppress(OSError):
            storage.remove_file(path)
    if processes.count == 1 or (processes.is_first and processes.vote is not None):
        with contextlib.suppress(OSError):  # the directory has other files
            storage.remove_directory(directory)


def _write_tensors(opened: IO[bytes], arrays: list[tuple[str, np.ndarray]]) -> dict[str, tuple[int, ...]]:
    """Write a file, and compute checksums while the bytes are written to disk."""
    chunks = tensor_file.chunks(arrays)
    opened.write(next(chunks))
    found: dict[str, tuple[int, ...]] = {}
    for tensor, array in arrays:
        if not array.size:
            found[tensor] = ()
            continue
        chunk = next(chunks)
        checksums = tensor_file.begin_checksums(chunk)
        opened.write(chunk)
        found[tensor] = tuple(checksums())
    return found


def _write_checksums(path: str, checksums: Mapping[str, tuple[int, ...]]) -> None:
    text = {tensor: indices.format_checksums(found) for tensor, found in checksums.items()}
    with tensor_file.replacing(path) as opened:
        opened.write(json.dumps(text).encode())


def _read_checksums(path: str) -> dict[str, tuple[int, ...]]:
    found = tensor_file.strict_json(tensor_file.content(path))
    return {tensor: indices.parse_checksums(text) for tensor, text in found.items()}


def _encode_tensors(snapshot: Snapshot, file: File) -> list[tuple[str, np.ndarray]]:
    arrays = []
    for tensor, name, i in file.tensors:
        stored = snapshot.parts[name][i].stored
        assert stored is not None  # the plan assigns a part to the process that holds it
        arrays.append((tensor, stored))
    return arrays


def _token(directory: str, processes: Processes) -> str:
    """Return a token for the names of this save's files, which the present checkpoint does not use.

    A single process draws it at random; several processes count up from the index, which all of them read.
    """
    if processes.count == 1:
        return secrets.token_hex(4)
    if not indices.exists(directory):
        return "0"
    pieces = [piece for entry in indices.read(directory).arrays.values() for piece in entry.pieces]
    tokens = {piece.file.removeprefix(_PREFIX).partition("-")[0] for piece in pieces}
    return str(1 + max((int(token) for token in tokens if token.isdecimal()), default=0))


def remove_stale(directory: str, names: set[str]) -> None:
    """Remove the files of all saves except for the one with these file names."""
    for entry in storage.list_names(directory):
        ours = entry.startswith(_PREFIX) and entry.endswith(_SUFFIX)
        partial = entry.startswith((_PREFIX, indices.NAME)) and entry.endswith((tensor_file.PARTIAL, _CHECKSUMS))
        if (ours and entry not in names) or partial:
            storage.remove_file(os.path.join(directory, entry))


def delete(directory: str) -> None:
    """Delete the checkpoint in a directory. The index goes first, so that a crash leaves no incomplete checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        storage.remove_file(os.path.join(directory, indices.NAME))
        tensor_file.sync_directory(directory)
    remove_stale(directory, set())
    with contextlib.suppress(OSError):  # the directory has other files
        storage.remove_directory(directory)
