"""Work of a GPU that other processes have a part in, and what becomes of arrays that were being computed when that
failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft.base.errors import JaxRuntimeError, ProcessFailureError, ProgramMismatchError
from weft.runtime.array import ConcreteArray
from weft.runtime.cuda.memory import Block
from weft.runtime.held import INTERRUPTED, HeldArray, live_arrays
from weft.runtime.sharded import ShardedArray


class WaitsForOthers(Protocol):
    """A GPU that may have collectives with other processes under way: `with_others` waits until a function says that
    something has ended, and raises what has happened to the others. `epoch` is how often all its work was known to have
    ended."""

    with_others: Callable[[Callable[[], bool]], None] | None
    epoch: int

    def is_idle(self) -> bool: ...


def wait_for_others(gpu: WaitsForOthers) -> None:
    """Wait until all work of a GPU has ended, if there are collectives with other processes among it. When these have
    failed, arrays that were being computed have no elements; others are as they were."""
    waits = gpu.with_others
    if waits is None:
        return
    try:
        waits(gpu.is_idle)
    except (ProcessFailureError, ProgramMismatchError, JaxRuntimeError):
        delete_unfinished(gpu)
        gpu.with_others = None
        raise
    if gpu.with_others is waits:  # else another thread has started more
        gpu.with_others = None
        gpu.epoch += 1


def delete_unfinished(gpu: Any) -> None:
    """Delete arrays whose memory was taken since a GPU was known to be idle: they may have any elements."""
    for array in live_arrays():
        blocks = [block for block in _blocks_of(array) if block.owner.driver is gpu and block.epoch == gpu.epoch]
        if not blocks:
            continue
        for block in blocks:
            block.owner.forget_flags()
        if isinstance(array, ConcreteArray):
            array._memory, array._pointer, array._donated_at = None, 0, INTERRUPTED
        else:
            array._donate(INTERRUPTED)


def _blocks_of(array: HeldArray) -> list[Block]:
    """The memory of an array that is nothing but on GPUs."""
    if isinstance(array, ShardedArray):
        memory = array._memory if isinstance(array._memory, list) else [p._memory for p in array._parts or ()]
    else:
        memory = [array._memory] if isinstance(array, ConcreteArray) and array._buffer is None else []
    return [block for block in memory if type(block) is Block]
