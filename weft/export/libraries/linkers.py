"""Linkers that make shared libraries and WebAssembly modules: those of the system, or of the ziglang package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.base.lazy import is_importable

# Linkers of each format: programs by name, and the subcommands of `python -m ziglang`.
_COMPILERS = ("cc", "clang", "gcc")
_ELF_PROGRAMS, _WASM_PROGRAMS = ("ld.lld",), ("wasm-ld",)


@dataclass(frozen=True)
class Linker:
    """A linker: the beginning of its command, and whether that is a C compiler."""

    command: tuple[str, ...]
    is_compiler: bool = False


def find_linker(triple: str, for_host: bool, asked: str | None = None) -> Linker | None:
    """Return a linker for a machine, or None. `asked` is the name or path of one."""
    is_wasm = triple.startswith("wasm")
    programs = _WASM_PROGRAMS if is_wasm else _ELF_PROGRAMS
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            raise ArgumentError("`linker` must be a program.", received=repr(asked), fix="its path")
        base = os.path.basename(asked)
        return Linker((found,), not (base in programs or base.startswith("ld")))
    for name in _COMPILERS if for_host and not is_wasm else ():
        if (found := shutil.which(name)) is not None:
            return Linker((found,), True)
    for name in programs:
        if (found := shutil.which(name)) is not None:
            return Linker((found,))
    if is_importable("ziglang"):
        return Linker((sys.executable, "-m", "ziglang", programs[0]))
    return None


def link_library(
    linker: Linker, objects: Sequence[str], output: str, name: str, threads: bool = False, lapack: bool = False
) -> None:
    """Link objects to a shared library. If the system has no LAPACK, programs that load the library must bring it."""
    if linker.is_compiler:
        options = ["-shared", f"-Wl,-soname,{name}", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack"]
        if sys.platform == "darwin":
            options = ["-dynamiclib", f"-Wl,-install_name,@rpath/{name}"]
        options += ["-lpthread"] if threads else [] if lapack or sys.platform == "darwin" else ["-nostdlib"]
        command = [*linker.command, *options, "-o", output, *objects]
        for libraries in (("-llapack", "-lblas"), ("-lopenblas",)) if lapack else ():
            if not subprocess.run([*command, *libraries], capture_output=True, check=False).returncode:
                return
        _run(command)
    else:
        _run([*linker.command, "-shared", "-soname", name, "-Bsymbolic", "-o", output, *objects])


def link_wasm(linker: Linker, objects: Sequence[str], output: str, exports: Sequence[str]) -> None:
    """Link objects to a WebAssembly module that exports functions, its memory, and where free memory begins."""
    options = ["--no-entry", "--strip-all", "--export=__heap_base", "-z", "stack-size=1048576"]
    _run([*linker.command, *options, *(f"--export={name}" for name in exports), "-o", output, *objects])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArgumentError(
            f"The linker {' '.join(command[:4])} failed.", received=done.stderr.strip()[-800:], fix="another linker="
        )
