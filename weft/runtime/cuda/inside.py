"""Inspection of an executable of GPUs. Loaded on demand; running does not need it."""

from __future__ import annotations

import json
from typing import Any

from weft.compiler import cache
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import Step
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.compiler.target.cuda.lower import module_text, source_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.target import ANY
from weft.runtime.cuda.code import Code, read_stored
from weft.runtime.cuda.disassemble import disassemble
from weft.runtime.inside import Inside, KernelCode, function_in
from weft.runtime.limits import Limits

# Attributes of a GPU: clock rates of its multiprocessors and memory in kHz, width of its memory bus in bits.
CLOCK, MEMORY_CLOCK, MEMORY_BITS, PROCESSORS, THREADS = 13, 36, 37, 16, 39
CLOCKS, CLOCKS_MAGIC = ".c", b"weft gpu clocks 1\n"
# Fused multiply-adds per multiprocessor and cycle, by the first compute capability: of float32, and of 16-bit floats by
# tensor cores.
LANES = {75: 64, 80: 64, 86: 128}
TENSOR_LANES = {75: 512, 80: 1024, 86: 512, 90: 2048, 100: 4096, 120: 512}


class CudaInside(Inside):
    """Inspector of an executable of GPUs; statistics are those of the first GPU that it was loaded to."""

    def __init__(self, executable: Any) -> None:
        super().__init__(executable)
        self.loaded = executable.get_first_program()
        self.loaded.complete()

    def llvm(self) -> str:
        return module_text(self.distinct_kernels().items(), self.compilation.target, self._loops().values())

    def assembly(self) -> str:
        """Return the kernels as PTX."""
        return ptx(self.llvm(), self.compilation.target)

    def code_name(self, step: Step) -> str | None:
        loop = self.loaded.prepared.loops.get(step)
        return super().code_name(step) if loop is None else loop.symbol

    def get_code(self, kernels: dict[str, Kernel]) -> dict[str, KernelCode]:
        sources: dict[str, Kernel | LoopCode] = {**kernels, **self._loops()}
        # Kernels that are only inlined in loops have no code of their own.
        entries = {name: entry for name in sources if (entry := self.loaded.prepared.entries.get(name)) is not None}
        texts = disassemble(self._binary(name, sources[name]) for name in entries)
        machine_code = dict(zip(entries, texts, strict=True))
        target, driver = self.compilation.target, self.loaded.driver
        found = {}
        for name, source in sources.items():
            text = source_text(name, source, target)
            function = function_in(text, rf"^define [^\n]*@\"?{name}\"?\(.*?^}}")
            figures = driver.figures(entries[name]) if name in entries else {}
            found[name] = KernelCode(function, ptx(text, target), machine_code.get(name, ""), figures)
        return found

    def _loops(self) -> dict[str, LoopCode]:
        """Return the loops that are one kernel, by symbol."""
        return {loop.symbol: loop for loop in self.loaded.prepared.loops.values()}

    def _binary(self, name: str, source: Kernel | LoopCode) -> bytes:
        """Return the machine code of a kernel: from disk, or compiled again."""
        target, driver = self.compilation.target, self.loaded.driver
        code: Code = read_stored(name, target, driver.code_version) or driver.make_code({name: source}, target)[name]
        return code.binary


def get_limits(driver: Any) -> Limits:
    """Compute the peak performance of a GPU from its clock rates and the width of its memory bus."""
    major, minor = driver.capability
    clock, memory_clock = _clocks(driver)
    cycles = 1e3 * clock * driver.attribute(PROCESSORS)
    memory = 2e3 * memory_clock * driver.attribute(MEMORY_BITS) / 8
    lanes, tensor_lanes = (_find_by_capability(table, 10 * major + minor) for table in (LANES, TENSOR_LANES))
    return Limits(
        driver.attribute(PROCESSORS) * driver.attribute(THREADS),
        2 * lanes * cycles,
        ((driver.memory_left()[1], memory),),
        2 * tensor_lanes * cycles,
        "by its clocks",
    )


def _clocks(driver: Any) -> tuple[int, int]:
    """Return the clock rates of multiprocessors and memory in kHz; cached on disk, since the driver may take
    seconds.
    """
    name = cache.make_key(f"clocks of {driver.name}", ANY, driver.code_version) + CLOCKS
    content = cache.read(name, CLOCKS_MAGIC)
    if content is None:
        content = json.dumps([driver.attribute(CLOCK), driver.attribute(MEMORY_CLOCK)]).encode()
        cache.write(name, CLOCKS_MAGIC, content)
    clock, memory_clock = json.loads(content)
    return clock, memory_clock


def _find_by_capability(table: dict[int, int], capability: int) -> int:
    return table[max((known for known in table if known <= capability), default=min(table))]
