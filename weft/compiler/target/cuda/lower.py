"""Kernel to LLVM for GPUs: entries of a PTX module that take the addresses of buffers, one parameter each.

In the plain form a thread of the grid computes one iteration of the kernel's loop over threads, one element at a time.
A kernel without such a loop is computed by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.compiler.kernel.ir import Kernel
from weft.compiler.target import llvm
from weft.compiler.target.llvm import constant, i32, i64
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering

# Threads of a block.
BLOCK = 128


def blocks(kernel: Kernel) -> int:
    """How many blocks of threads a kernel is launched with."""
    return -(-int(kernel.count) // BLOCK)


def module_text(kernels: Iterable[tuple[str, Kernel]], target: Target) -> str:
    """One module with an entry for each kernel."""
    # LLVM ends the process on masked vectors for GPUs.
    module = llvm.Module(triple=target.triple, vector_bits=128, masks=False)
    for name, kernel in kernels:
        lower_into(module, kernel, target, name)
    return module.text()


def lower_into(module: llvm.Module, kernel: Kernel, target: Target, name: str) -> None:
    """Add a kernel to a module, as an entry of that name."""
    parameters = [llvm.Parameter(f"buffer{n}", llvm.ptr) for n in range(len(kernel.buffers))]
    function = module.function(name, llvm.void, parameters, linkage="ptx_kernel")
    # The grid may have more threads than an i32 counts.
    index = function.add(function.mul(_register(function, "ctaid"), constant(BLOCK, i64)), _register(function, "tid"))
    lowering = VectorLowering(function, kernel, target)
    lowering.pointers = dict(zip(kernel.buffers, function.arguments, strict=True))
    lowering.read_sizes()
    with function.when(function.icmp("slt", index, lowering.integer(kernel.count))):
        lowering.begin, lowering.end = index, function.add(index, constant(1, i64))
        lowering.block(kernel.body)
    function.ret()


def _register(function: llvm.Function, name: str) -> llvm.Value:
    """A special register of the thread, along the first dimension of the grid."""
    value = function.call(f"llvm.nvvm.read.ptx.sreg.{name}.x", i32)
    assert value is not None
    return function.zext(value, i64)
