"""The code of kernels on a GPU: each distinct one is compiled once in a process, and once for all that share a disk
cache.

A kernel or loop is known by the name of its text (`kernel_symbol`). Its code is one file, under a key of that name, the
target and what assembled it: the version of the driver and the compute capability.
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
# Code lives as long as a program that runs it; the latest is retained for programs to come.
MOST_RETAINED = 512


class Code(NamedTuple):
    """Machine code of a kernel or a loop, or PTX of what decides for a node, and what it is launched with: the shape of
    the grid, and bytes of memory that the threads of a block share besides those that the code has by itself."""

    binary: bytes
    blocks: int
    threads: int
    shared: int = 0


class Assembler(Protocol):
    """What makes and loads code: a `Driver`."""

    @property
    def code_version(self) -> str:
        """What code depends on besides its text."""
        ...

    def make_code(self, sources: Mapping[str, Kernel | LoopCode | NodeCode], target: Target) -> dict[str, Code]:
        """The code of kernels, loops and nodes, by name."""
        ...

    def load(self, name: str, code: Code) -> Any:
        """An entry to launch: code in the memory of the GPU for as long as it is referenced."""
        ...


class GpuCode:
    """The code that is on a GPU."""

    def __init__(self, driver: Assembler) -> None:
        self._driver = driver
        self._entries: weakref.WeakValueDictionary[tuple[Target, str], Any] = weakref.WeakValueDictionary()
        self._latest: deque[Any] = deque(maxlen=MOST_RETAINED)
        self._lock = RenewedLock()

    def entries(
        self, sources: Iterable[Kernel | NamedKernel | LoopCode | NodeCode], target: Target, stats: CodeStats
    ) -> dict[str, Any]:
        """What is launched for each kernel, loop and node, by name; what is new is compiled together. Raises
        `CodeIsGone` if something would have to be compiled but only its name is known."""
        distinct = {_name(source): source for source in sources}
        with self._lock.current:
            # Held from here on: code that only other programs refer to goes when they do.
            held = {name: found for name in distinct if (found := self._entries.get((target, name))) is not None}
            missing = {name: source for name, source in distinct.items() if name not in held}
            stats.reused += len(held)
            with measured(stats.seconds, "compile", "code from disk"):
                for name in list(missing):
                    found = self._stored(name, target)
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

    def _stored(self, name: str, target: Target) -> Any:
        """The entry of code that is on disk."""
        code = stored(name, target, self._driver.code_version)
        if code is None:
            return None
        try:
            return self._driver.load(name, code)
        except JaxRuntimeError:  # a driver that calls itself the same does not accept it: it is compiled anew
            return None


def _name(source: Kernel | NamedKernel | LoopCode | NodeCode) -> str:
    return kernel_symbol(source) if isinstance(source, Kernel | NamedKernel) else source.symbol


def _is_known(source: Kernel | NamedKernel | LoopCode | NodeCode) -> bool:
    """Whether there is something to compile."""
    if isinstance(source, LoopCode):
        return all(isinstance(kernel, Kernel) for kernel in source.outline.kernels.values())
    return not isinstance(source, NamedKernel)


def stored(name: str, target: Target, version: str) -> Code | None:
    """The code that is on disk under a name."""
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
