"""Events: scalars, histograms, images and graphs, and the files that they are written to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.keras.callbacks.tensorboard import records

BUCKETS = 30
# What TensorFlow calls the version of its graphs; TensorBoard reads any.
GRAPH_VERSION = 22


def scalar(tag: str, value: float) -> bytes:
    """Encode a summary value with one float."""
    return records.content(1, tag) + records.single(2, value)


def histogram(tag: str, values: np.ndarray) -> bytes:
    """Encode a summary value with a histogram of 30 intervals. Values that are not finite are skipped."""
    flat = np.asarray(values, np.float64).ravel()
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        flat = np.zeros(1)
    counts, edges = np.histogram(flat, bins=BUCKETS)
    parts = (
        records.double(1, flat.min()),
        records.double(2, flat.max()),
        records.double(3, flat.size),
        records.double(4, flat.sum()),
        records.double(5, (flat * flat).sum()),
        records.doubles(6, edges[1:]),
        records.doubles(7, counts),
    )
    return records.content(1, tag) + records.content(5, b"".join(parts))


def image(tag: str, pixels: np.ndarray) -> bytes:
    """Encode a summary value with an image of floats, `(rows, columns, channels)`, scaled to its own range."""
    pixels = np.nan_to_num(np.asarray(pixels, np.float64))
    low, high = pixels.min(), pixels.max()
    scaled = np.round((pixels - low) / (high - low or 1.0) * 255).astype(np.uint8)
    height, width, channels = scaled.shape
    sizes = records.integer(1, height) + records.integer(2, width) + records.integer(3, channels)
    return records.content(1, tag) + records.content(4, sizes + records.content(4, records.png(scaled)))


class GraphNode(NamedTuple):
    """A node of a graph: its name (parts separated by `/`), its operation, and the names of its inputs."""

    name: str
    operation: str
    inputs: Sequence[str]
    shape: Sequence[int | None] | None = None


def graph(nodes: Sequence[GraphNode]) -> bytes:
    """Encode a graph definition."""
    out = bytearray()
    for node in nodes:
        message = records.content(1, node.name) + records.content(2, node.operation)
        message += b"".join(records.content(3, name) for name in node.inputs)
        if node.shape is not None:
            sizes = b"".join(records.content(2, records.integer(1, -1 if n is None else n)) for n in node.shape)
            shapes = records.content(1, records.content(7, sizes))
            message += records.content(5, records.content(1, "_output_shapes") + records.content(2, shapes))
        out += records.content(1, message)
    return bytes(out) + records.content(4, records.integer(1, GRAPH_VERSION))


class EventFile:
    """A file of events in a directory; it is there when something is written.

    Args:
        directory: where to.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._file: Any = None

    def write(self, step: int, *values: bytes, graph: bytes | None = None) -> None:
        """Write one event with values of a summary, or with a graph."""
        event = records.double(1, time.time()) + records.integer(2, step)
        if graph is not None:
            event += records.content(4, graph)
        if values:
            event += records.content(5, b"".join(records.content(1, value) for value in values))
        self._open().write(records.record(event))

    def _open(self) -> Any:
        if self._file is None:
            os.makedirs(self.directory, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
            self._file = open(os.path.join(self.directory, name), "ab")  # noqa: SIM115 (closed by `close`)
            first = records.double(1, time.time()) + records.content(3, "brain.Event:2")
            self._file.write(records.record(first))
        return self._file

    def flush(self) -> None:
        """Flush written records to the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
