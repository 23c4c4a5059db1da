"""Lowering of kernels to LLVM for CPUs: a function `void name(ptr buffers, i64 begin, i64 end)` that runs a part of the
loop over threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.kernel.ir import (
    Compute,
    If,
    Kernel,
    Load,
    Loop,
    Statement,
    TileMatmul,
    Value,
)
from weft.compiler.kernel.operations import operation_weight
from weft.compiler.target import llvm
from weft.compiler.target.cpu import tiles
from weft.compiler.target.cpu.carries import MANY_CARRIES, count_carried_vectors
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import i64
from weft.compiler.target.lower import apply_lanes
from weft.compiler.target.math.term import Term
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering

# An operation of at least this weight (in additions) that occurs in at least this many statements of a kernel becomes a
# function that they call: each copy of its dozens of instructions costs LLVM as much time as the loop of a contraction.
LONG, OFTEN = 12, 4
# Unroll factors; the first that divides the trip count is used.
COPIES = (2, 3)


def lower(kernel: Kernel, target: Target, name: str = "kernel", several: bool = False) -> str:
    """Return the LLVM text of a module with only this kernel."""
    return module_text([(name, kernel)], target, [name] if several else ())


def module_text(kernels: Iterable[tuple[str, Kernel]], target: Target, several: Collection[str] = ()) -> str:
    """Return the LLVM text of a module with a function for each kernel. Kernels whose names are in `several` unroll
    loops that carry many values."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128, frames=True)
    for name, kernel in kernels:
        lower_into(module, kernel, target, name, name in several)
    return module.text()


def lower_into(module: llvm.Module, kernel: Kernel, target: Target, name: str, several: bool = False) -> None:
    """Add a kernel to a module, as a function of this name."""
    parameters = [llvm.Parameter("buffers", llvm.ptr), llvm.Parameter("begin", i64), llvm.Parameter("end", i64)]
    function = module.function(name, llvm.void, parameters)
    table, begin, end = function.arguments
    pointers = [function.load(llvm.ptr, function.offset(table, llvm.ptr, n), 8) for n in range(len(kernel.buffers))]
    lower_at(function, kernel, target, pointers, begin, end, several)
    function.ret()


def lower_at(
    function: llvm.Function,
    kernel: Kernel,
    target: Target,
    pointers: Sequence[llvm.Value],
    begin: llvm.Value,
    end: llvm.Value,
    several: bool = False,
) -> None:
    """Write [begin, end) of a kernel's loop over threads at the current position of a function, with its buffers at
    these addresses."""
    lowering = _Lowering(function, kernel, target, several)
    # Iterations of one call run in sequence, so they share local memory.
    local = {b: function.alloca(llvm.i8, b.size * b.dtype.itemsize) for b in kernel.local}
    lowering.pointers = dict(zip(kernel.buffers, pointers, strict=True)) | local
    lowering.begin, lowering.end = begin, end
    lowering.read_sizes()
    with_tiles = kernel.multiplies_tiles
    if with_tiles:
        tiles.configure(function)
    lowering.block(kernel.body)
    if with_tiles:
        tiles.release(function)


def _long_operations(body: Iterable[Statement]) -> Counter[str]:
    """Count the statements of each long operation, nested ones included."""
    found: Counter[str] = Counter()
    for statement in body:
        if isinstance(statement, Compute):
            if operation_weight(statement.op) >= LONG and statement.result.dtype == statement.operands[0].dtype:
                found[statement.op] += 1
        elif inside := getattr(statement, "body", None):
            found += _long_operations(inside)
    return found


class _Lowering(VectorLowering):
    """Writer of one function with tile registers; frequent long operations become functions of their own.

    With `several`, loops that carry many values are unrolled: the values stay in registers between the copies of the
    body, whereas unoptimised code stores them in memory between iterations.
    """

    def __init__(self, function: llvm.Function, kernel: Kernel, target: Target, several: bool) -> None:
        super().__init__(function, kernel, target)
        self.several = several
        self.called = {op for op, count in _long_operations(kernel.body).items() if count >= OFTEN}
        self.sums = tiles.sums(kernel)
        # Values loaded from sums of tiles, which are never denormal.
        self.normal: set[Value] = set()

    def compute(self, op: str, operands: Sequence[Lane], params: Mapping[str, Any]) -> Lane:
        dtype = operands[0].dtype
        if op not in self.called or params or any(dtypes.kind(x.dtype) != "f" or x.dtype != dtype for x in operands):
            return super().compute(op, operands, params)
        _, widened = self.together(operands)
        values = [x.re.value for x in widened]
        lane_type = values[0].type

        def write(function: llvm.Function) -> None:
            lanes = self.lanes_type(function, widened[0].width)
            arguments = [Lane(dtype, Term(function, a)) for a in function.arguments]
            function.ret(apply_lanes(lanes, arguments, op, params).re.value)

        parameters = [llvm.Parameter(f"x{i}", lane_type) for i in range(len(values))]
        name = f"{op}_{dtypes.short_name(dtype)}_{widened[0].width}"
        result = self.f.call(self.f.module.helper(name, parameters, write, lane_type), lane_type, *values)
        assert result is not None
        return widened[0].with_parts([result])

    def copies(self, loop: Loop, count: int) -> int:
        if not self.several or count_carried_vectors(loop, self.width, self.target) < MANY_CARRIES:
            return 1
        # Between basic blocks all values are in memory.
        if any(isinstance(statement, Loop | If) for statement in loop.body):
            return 1
        return next((n for n in COPIES if not count % n), 1)

    def statement(self, statement: Any) -> None:
        match statement:
            case TileMatmul(out=out, left=left, right=right):
                pairs = ((out, statement.index), (left, statement.left_index), (right, statement.right_index))
                tiles.write(self.f, statement, *(self.access(*pair, safe=True)[1].base for pair in pairs))
            case Compute(result, "convert_element_type", (value,), {"new_dtype": dtypes.bfloat16}) if (
                value in self.normal
            ):
                self.values[result] = tiles.round_to_bfloat16(self.f, self.values[value])
            case _:
                super().statement(statement)
                if isinstance(statement, Load) and statement.buffer in self.sums:
                    self.normal.add(statement.result)
