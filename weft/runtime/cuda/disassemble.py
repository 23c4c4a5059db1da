"""Disassembly of machine code by NVIDIA's tools, if they are installed."""

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

# Tools with their options.
TOOLS = {"nvdisasm": ("-c",), "cuobjdump": ("-sass",)}
SECONDS = 60


@functools.cache
def tool() -> tuple[str, ...] | None:
    """Find a disassembler in the path or beside the libraries; return its command without the file, or None."""
    for name, options in TOOLS.items():
        beside = (str(folder.parent / "bin") for folder in folders())
        path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(beside))
        if path is not None:
            return path, *options
    return None


def disassemble(binaries: Iterable[bytes]) -> list[str]:
    """Disassemble kernels, several at a time; a text may be the error of the tool, and is empty without a tool."""
    command = tool()
    if command is None:
        return ["" for _ in binaries]
    with ThreadPoolExecutor(compiling_threads()) as threads:
        return list(threads.map(partial(_disassemble, command), binaries))


def _disassemble(command: tuple[str, ...], binary: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernel.cubin")
        path.write_bytes(binary)
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout if done.returncode == 0 else done.stderr
