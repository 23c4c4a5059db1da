"""Kernel to LLVM for GPUs: entries of a PTX module, with one parameter for the address of each buffer.

A thread of the grid computes one iteration of the kernel's loop over threads; with wide loops over lanes, a group of
threads does (`groups.py`). A kernel without a loop over threads has one iteration.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Buffer, Kernel
from weft.compiler.target import llvm
from weft.compiler.target.cuda.groups import BLOCK, GroupLowering, bytes_at_launch, choose_group
from weft.compiler.target.cuda.loop_code import THREADS, LoopCode
from weft.compiler.target.cuda.loops import lower_loop
from weft.compiler.target.cuda.node_code import NodeCode
from weft.compiler.target.cuda.nodes import lower_node
from weft.compiler.target.cuda.thread import ThreadLowering, block_of_grid, thread_of_block
from weft.compiler.target.llvm import constant, i32, i64
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering


def launch_shape(kernel: Kernel | LoopCode | NodeCode, target: Target) -> tuple[int, int]:
    """Return the number of blocks of a launch, and the threads per block."""
    if isinstance(kernel, LoopCode):
        return kernel.grid, THREADS
    if isinstance(kernel, NodeCode):
        return kernel.blocks, kernel.threads
    group = choose_group(kernel, target)
    threads = BLOCK if group is None else group.block
    each = 1 if group is None else group.threads
    return -(-int(kernel.count) * each // threads), threads


def launch_bytes(kernel: Kernel | LoopCode | NodeCode, target: Target) -> int:
    """Return the bytes of dynamic shared memory of a launch."""
    return bytes_at_launch(kernel, target) if isinstance(kernel, Kernel) else 0


def source_text(name: str, source: Kernel | LoopCode | NodeCode, target: Target) -> str:
    """Write a module with the entry of one kernel, loop, or graph node."""
    if isinstance(source, LoopCode):
        return module_text((), target, [source])
    if isinstance(source, NodeCode):
        module = llvm.Module(triple=target.triple, vector_bits=128, masks=False)
        lower_node(module, source)
        return module.text()
    return module_text([(name, source)], target)


def module_text(kernels: Iterable[tuple[str, Kernel]], target: Target, loops: Iterable[LoopCode] = ()) -> str:
    """Write a module with an entry for each kernel and each loop."""
    # LLVM aborts on masked vector operations for GPUs.
    module = llvm.Module(triple=target.triple, vector_bits=128, masks=False)
    for name, kernel in kernels:
        lower_into(module, kernel, target, name)
    for loop in loops:
        lower_loop(module, loop, target)
    return module.text()


def lower_into(module: llvm.Module, kernel: Kernel, target: Target, name: str) -> None:
    """Add a kernel to a module as an entry called `name`."""
    parameters = [llvm.Parameter(f"buffer{n}", llvm.ptr) for n in range(len(kernel.buffers))]
    function = module.function(name, llvm.void, parameters, linkage="ptx_kernel")
    group = choose_group(kernel, target)
    if group is not None and bytes_at_launch(kernel, target):
        function.attributes = f'"nvvm.maxntid"="{group.block}" '
    lowering: VectorLowering
    local: dict[Buffer, llvm.Value] = {}
    if group is None:
        if kernel.local:
            raise InternalError(f"The kernel {kernel.name} has local memory, so it needs a group of threads.")
        lowering, index = ThreadLowering(function, kernel, target), _thread(function, BLOCK)
    else:
        # A group of several warps is a block.
        member = function.urem(thread_of_block(function), constant(group.members, i32))
        lowering = GroupLowering(function, kernel, target, group, member)
        local = lowering.local
        index = function.udiv(_thread(function, group.block), constant(group.threads, i64))
    lowering.pointers = dict(zip(kernel.buffers, function.arguments, strict=True)) | local
    lowering.read_sizes()
    with function.when(function.icmp("slt", index, lowering.integer(kernel.count))):
        lowering.begin, lowering.end = index, function.add(index, constant(1, i64))
        lowering.block(kernel.body)
    function.ret()


def _thread(function: llvm.Function, block: int) -> llvm.Value:
    """Return the index of the thread in the grid, as i64: a grid may exceed an i32."""
    first = function.mul(function.zext(block_of_grid(function), i64), constant(block, i64))
    return function.add(first, function.zext(thread_of_block(function), i64))
