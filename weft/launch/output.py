"""What the processes write: whole lines, each behind the index of its process, and a file for each process."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import BinaryIO


class Output:
    """Writer of lines to stdout and stderr of this process, and to files below `directory` without the prefix."""

    def __init__(self, has_prefix: bool, directory: str | None) -> None:
        self._has_prefix = has_prefix
        self._directory = None if directory is None else pathlib.Path(directory)
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        self._files: dict[tuple[int, str], BinaryIO] = {}
        self._attempt = 0
        self.is_broken = False  # whether the reader of this process's output is gone

    def begin(self, attempt: int) -> None:
        """Write to the files of another start from now on."""
        self.close()
        self._attempt = attempt

    def write(self, rank: int, stream: str, line: bytes) -> None:
        """Write a line of a process; `stream` is "out" or "err"."""
        if self._directory is not None:
            file = self._file(rank, stream)
            file.write(line)
            file.flush()
        try:
            target = sys.stdout if stream == "out" else sys.stderr
            target.buffer.write((b"[%d] " % rank if self._has_prefix else b"") + line)
            target.flush()
        except OSError:
            self.is_broken = True

    def _file(self, rank: int, stream: str) -> BinaryIO:
        if (rank, stream) not in self._files:
            assert self._directory is not None
            folder = self._directory / f"start_{self._attempt}"
            folder.mkdir(parents=True, exist_ok=True)
            self._files[rank, stream] = (folder / f"process_{rank}.{stream}").open("wb")
        return self._files[rank, stream]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def say(text: str) -> None:
    """Write a message of the launcher itself."""
    try:
        print(f"weft.launch: {text}", file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its reader is gone, and the job ends in order
