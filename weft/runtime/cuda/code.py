"""Code of kernels on a GPU: each distinct kernel is compiled once in a process, and once for all that share a disk
cache.

A kernel or loop is identified by its symbol, the digest of its text. Its code is one file, under a key of the symbol,
the target and the assembler: the version of the driver and the compute capability.
"""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from weft.base.errors import JaxRuntimeError
from weft.base.forks import RenewedLock
from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.target.code_stats import CodeIsGone, CodeStats
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.compiler.target.cuda.node_code import NodeCode
from weft.compiler.target.target import Target

CODE, MAGIC = ".g", b"weft gpu code 2\n"
# Code lives as long as a program that uses it; the latest is retained for later programs.
MOST_RETAINED = 512


class Code(NamedTuple):
    """Machine code of a kernel or a loop, or PTX of a conditional node, with its launch configuration: the shape of the
    grid, and the bytes of dynamic shared memory."""

    binary: bytes
    blocks: int
    threads: int
    shared: int = 0


class Assembler(Protocol):
    """Compiler and loader of code: a `Driver`."""

    @property
    def code_version(self) -> str:
        """Key of the assembler and the GPU, on which machine code depends besides its text."""
        ...

    def make_code(self, sources: Mapping[str, Kernel | LoopCode | NodeCode], target: Target) -> dict[str, Code]:
        """Compile kernels, loops and nodes, by name."""
        ...

    def load(self, name: str, code: Code) -> Any:
        """Load code to the GPU; return an entry that can be launched as long as it is referenced."""
        ...


class GpuCode:
    """Code that is loaded on a GPU."""

    def __init__(self, driver: Assembler) -> None:
        self._driver = driver
        self._entries: weakref.WeakValueDictionary[tuple[Target, str], Any] = weakref.WeakValueDictionary()
        self._latest: deque[Any] = deque(maxlen=MOST_RETAINED)
        self._lock = RenewedLock()

    def entries(
        self, sources: Iterable[Kernel | NamedKernel | LoopCode | NodeCode], target: Target, stats: CodeStats
    ) -> dict[str, Any]:
        """Return the entries of kernels, loops and nodes, by name; new ones are compiled together.

        Raise `CodeIsGone` if one must be compiled of which only the name is known.
        """
        distinct = {_name(source): source for source in sources}
        with self._lock.current:
            # Held from here on: code that only other programs reference is freed with them.
            held = {name: found for name in distinct if (found := self._entries.get((target, name))) is not None}
            missing = {name: source for name, source in distinct.items() if name not in held}
            stats.reused += len(held)
            with measured(stats.seconds, "compile", "code from disk"):
                for name in list(missing):
                    found = self._load_stored(name, target)
                    if found is not None:
                        held[name] = found
                        del missing[name]
                        stats.from_disk += 1
            if missing:
                known = {name: source for name, source in missing.items() if _is_known(source)}
                if len(known) < len(missing):
                    raise CodeIsGone(next(name for name in missing if name not in known))
                with measured(stats.seconds, "compile", "machine code"):
                    codes = self._driver.make_code(known, target)  # type: ignore[arg-type]
                with measured(stats.seconds, "compile", "link"):
                    for name, code in codes.items():
                        held[name] = self._driver.load(name, code)
                        store(name, code, target, self._driver.code_version)
                stats.compiled += len(codes)
            for name, entry in held.items():
                self._entries[target, name] = entry
                self._latest.append(entry)
            return held

    def _load_stored(self, name: str, target: Target) -> Any:
        """Load code from disk; return None if it is not there."""
        code = read_stored(name, target, self._driver.code_version)
        if code is None:
            return None
        try:
            return self._driver.load(name, code)
        except JaxRuntimeError:  # another driver of the same version may reject it: it is compiled again
            return None


def _name(source: Kernel | NamedKernel | LoopCode | NodeCode) -> str:
    return kernel_symbol(source) if isinstance(source, Kernel | NamedKernel) else source.symbol


def _is_known(source: Kernel | NamedKernel | LoopCode | NodeCode) -> bool:
    """Return whether the source is there, and not only its name."""
    if isinstance(source, LoopCode):
        return all(isinstance(kernel, Kernel) for kernel in source.outline.kernels.values())
    return not isinstance(source, NamedKernel)


def read_stored(name: str, target: Target, version: str) -> Code | None:
    """Read code from disk; return None if it is not there."""
    if cache.folder() is None:
        return None
    content = cache.read(cache.make_key(name, target, version) + CODE, MAGIC)
    if content is None:
        return None
    head, _, binary = content.partition(b"\n")
    return Code(binary, *json.loads(head))


def store(name: str, code: Code, target: Target, version: str) -> None:
    """Write code to disk."""
    if cache.folder() is not None:
        head = json.dumps([code.blocks, code.threads, code.shared]).encode()
        cache.write(cache.make_key(name, target, version) + CODE, MAGIC, head + b"\n" + code.binary)
