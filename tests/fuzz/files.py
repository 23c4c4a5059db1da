"""Random changes of files, which must be read or refused by one of Weft's errors.

    python -m tests.fuzz.files                     1000 changes of each kind of file
    python -m tests.fuzz.files keras h5 --count 10000 --first 0
    python -m tests.fuzz.files keras --seed 17     one change; the error is shown

Changes are read in child processes whose memory and time are limited: what needs more of either is a failure too.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from tests.fuzz import mutations
from weft import checkpointing, keras
from weft.compiler import cache
from weft.errors import WeftError
from weft.modules import safetensors

SECONDS = 20
"""That reading one file may take."""
MEMORY = 3 << 30
"""Bytes of address space that reading may take beside what the process has."""


class Kind(NamedTuple):
    """Kind of file: how one is written, changed and read."""

    name: str
    write: Callable[[pathlib.Path], None]
    changes: tuple[Callable[[bytes, random.Random], bytes], ...]  # none: it is a folder
    read: Callable[[pathlib.Path], Any]


def _model() -> Any:
    x = keras.Input((4,))
    y = keras.layers.BatchNormalization()(keras.layers.Dense(3, activation="relu", kernel_regularizer="l2")(x))
    branch = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])(y)
    model = keras.Model(x, keras.ops.concatenate([branch, keras.ops.mean(y, axis=-1, keepdims=True)], axis=-1))
    model.compile("adam", keras.losses.MeanSquaredError(), metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def _export(path: pathlib.Path) -> None:
    exported = weft.export.export(weft.jit(lambda x: wnp.sin(x @ wnp.ones((3, 2))).sum(0)))(wnp.ones((4, 3)))
    path.write_bytes(bytes(exported.serialize()))


def _tree() -> dict[str, Any]:
    return {"a": wnp.arange(12.0).reshape(3, 4), "b": [np.arange(3) * 1j, np.int8(3)], "n": 5, "s": "text"}


def _safetensors(path: pathlib.Path) -> None:
    safetensors.save_file({"a": wnp.ones((3, 2)), "b": {"c": wnp.arange(3)}}, path)


def _cache(path: pathlib.Path) -> None:
    """Write a file of the compilation cache."""
    with _cache_in(path.parent):
        cache.write(path.name, cache.PROGRAM_MAGIC, b'{"steps": []}\n' + bytes(range(200)))


def _read_cache(path: pathlib.Path) -> None:
    """Read from the cache, which finds everything that was written, or nothing."""
    with _cache_in(path.parent):
        path.rename(path.parent / "original.cache")
        found = cache.read("original.cache", cache.PROGRAM_MAGIC)
    assert found in (None, b'{"steps": []}\n' + bytes(range(200))), "a changed file of the cache was read"


@contextlib.contextmanager
def _cache_in(folder: pathlib.Path) -> Iterator[None]:
    original = cache.folder
    cache.folder = lambda: folder
    try:
        yield
    finally:
        cache.folder = original


def _npz(path: pathlib.Path) -> None:
    out = io.BytesIO()
    np.savez_compressed(out, a=np.arange(300.0), b=np.ones((2, 2), np.int8))
    path.write_bytes(out.getvalue())


def _read_npy(path: pathlib.Path) -> None:
    with contextlib.suppress(EOFError):  # of an empty file, which tells readers of several arrays that there is none
        wnp.load(path)


def _read_npz(path: pathlib.Path) -> None:
    found = wnp.load(path)
    if hasattr(found, "files"):
        for name in found.files:
            with contextlib.suppress(zipfile.BadZipFile, zlib.error, ValueError, EOFError):  # NumPy reads them
                found[name]


_BYTES = (mutations.change_bytes,)
_ARCHIVE = (mutations.change_archive, mutations.change_bytes)
_HDF5 = (mutations.change_hdf5, mutations.change_bytes)
_HEADER = (mutations.change_header, mutations.change_bytes)
KINDS = {
    kind.name: kind
    for kind in (
        Kind("keras", lambda path: _model().save(path), _ARCHIVE, keras.models.load_model),
        Kind("h5", lambda path: _model().save(path), _HDF5, keras.models.load_model),
        Kind("weights.h5", lambda path: _model().save_weights(path), _HDF5, lambda path: _model().load_weights(path)),
        Kind("safetensors", _safetensors, _HEADER, safetensors.load_file),
        Kind("checkpoint", lambda path: checkpointing.save(path, _tree()), (), checkpointing.restore),
        Kind("orbax", lambda path: checkpointing.orbax.save(path, _tree()), (), checkpointing.orbax.restore),
        Kind("export", _export, _BYTES, lambda path: weft.export.deserialize(path.read_bytes())),
        Kind("npy", lambda path: wnp.save(path, np.arange(12.0).reshape(3, 4)), _BYTES, _read_npy),
        Kind("npz", _npz, _BYTES, _read_npz),
        Kind("cache", _cache, _BYTES, _read_cache),
    )
}
NEEDS_H5PY = ("h5", "weights.h5")


def available() -> list[str]:
    """Return the kinds of files that can be written here."""
    has_h5py = importlib.util.find_spec("h5py") is not None
    return [name for name in KINDS if has_h5py or name not in NEEDS_H5PY]


class Reader:
    """Files of one kind, changed by seeds.

    Args:
        name: the kind.
        folder: where files are written.
    """

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.kind = KINDS[name]
        self._original = folder / f"original.{name}"
        self._changed = folder / f"changed.{name}"
        self.kind.write(self._original)
        self._content = self._original.read_bytes() if self.kind.changes else b""

    def check(self, seed: int) -> BaseException | None:
        """Read the file of a seed; return Weft's error, None if it was read; raise any other."""
        rng = random.Random(f"{self.kind.name} {seed}")
        if self.kind.changes:
            self._changed.write_bytes(rng.choice(self.kind.changes)(self._content, rng))
        else:
            shutil.rmtree(self._changed, ignore_errors=True)
            shutil.copytree(self._original, self._changed)
            mutations.change_folder(self._changed, rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.kind.read(self._changed)
        except (WeftError, FileNotFoundError, ImportError) as error:  # some codecs need a package
            return error
        return None


class OutOfTime(BaseException):
    """Reading took too long. No handler of exceptions catches it."""


def _raise_out_of_time(*_: Any) -> None:
    raise OutOfTime


def _run(name: str, seeds: range, queue: Any) -> None:
    """Check seeds in a child process, and tell the parent after each."""
    signal.signal(signal.SIGALRM, _raise_out_of_time)
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(name, pathlib.Path(folder))
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for seed in seeds:
            queue.put((seed, "begin", ""))
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                error = reader.check(seed)
                outcome = ("read", "") if error is None else ("refused", type(error).__name__)
            except BaseException as error:
                outcome = ("failed", f"{type(error).__name__}: {str(error)[:300]}")
            signal.setitimer(signal.ITIMER_REAL, 0)
            queue.put((seed, *outcome))
    queue.put((None, "end", ""))


def campaign(name: str, seeds: range) -> tuple[dict[str, int], list[str]]:
    """Check seeds of one kind; return counts of outcomes, and what failed."""
    context = multiprocessing.get_context("spawn")
    counts = {"read": 0, "refused": 0, "failed": 0}
    failures: list[str] = []
    while seeds:
        queue = context.SimpleQueue()
        child = context.Process(target=_run, args=(name, seeds, queue))
        child.start()
        last, has_begun = seeds.start, False
        while True:
            if queue.empty():
                if not child.is_alive() and queue.empty():
                    break
                time.sleep(0.001)
                continue
            seed, outcome, text = queue.get()
            if outcome == "end":
                last = seeds.stop
                break
            if outcome == "begin":
                last, has_begun = seed, True
                continue
            counts[outcome] += 1
            if outcome == "failed":
                failures.append(f"{name} {seed}: {text}")
            last = seed + 1
        child.join()
        if not has_begun:
            raise RuntimeError(f"No file of the kind {name} could be written.")
        if child.exitcode and last < seeds.stop:
            counts["failed"] += 1
            failures.append(f"{name} {last}: the process ended with {child.exitcode}")
            last += 1
        seeds = range(last, seeds.stop)
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.files", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*available(), []], help="default: all")
    parser.add_argument("--count", type=int, default=1000, help="changes of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="read the file of one seed")
    options = parser.parse_args()
    failed = 0
    for name in options.kinds or available():
        if options.seed is not None:
            with tempfile.TemporaryDirectory() as folder:
                print(name, options.seed, Reader(name, pathlib.Path(folder)).check(options.seed))
            continue
        began = time.time()
        counts, failures = campaign(name, range(options.first, options.first + options.count))
        failed += len(failures)
        listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        print(f"{name}: {listed}, {time.time() - began:.0f} s", *failures, sep="\n    ", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
