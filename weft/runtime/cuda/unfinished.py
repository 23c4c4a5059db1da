"""Waits for collectives with other processes, and deletion of unfinished arrays when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft.base.errors import JaxRuntimeError, ProcessFailureError, ProgramMismatchError
from weft.runtime.array import ConcreteArray
from weft.runtime.cuda.memory import Block
from weft.runtime.held import INTERRUPTED, HeldArray, live_arrays
from weft.runtime.sharded import ShardedArray


class WaitsForOthers(Protocol):
    """GPU that may have pending collectives with other processes.

    `with_others` waits until a function returns True, and raises failures of the others. `epoch` is the number of its
    synchronizations.
    """

    with_others: Callable[[Callable[[], bool]], None] | None
    epoch: int

    def is_idle(self) -> bool: ...


def wait_for_others(gpu: WaitsForOthers) -> None:
    """Wait until all work of a GPU has ended, if it contains collectives with other processes.

    If these have failed, arrays that were being computed are deleted; others are intact.
    """
    waits = gpu.with_others
    if waits is None:
        return
    try:
        waits(gpu.is_idle)
    except (ProcessFailureError, ProgramMismatchError, JaxRuntimeError):
        delete_unfinished(gpu)
        gpu.with_others = None
        raise
    if gpu.with_others is waits:  # otherwise another thread has started more
        gpu.with_others = None
        gpu.epoch += 1


def delete_unfinished(gpu: Any) -> None:
    """Delete arrays whose memory was written since the last synchronization of a GPU: their elements are undefined."""
    for array in live_arrays():
        blocks = [block for block in _get_blocks(array) if block.owner.driver is gpu and block.epoch == gpu.epoch]
        if not blocks:
            continue
        for block in blocks:
            block.owner.forget_flags()
        if isinstance(array, ConcreteArray):
            array._memory, array._pointer, array._donated_at = None, 0, INTERRUPTED
        else:
            array._donate(INTERRUPTED)


def _get_blocks(array: HeldArray) -> list[Block]:
    """Return the blocks of an array whose only memory is on GPUs."""
    if isinstance(array, ShardedArray):
        memory = array._memory if isinstance(array._memory, list) else [p._memory for p in array._parts or ()]
    else:
        memory = [array._memory] if isinstance(array, ConcreteArray) and array._buffer is None else []
    return [block for block in memory if type(block) is Block]
