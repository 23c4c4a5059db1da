"""The directory of a job on a host, which lasts from the first start of its processes until the launcher ends."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import tempfile

MEMORY = pathlib.Path("/dev/shm")
# Containers often have 64 MB of shared memory: too little for the state of a training.
LEAST_ROOM = 1 << 30
NAME = re.compile(r"weft-job-\w+-(\d+)-(\d+)")


def make_directory(job: str) -> pathlib.Path:
    """Create the directory of a job, or return the one that it has: in memory if there is room.

    What launchers that were killed have left there is removed.
    """
    parent = pathlib.Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize >= LEAST_ROOM and os.access(MEMORY, os.W_OK | os.X_OK):
            parent = MEMORY
    remove_remains(parent)
    path = parent / f"weft-job-{job}-{_namespace()}-{os.getpid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def remove_remains(parent: pathlib.Path) -> None:
    """Remove the directories of this user's launchers that do not run any more."""
    for path in parent.glob("weft-job-*"):
        found = NAME.fullmatch(path.name)
        # A process id says nothing about a launcher in another namespace, such as that of another container.
        if found and int(found[1]) == _namespace() and not _runs(int(found[2])):
            with contextlib.suppress(OSError):
                if path.lstat().st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    """Return the number of the namespace of process ids; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True
