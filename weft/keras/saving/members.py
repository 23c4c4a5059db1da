"""Members of a saved model, which is an archive or a folder; sizes are checked before anything is read."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.checkpointing import tensor_file
from weft.errors import FileFormatError
from weft.keras.saving import limits


class Archive:
    """The members of a zip archive.

    Args:
        archive: the archive.
        file: its name, for errors.
    """

    def __init__(self, archive: zipfile.ZipFile, file: str) -> None:
        self.file = file
        self._archive = archive
        listed = archive.infolist()
        if len(listed) > limits.MOST_MEMBERS:
            raise FileFormatError(f"{file} must have at most {limits.MOST_MEMBERS} members; got {len(listed)}.")
        if len({info.filename for info in listed}) < len(listed):
            raise FileFormatError(f"{file} cannot have two members of one name.")
        for info in listed:
            limits.check_size(info.file_size, f"{file}: {info.filename}")
            if info.file_size > limits.MOST_EXPANSION * max(info.compress_size, 1):
                raise FileFormatError(
                    f"{file}: {info.filename} must not expand more than {limits.MOST_EXPANSION}-fold."
                )
        self.names = [info.filename for info in listed]

    def size(self, name: str) -> int:
        """Return how many bytes a member has."""
        return self._archive.getinfo(name).file_size

    def content(self, name: str) -> bytes:
        """Return the bytes of a member, whose checksum is verified."""
        return self._archive.read(name)


class Folder:
    """The files of a folder that `save_model(zipped=False)` wrote.

    Args:
        path: the folder.
    """

    def __init__(self, path: str) -> None:
        self.file = path
        found = []
        for entry in sorted(pathlib.Path(path).rglob("*")):
            if entry.is_file() and not entry.is_symlink():
                found.append(entry.relative_to(path).as_posix())
            if len(found) > limits.MOST_MEMBERS:
                raise FileFormatError(f"{path} must have at most {limits.MOST_MEMBERS} files.")
        self.names = found

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""
        return os.path.getsize(os.path.join(self.file, name))

    def content(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return tensor_file.content(os.path.join(self.file, name))


Members = Archive | Folder


@contextmanager
def opened(source: Any, file: str) -> Iterator[Members]:
    """Open a saved model; what zipfile raises in the block becomes a FileFormatError.

    Args:
        source: the path of an archive or folder, or a binary file object.
        file: its name, for errors.
    """
    if isinstance(source, str) and os.path.isdir(source):
        yield Folder(source)
        return
    try:
        with zipfile.ZipFile(source) as archive:
            yield Archive(archive, file)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, (FileFormatError, RecursionError)):
            raise
        raise _damage_error(file, error) from None
    except (UnicodeDecodeError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise _damage_error(file, error) from None


def _damage_error(file: str, error: Exception) -> FileFormatError:
    return FileFormatError(f"{file} is no archive of a model, or a damaged one: {error}.")


def read(members: Members, name: str, most: int = limits.MOST_BYTES) -> bytes:
    """Return the bytes of a member, if it is there and not larger than `most`."""
    if name not in members.names:
        raise FileFormatError(f"{members.file} has no {name}: it is no file of a model.")
    limits.check_size(members.size(name), f"{members.file}: {name}", most)
    return members.content(name)


def read_json(members: Members, name: str) -> Any:
    """Return the value of a member that is JSON."""
    try:
        return json.loads(read(members, name, limits.MOST_TEXT))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{members.file}: {name} is no JSON: {error}.") from None
