"""What is built on a transport, over a stand-in for NCCL with a thread for each process: bytes of all processes, and
collectives in parts, which have the bits of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.laws.samples import CASES, Case
from tests.processes.nccl_standin import Nccl, NcclTransport, Network
from weft.primitives.collectives import Collective
from weft.runtime.processes.parts import process_parts
from weft.runtime.processes.transport import Message
from weft.runtime.processes.world import World
from weft.trace.closed import stage_closed


def on_ranks(size: int, function: Callable[[World, Nccl], Any]) -> list[Any]:
    """What a function returns for each of so many ranks, which run at the same time."""
    network = Network(size)
    ranks = [Nccl(network, rank) for rank in range(size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        results[rank] = function(World(NcclTransport(ranks[rank])), ranks[rank])

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), [nccl.calls for nccl in ranks]
    return results


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_bytes_of_unequal_size_of_all_processes(size: int) -> None:
    data = [b"x" * (7 * rank) + bytes([rank]) * (rank % 3) for rank in range(size)]
    assert on_ranks(size, lambda world, _: world.all_gather(data[world.rank])) == [data] * size


def test_bytes_of_some_processes() -> None:
    gather = lambda world, _: world.all_gather(bytes([world.rank]), [3, 1]) if world.rank in (1, 3) else None
    assert on_ranks(4, gather) == [None, [b"\3", b"\1"], None, [b"\3", b"\1"]]


def has_one_operand_along_one_axis(case: Case) -> bool:
    sizes = list(case.environment.values())
    return isinstance(case.primitive, Collective) and len(sizes) == 1 and sizes[0] > 1 and len(case.operands) == 1


@pytest.mark.parametrize("case", [c for c in CASES if has_one_operand_along_one_axis(c)], ids=str)
def test_parts_of_a_collective_have_the_bits_of_the_whole(case: Case) -> None:
    card: Any = case.primitive
    (members,) = case.environment.values()
    (operands,) = case.arrays

    def group(*args: Any) -> list[Any]:
        return [x for result in card.group_results([args], **case.params) for x in result]

    jaxpr = stage_closed(group, case.types * members, name=card.name)
    expected = [np.asarray(x) for x in weft.evaluate(jaxpr, *operands)]
    owners: Sequence[int]
    for owners in ([0] * (members // 2) + [1] * (members - members // 2), [m % 2 for m in range(members)]):

        def part(world: World, nccl: Nccl, owners: Sequence[int] = owners) -> tuple[list[np.ndarray], int]:
            parts = process_parts(jaxpr, owners, owners, world.rank)
            own = [operands[m] for m, owner in enumerate(owners) if owner == world.rank]
            first = [] if parts.first is None else [np.asarray(x) for x in weft.evaluate(parts.first, *own)]
            as_bytes = lambda x: np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
            sends = [
                Message(peer, 0, as_bytes(own[source.index] if source.is_operand else first[source.index]))
                for peer, source in parts.sends
            ]
            received = [np.empty(t.shape, t.dtype) for _, t in parts.receives]
            buffers = [np.empty(x.nbytes, np.uint8) for x in received]
            pairs = zip(parts.receives, buffers, strict=True)
            request = world.transport.start(sends, [Message(peer, 0, buffer) for (peer, _), buffer in pairs])
            world.wait(request, [1 - world.rank], card.name)
            values = [b.view(x.dtype).reshape(x.shape) for b, x in zip(buffers, received, strict=True)]
            results = weft.evaluate(parts.second, *own, *first, *values)
            return [np.asarray(x) for x in results], sum(call[1] for call in nccl.calls if call[0] == "ncclSend")

        found = on_ranks(len(set(owners)), part)
        each = [iter(results) for results, _ in found]
        for owner, value in zip(owners, expected, strict=True):
            np.testing.assert_array_equal(next(each[owner]), value)
        alone = case.params.get("axis_index_groups") is None and list(owners) == sorted(owners)
        if card.name in ("psum", "pmax", "pmin") and alone and operands.itemsize >= 4:
            # The partial result of each process, where its members are a subtree; narrow types have it in a wider one.
            assert [sent for _, sent in found] == [operands[0].nbytes] * 2
