"""Kernel to LLVM for one thread of a GPU."""

from __future__ import annotations

from weft.compiler.target.cuda.lanes import SHORT, CudaLanes
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import Function, Value, i32, vector
from weft.compiler.target.vectors import VectorLowering


class ThreadLowering(VectorLowering):
    """Lowering of a kernel to one thread of a grid."""

    lanes_type = CudaLanes

    def broadcast(self, lane: Lane, width: int) -> Lane:
        """Broadcast a scalar to all lanes. 16-bit floats stay 16-bit, so that LLVM can use native instructions."""
        native = SHORT.get(lane.dtype.name)
        if native is None or lane.width == width:
            return super().broadcast(lane, width)
        (part,) = lane.parts
        short = self.f.splat(self.f.fptrunc(part, native), width)
        return lane.with_parts([self.f.fpext(short, vector(part.type, width))])


def thread_of_block(function: Function) -> Value:
    """Return the index of the thread in its block."""
    return _register(function, "tid")


def block_of_grid(function: Function) -> Value:
    """Return the index of the block in the grid."""
    return _register(function, "ctaid")


def _register(function: Function, name: str) -> Value:
    """Read a special register of the thread, along the first dimension of the grid."""
    value = function.call(f"llvm.nvvm.read.ptx.sreg.{name}.x", i32)
    assert value is not None
    return value
