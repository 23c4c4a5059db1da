"""Machine code of GPUs as text, by NVIDIA's tools where they are at hand."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from weft.compiler.target.threads import compiling_threads
from weft.runtime.cuda.libraries.find import folders

# Tools, with their options before the name of a file.
TOOLS = {"nvdisasm": ("-c",), "cuobjdump": ("-sass",)}
SECONDS = 60


@functools.cache
def tool() -> tuple[str, ...] | None:
    """The beginning of a command that prints machine code, if there is one: in the path, or beside libraries."""
    for name, options in TOOLS.items():
        beside = (str(folder.parent / "bin") for folder in folders())
        path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(beside))
        if path is not None:
            return path, *options
    return None


def disassembled(binaries: Iterable[bytes]) -> list[str]:
    """Machine code of kernels as texts, or why there are none; nothing where there is no tool for it. A tool takes a
    few tenths of a second for each, so there are several at a time."""
    command = tool()
    if command is None:
        return ["" for _ in binaries]
    with ThreadPoolExecutor(compiling_threads()) as threads:
        return list(threads.map(partial(_disassembled, command), binaries))


def _disassembled(command: tuple[str, ...], binary: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernel.cubin")
        path.write_bytes(binary)
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout if done.returncode == 0 else done.stderr
