"""The compilation cache on disk, from which the next process loads instead of compiling again.

A file holds one entry (the steps of a program, a schedule, an object with machine code) under the digest of its inputs:
the text, the target with its code generator, and the state of Weft's files. It begins with a magic line and a checksum;
a file that is truncated, changed, or from elsewhere is ignored and compiled again. Files are written under a temporary
name and renamed, so that processes which share the folder never see half of one. The least recently used are deleted
when the folder grows too large.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator

import weft.compiler
from weft.base.forks import held
from weft.base.settings import config
from weft.compiler.target.target import Target

PROGRAM_MAGIC = b"weft program 3\n"
SCHEDULE_MAGIC = b"weft schedule 1\n"
# The partition of a call on a mesh.
PARTITION, PARTITION_MAGIC = ".d", b"weft partition 1\n"
# Schedules are never pruned: they are small, and without them the next process could choose otherwise.
SCHEDULE = ".s"
# The folders of Weft whose code determines the result of compilation; the last few by definitions of operations.
BELOW_PROGRAMS = (
    *("base", "indexing", "sharding", "ir", "trace", "primitives", "transforms", "compiler", "runtime"),
    *("api", "lax", "numpy", "scipy/special/primitives"),
)
MAX_BYTES = 1 << 29
# Block size of file systems: most files here are smaller.
BLOCK = 4096
# The number of new files after which the size of the folder is checked.
MEASURE_AFTER = 64
_written = 0
_lock = held(threading.Lock())
_ending = threading.Event()  # set when the process ends, which must not wait for a large folder to be measured


def folder() -> pathlib.Path | None:
    """Return the folder of the cache; None if it cannot be used or the cache is off."""
    if not config.compilation_cache:
        return None
    return _create(config.compilation_cache_dir or default_folder())


def default_folder() -> str:
    """Return the user's folder for caches on this system."""
    if sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "weft")


@functools.cache
def _create(name: str) -> pathlib.Path | None:
    """Create the folder if necessary, and return it; None if other users can write to it: code from it is executed."""
    path = pathlib.Path(name)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return None
    return path


@functools.cache
def state_of_compiler() -> str:
    """Return a digest of the source files between a kernel's text and its code."""
    return _digest_files(pathlib.Path(weft.compiler.__file__).parent, ("target", "kernel"), "")


def _digest_files(root: pathlib.Path, folders: Iterable[str], seed: str) -> str:
    """Return a digest of the names, sizes and modification times of the files in some folders, and of a text."""
    digest = hashlib.blake2b(seed.encode(), digest_size=16)
    for name in folders:
        folder = os.path.join(root, name)
        for path, size, written in sorted(_files_below(folder)):
            digest.update(f"{name}{path[len(folder) :]} {size} {written}\n".encode())
    return digest.hexdigest()


def _files_below(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path, the size and the modification time of each Python file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files_below(entry.path)


def make_key(text: str, target: Target, tier: str = "") -> str:
    """Make the key of a text's compilation for a target, by one tier or by any."""
    parts = (text, target.key, tier)
    digest = hashlib.blake2b(state_of_compiler().encode(), digest_size=20)
    for part in parts:
        digest.update(f"{len(part)} ".encode() + part.encode())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------ programs


@functools.cache
def state_of_weft() -> str:
    """Return a digest of the source files between a traced jaxpr and its steps."""
    return _digest_files(pathlib.Path(weft.compiler.__file__).parents[1], BELOW_PROGRAMS, state_of_compiler())


def program_key(meaning: str, target: Target) -> str:
    """Make the key of a program from the fingerprint of its traced jaxpr and its settings."""
    return make_key(f"{state_of_weft()} {meaning}", target)


def load_program(key: str) -> bytes | None:
    """Read the steps stored under a key; None if there are none, or the file is damaged."""
    return read(key + ".p", PROGRAM_MAGIC)


def store_program(key: str, content: bytes) -> None:
    """Store steps."""
    write(key + ".p", PROGRAM_MAGIC, content)


# ----------------------------------------------------------------------------------------------------------- schedules


def schedule_key(meaning: str, target: Target) -> str:
    """Make the key of a contraction's schedule."""
    return make_key(f"schedule {state_of_weft()} {meaning}", target)


def load_schedule(key: str) -> str | None:
    """Read the schedule stored under a key, or None."""
    content = read(key + SCHEDULE, SCHEDULE_MAGIC)
    return None if content is None else content.decode("ascii", "replace")


def store_schedule(key: str, schedule: str) -> None:
    """Store a schedule, unless there is one already: the first one stays."""
    write(key + SCHEDULE, SCHEDULE_MAGIC, schedule.encode(), first_stays=True)


# --------------------------------------------------------------------------------------------------------------- files


def read(name: str, magic: bytes) -> bytes | None:
    """Read a file; None if it does not exist, or its magic line or checksum is wrong."""
    root = folder()
    if root is None:
        return None
    content = _content(root / name)
    if content is None:
        return None
    start = len(magic) + 32
    if not content.startswith(magic) or _checksum(name, content[start:]) != content[len(magic) : start]:
        with contextlib.suppress(OSError):
            (root / name).unlink()
        return None
    # The time of the last use decides what is pruned first.
    with contextlib.suppress(OSError):
        os.utime(root / name)
    return content[start:]


def _content(path: pathlib.Path) -> bytes | None:
    """Read the bytes of a file, or None if it does not exist. A file that is not regular (a folder, a pipe, a device, a
    link to one of them) or larger than the whole cache counts as empty, so that its checksum is wrong."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        # The file may have been replaced by a pipe since: O_NONBLOCK keeps open() from waiting.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return b""
            return file.read(found.st_size)
    except OSError:
        return None


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, key=name.encode()[:64]).digest()


def write(name: str, magic: bytes, content: bytes, first_stays: bool = False) -> None:
    """Write a file atomically, over an existing one unless `first_stays`. A folder that cannot be written is no error:
    the next process compiles again."""
    global _written
    root = folder()
    if root is None:
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=root, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(magic + _checksum(name, content) + content)
            if first_stays:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, root / name)
                os.unlink(temporary)
            else:
                os.replace(temporary, root / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError:
        return
    with _lock:
        _written += 1
        measure = _written % MEASURE_AFTER == 0
    if measure:
        prune(root, MAX_BYTES)


def stop_pruning() -> None:
    """Stop pruning because the process ends; another process will prune the folder."""
    _ending.set()


def prune(root: pathlib.Path, max_bytes: int) -> None:
    """Delete the least recently used files until the others take at most `max_bytes` on the disk, and temporary files
    of killed processes."""
    found: list[tuple[float, int, os.DirEntry[str]]] = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if _ending.is_set():
                return
            with contextlib.suppress(OSError):
                state = entry.stat()
                if entry.name.endswith(SCHEDULE):
                    continue
                if entry.name.startswith("new-") and state.st_mtime > time.time() - 3600:
                    continue  # another process may be writing it
                stored = -(-state.st_size // BLOCK) * BLOCK
                found.append((0.0 if entry.name.startswith("new-") else state.st_mtime, stored, entry))
    total = sum(size for _, size, _ in found)
    for last_use, size, entry in sorted(found, key=lambda item: item[0]):
        if (total <= max_bytes and last_use) or _ending.is_set():
            break
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
        total -= size
