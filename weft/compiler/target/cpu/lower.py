"""Kernel to LLVM: a function `void name(ptr buffers, i64 begin, i64 end)` that runs a part of the loop over threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.kernel.ir import (
    Kernel,
    TileMatmul,
)
from weft.compiler.target import llvm
from weft.compiler.target.cpu import tiles
from weft.compiler.target.llvm import i64
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering


def lower(kernel: Kernel, target: Target, name: str = "kernel") -> str:
    """The text of a module with the kernel as its one function."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    lower_into(module, kernel, target, name)
    return module.text()


def module_text(kernels: Iterable[tuple[str, Kernel]], target: Target) -> str:
    """One module with a function for each kernel."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    for name, kernel in kernels:
        lower_into(module, kernel, target, name)
    return module.text()


def lower_into(module: llvm.Module, kernel: Kernel, target: Target, name: str) -> None:
    """Add a kernel to a module, as a function of that name."""
    parameters = [llvm.Parameter("buffers", llvm.ptr), llvm.Parameter("begin", i64), llvm.Parameter("end", i64)]
    function = module.function(name, llvm.void, parameters)
    table, begin, end = function.arguments
    pointers = [function.load(llvm.ptr, function.offset(table, llvm.ptr, n), 8) for n in range(len(kernel.buffers))]
    lower_at(function, kernel, target, pointers, begin, end)
    function.ret()


def lower_at(
    function: llvm.Function,
    kernel: Kernel,
    target: Target,
    pointers: Sequence[llvm.Value],
    begin: llvm.Value,
    end: llvm.Value,
) -> None:
    """Write a part of a kernel's loop over threads where a function is at, with its buffers at these addresses."""
    lowering = _Lowering(function, kernel, target)
    lowering.pointers = dict(zip(kernel.buffers, pointers, strict=True))
    lowering.begin, lowering.end = begin, end
    lowering.read_sizes()
    with_tiles = tiles.uses_tiles(kernel)
    if with_tiles:
        tiles.configure(function)
    lowering.block(kernel.body)
    if with_tiles:
        tiles.release(function)


class _Lowering(VectorLowering):
    """Writes one function, with tile registers."""

    def statement(self, statement: Any) -> None:
        match statement:
            case TileMatmul(out=out, left=left, right=right):
                pairs = ((out, statement.index), (left, statement.left_index), (right, statement.right_index))
                tiles.write(self.f, statement, *(self.access(*pair, safe=True)[1].base for pair in pairs))
            case _:
                super().statement(statement)
