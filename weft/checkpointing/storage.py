"""Files of checkpoints, in directories and in object storage.

A path with a scheme (`s3://bucket/run`, `gs://`, `memory://`) is read and written through fsspec, which the user
installs with the package of the storage. There an object appears at once when it is complete, so an index is replaced
as atomically as a file is renamed; and a part of an object is read by its range of bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
from collections.abc import Iterator
from typing import IO, Any

from weft.base.lazy import lazy

fsspec = lazy("fsspec")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")


def is_url(path: str) -> bool:
    """Return whether a path has a scheme, so that it names an object and not a file."""
    return _SCHEME.match(path) is not None


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path, or a URL without a slash at its end."""
    text = os.fspath(path)
    return text.rstrip("/") if is_url(text) else os.path.abspath(text)


def remote(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    try:
        to_file_system = fsspec.core.url_to_fs
    except ImportError as error:
        needed = "the package fsspec and that of its storage, such as s3fs or gcsfs: pip install fsspec"
        raise ImportError(f"The checkpoint {url} needs {needed}") from error
    system, there = to_file_system(url, use_listings_cache=False)
    return system, there


def exists(path: str) -> bool:
    """Return whether there is a file or an object."""
    if not is_url(path):
        return os.path.isfile(path)
    system, there = remote(path)
    found: bool = system.isfile(there)
    return found


def is_directory(path: str) -> bool:
    """Return whether there is a directory, or objects whose names begin with this one."""
    if not is_url(path):
        return os.path.isdir(path)
    system, there = remote(path)
    found: bool = system.isdir(there)
    return found


def list_names(directory: str) -> list[str]:
    """Return the names in a directory."""
    if not is_url(directory):
        return os.listdir(directory)
    system, there = remote(directory)
    try:
        return [posixpath.basename(name.rstrip("/")) for name in system.ls(there, detail=False)]
    except FileNotFoundError:
        return []


def list_directories(directory: str) -> list[str]:
    """Return the names of the directories in a directory."""
    if not is_url(directory):
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    system, there = remote(directory)
    try:
        found = system.ls(there, detail=True)
    except FileNotFoundError:
        return []
    return [posixpath.basename(entry["name"].rstrip("/")) for entry in found if entry["type"] == "directory"]


def remove_file(path: str) -> None:
    """Remove a file or an object."""
    if is_url(path):
        system, there = remote(path)
        system.rm_file(there)
    else:
        os.unlink(path)


def remove_directory(path: str) -> None:
    """Remove an empty directory. Object storage has objects only."""
    if not is_url(path):
        os.rmdir(path)
        return
    system, there = remote(path)
    if system.isdir(there) and not system.ls(there, detail=False):
        with contextlib.suppress(NotImplementedError, OSError):
            system.rmdir(there)


def read_object(url: str) -> bytes:
    """Read all bytes of an object."""
    system, there = remote(url)
    read: bytes = system.cat_file(there)
    return read


@contextlib.contextmanager
def replace_object(url: str, streams: bool) -> Iterator[IO[bytes]]:
    """Return a context whose bytes become an object when the block ends, or nothing if it fails.

    If `streams`, bytes are sent while they are written; storages differ in whether others may see the object before it
    is complete, so this is for names that no index has yet.
    """
    system, there = remote(url)
    if not streams:
        buffer = io.BytesIO()
        yield buffer
        system.pipe_file(there, buffer.getvalue())
        return
    opened = system.open(there, "wb")
    try:
        yield opened
        opened.close()
    except BaseException:
        for undo in (getattr(opened, "discard", opened.close), opened.close, lambda: system.rm_file(there)):
            with contextlib.suppress(Exception):
                undo()
        raise


class RemoteBytes:
    """Bytes of an object; each slice is a request to the storage."""

    def __init__(self, url: str) -> None:
        self._system, self._path = remote(url)
        self._size = int(self._system.size(self._path))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: slice) -> bytes:
        start, stop, _ = index.indices(self._size)
        if start >= stop:
            return b""
        read: bytes = self._system.cat_file(self._path, start=start, end=stop)
        return read
