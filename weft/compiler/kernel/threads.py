"""Strip-mine a long loop over lanes so that threads run blocks of it.

for lanes k in n: y[k] = x[k]    ->    for threads b in n / B: for lanes k in B: y[B b + k] = x[B b + k]
"""

from __future__ import annotations

from dataclasses import replace

from weft.compiler.kernel.ir import If, Index, Kernel, Loop, LoopKind, Store, Variable
from weft.compiler.kernel.substitute import substitute

# Elements in a block: a few microseconds of simple work, and small enough to balance the load.
BLOCK = 8192


def split_for_threads(kernel: Kernel) -> Kernel:
    """Split the only loop of a kernel, if it is long and over lanes, into blocks for threads. Return other kernels
    unchanged.
    """
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    if len(loops) != 1 or any(isinstance(s, Store | If) for s in kernel.body):
        return kernel
    (loop,) = loops
    plain = (
        loop.kind is LoopKind.LANES and loop.start == 0 and loop.step == 1 and not loop.carries and loop.limit is None
    )
    if not plain or loop.stop < 2 * BLOCK:
        return kernel
    block = Variable("block")
    shift = Index.of(loop.variable) + block * BLOCK
    whole = isinstance(loop.stop, int) and loop.stop % BLOCK == 0
    limit = None if whole else Index(loop.stop) - block * BLOCK
    inner = replace(loop, stop=BLOCK, body=substitute(loop.body, loop.variable, shift), limit=limit)
    outer = Loop(block, 0, -(-loop.stop // BLOCK), (inner,), LoopKind.THREADS)
    return replace(kernel, body=tuple(outer if s is loop else s for s in kernel.body))
