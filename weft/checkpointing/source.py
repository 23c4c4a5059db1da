"""Sources of restored arrays: directories of memory-mapped files, from which only the requested boxes are read."""

from __future__ import annotations

import math
import os
from typing import Protocol

import numpy as np

from weft.base import dtypes
from weft.checkpointing import index as indices, tensor_file
from weft.checkpointing.encoding import decode_array, storage_format
from weft.checkpointing.index import Box, Index, Piece


class Source(Protocol):
    """The interface of a checkpoint to restore from: its index, and boxes of its arrays."""

    path: str
    index: Index
    shown_by: str  # an expression that shows the tree, for errors

    def read(self, name: str, box: Box) -> np.ndarray:
        """Read a box of an array, in the NumPy dtype that holds its elements. The result may be a read-only view."""


class Directory:
    """A checkpoint written by `save`. `bytes_read` counts the bytes of arrays that were read."""

    shown_by = "weft.checkpointing.metadata(path).tree"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.index = indices.read(self.path)
        self.bytes_read = 0
        self._verified: dict[tuple[str, str], set[int]] = {}
        self._files: dict[str, tuple[tensor_file.Bytes, tensor_file.Header]] = {}

    def read(self, name: str, box: Box) -> np.ndarray:
        entry = self.index.arrays[name]
        stored = storage_format(entry.dtype)
        shape = (*(high - low for low, high in box), *stored.extra)
        found = [(common, piece) for piece in entry.pieces if (common := _overlap(box, piece.box)) is not None]
        if len(found) == 1:
            result = self._cut(name, found[0][1], box)
        else:  # several pieces, or none for an empty box
            result = np.empty(shape, stored.dtype)
            for common, piece in found:
                result[_slices(common, box)] = self._cut(name, piece, common)
        self.bytes_read += result.nbytes
        decoded = decode_array(result, entry.dtype)
        return decoded if decoded.dtype != dtypes.bool_ else _booleans(decoded, name, self.path)

    def _cut(self, name: str, piece: Piece, box: Box) -> np.ndarray:
        tensor = self._tensor(name, piece)
        if piece.checksums is not None and tensor.nbytes:
            self._verify(name, piece, box, tensor)
        return np.asarray(tensor[_slices(box, piece.box)])

    def _verify(self, name: str, piece: Piece, box: Box, tensor: np.ndarray) -> None:
        """Compare the checksums of the blocks that a box touches with those of the index, each block once."""
        checksums = piece.checksums or ()
        path = os.path.join(self.path, piece.file)
        if len(checksums) != -(-tensor.nbytes // tensor_file.BLOCK):
            raise indices.malformed(
                path,
                f"{len(checksums)} checksums do not cover the bytes of {name!r}",
            )
        # Elements are in row-major order, so the first and the last one bound the bytes.
        first = [low - start for (low, _), (start, _) in zip(box, piece.box, strict=True)]
        last = [high - 1 - start for (_, high), (start, _) in zip(box, piece.box, strict=True)]
        strides = tensor.strides[: len(first)]
        begin = sum(at * stride for at, stride in zip(first, strides, strict=True))
        width = tensor.itemsize * math.prod(tensor.shape[len(first) :])  # some dtypes store an element as several
        end = sum(at * stride for at, stride in zip(last, strides, strict=True)) + width
        verified = self._verified.setdefault((piece.file, piece.tensor), set())
        data = tensor.reshape(-1).view(np.uint8).data
        blocks = range(begin // tensor_file.BLOCK, (end - 1) // tensor_file.BLOCK + 1)
        for run in _runs([block for block in blocks if block not in verified]):
            found = tensor_file.begin_checksums(data[run.start * tensor_file.BLOCK : run.stop * tensor_file.BLOCK])()
            if found != list(checksums[run.start : run.stop]):
                what = f"the bytes of {name!r} differ from the saved ones: a checksum does not match"
                raise indices.malformed(path, what)
            verified.update(run)

    def _tensor(self, name: str, piece: Piece) -> np.ndarray:
        """Return the piece of an array that a file holds, as a view of the file."""
        path = os.path.join(self.path, piece.file)
        if piece.file not in self._files:
            try:
                data = tensor_file.map_file(path)
            except FileNotFoundError:
                raise indices.malformed(path, f"the file is missing, which holds {name!r}") from None
            self._files[piece.file] = data, tensor_file.read_header(data, path)
        data, header = self._files[piece.file]
        entry = header.entries.get(piece.tensor)
        stored = storage_format(self.index.arrays[name].dtype)
        shape = (*(high - low for low, high in piece.box), *stored.extra)
        if entry is None or entry.shape != shape or entry.dtype != stored.dtype:
            there = "nothing" if entry is None else f"{entry.dtype} of shape {entry.shape}"
            expected = f"{stored.dtype} of shape {shape} (a piece of {name!r})"
            raise indices.malformed(path, f"tensor {piece.tensor!r} must be {expected}, got {there}")
        return tensor_file.read_array(data, entry, path)


def _runs(blocks: list[int]) -> list[range]:
    """Group ascending numbers into ranges of consecutive ones."""
    found: list[range] = []
    for block in blocks:
        if found and found[-1].stop == block:
            found[-1] = range(found[-1].start, block + 1)
        else:
            found.append(range(block, block + 1))
    return found


def _overlap(box: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, or None if it is empty."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
    return common if all(low < high for low, high in common) else None


def _slices(box: Box, inside: Box) -> tuple[slice, ...]:
    """Return the slices that select a box within a larger box."""
    return tuple(slice(low - start, high - start) for (low, high), (start, _) in zip(box, inside, strict=True))


def _booleans(value: np.ndarray, name: str, path: str) -> np.ndarray:
    """Return an array of booleans; raise unless each byte is 0 or 1, which compiled code relies on."""
    if value.size and value.view(np.uint8).max() > 1:
        raise indices.malformed(path, f"{name!r} has bytes that are neither true nor false")
    return value
