"""Bytecode of a prepared program: written once, with holes for integers that depend on sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.frame import TEMPORARIES
from weft.compiler.program.ir import Copy, Launch, Slot
from weft.compiler.program.outline import Address
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.target.cpu.assemble import Assembly
from weft.compiler.target.cpu.kernels import CompiledKernel
from weft.compiler.target.cpu.link import Tier

if TYPE_CHECKING:  # programs from disk do not import the preparation
    from weft.compiler.program.prepared import PreparedProgram


class _Hole(int):
    """Integer of the bytecode that is filled in for each size; `source` identifies its value."""

    source: Any

    @classmethod
    def of(cls, *source: Any) -> _Hole:
        hole = cls(0)
        hole.source = source
        return hole


class _Assembly(Assembly):
    """Writer of a program whose sizes are expressions."""

    def __init__(self, prepared: PreparedProgram, kernels: dict[str, CompiledKernel]) -> None:
        super().__init__(prepared.program, lambda kernel: kernels[kernel_symbol(kernel)].address, 0, 0)
        self.prepared = prepared

    def address(self, slot: Slot) -> Address:
        index = self.prepared.temporaries.get(slot)
        return super().address(slot) if index is None else Address(TEMPORARIES, _Hole.of("offset", index))

    def step(self, step: Any) -> None:
        m, prepared = self.assembler, self.prepared
        match step:
            case Launch(kernel, slots):
                row, address = prepared.launch_rows[id(step)], self.kernel_address(kernel)
                if step.full.parallel is None:
                    m.launch(address, 1, self.addresses(slots))
                else:
                    # A launch that threads do not share has a grain of all iterations.
                    m.parallel(address, _Hole.of("count", row), _Hole.of("grain", row), self.addresses(slots))
            case Copy(target, source):
                i, scale = prepared.copies[id(step)]
                m.copy(self.address(target), self.address(source), scale if i < 0 else _Hole.of("size", i, scale))
            case _:
                super().step(step)


class PreparedCode:
    """Prepared program with the kernels of a tier. `at` returns its bytecode at given sizes."""

    def __init__(self, prepared: PreparedProgram, kernels: dict[str, CompiledKernel], tier: Tier) -> None:
        self.prepared, self.kernels, self.tier = prepared, kernels, tier
        assembly = _Assembly(prepared, kernels)
        self.code = assembly.bytecode()
        holes = [(i, entry.source) for i, entry in enumerate(assembly.assembler.instructions) if type(entry) is _Hole]

        def positions(kind: str) -> tuple[np.ndarray, list[Any]]:
            found = [(i, rest) for i, (name, *rest) in holes if name == kind]
            return np.array([i for i, _ in found], np.intp), [rest for _, rest in found]

        self._offsets, which = positions("offset")
        self._which = np.array([index for (index,) in which], np.intp)
        self._counts, rows = positions("count")
        self._grains = positions("grain")[0]
        self._rows = [row for (row,) in rows]
        self._sizes, self._bytes = positions("size")

    def at(self, program: ProgramAtSizes) -> np.ndarray:
        """Return the bytecode of the program at given sizes."""
        code, integers = self.code.copy(), program.integers
        if len(self._which):
            code[self._offsets] = np.array(program.offsets, np.int64)[self._which]
        if self._rows:
            counts = [integers[row.count] for row in self._rows]
            grain = self.prepared.grain
            code[self._counts] = counts
            code[self._grains] = [grain(row, integers) or c for row, c in zip(self._rows, counts, strict=True)]
        if self._bytes:
            code[self._sizes] = [integers[i] * scale for i, scale in self._bytes]
        return code
