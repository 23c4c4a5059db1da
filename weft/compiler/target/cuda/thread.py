"""Kernel to LLVM for one thread of a GPU."""

from __future__ import annotations

from weft.compiler.target.cuda.lanes import SHORT, CudaLanes
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import vector
from weft.compiler.target.vectors import VectorLowering


class ThreadLowering(VectorLowering):
    """Writes one thread of a grid."""

    lanes_type = CudaLanes

    def broadcast(self, lane: Lane, width: int) -> Lane:
        """A scalar in all lanes. Short floats stay short, so that LLVM sees that their sums and products are."""
        native = SHORT.get(lane.dtype.name)
        if native is None or lane.width == width:
            return super().broadcast(lane, width)
        (part,) = lane.parts
        short = self.f.splat(self.f.fptrunc(part, native), width)
        return lane.with_parts([self.f.fpext(short, vector(part.type, width))])
