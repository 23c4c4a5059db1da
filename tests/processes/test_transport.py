"""Operations built on a transport, with a thread for each process: bytes of all processes, and collectives in parts,
which have the bits of one process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.laws.samples import CASES, Case
from tests.processes.recording import Network, RecordingTransport
from weft.errors import ProgramMismatchError
from weft.primitives.collectives import Collective
from weft.runtime.cpu import memory
from weft.runtime.cpu.exchange import group_jaxpr
from weft.runtime.processes.order import get_order
from weft.runtime.processes.parts import ProcessParts, process_parts
from weft.runtime.processes.pieces import stage_piece_gather, stage_piece_reduction
from weft.runtime.processes.transport import SMALL, Message, TransportError
from weft.runtime.processes.window import ENTRIES, with_windows
from weft.runtime.processes.world import World
from weft.trace.closed import stage_subjaxpr

TRANSPORTS = ["messages", pytest.param("windows", marks=pytest.mark.skipif(sys.platform != "linux", reason="memfd"))]


def on_ranks(size: int, function: Callable[[World, RecordingTransport], Any], transport: str = "messages") -> list[Any]:
    """Return the results of a function for each of some ranks, which run at the same time."""
    network = Network(size)
    ranks = [RecordingTransport(network, rank) for rank in range(size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        world = World(ranks[rank])
        if transport == "windows":
            world = World(with_windows(world.transport, world.all_gather))
            assert world.transport.near == frozenset(range(size)) - {rank}
        results[rank] = function(world, ranks[rank])

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), [transport.sent for transport in ranks]
    return results


def exchanged(
    world: World, sends: Sequence[tuple[int, np.ndarray]], receives: Sequence[tuple[int, np.ndarray]]
) -> list[np.ndarray]:
    """Return what processes exchange: local arrays are borrowed, others are received into arrays of the same types."""
    near = world.transport.near
    sends = [(peer, np.ascontiguousarray(x)) for peer, x in sends if x.nbytes]
    out = [Message(peer, 0, x.ctypes.data, x.nbytes) for peer, x in sends]
    borrows = lambda peer, x: peer in near and x.nbytes > SMALL
    into = [Message(peer, 0, None if borrows(peer, x) else x.ctypes.data, x.nbytes) for peer, x in receives if x.nbytes]
    request = world.transport.start(out, into)
    world.wait(request, [], "a test")
    borrowed = iter(request.borrowed_addresses())
    found = [memory.view(next(borrowed), x.shape, x.dtype).copy() if borrows(peer, x) else x for peer, x in receives]
    request.release()
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_bytes_of_unequal_size_of_all_processes(size: int, transport: str) -> None:
    data = [b"x" * (7 * rank) + bytes([rank]) * (rank % 3) for rank in range(size)]
    assert on_ranks(size, lambda world, _: world.all_gather(data[world.rank]), transport) == [data] * size


def test_bytes_of_some_processes() -> None:
    gather = lambda world, _: world.all_gather(bytes([world.rank]), [3, 1]) if world.rank in (1, 3) else None
    assert on_ranks(4, gather) == [None, [b"\3", b"\1"], None, [b"\3", b"\1"]]


def in_parts(world: World, parts: ProcessParts, own: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the part of a collective that a process computes from the operands of its members."""
    first = [] if parts.first is None else [np.asarray(x) for x in weft.evaluate(parts.first, *own)]
    sends = [(peer, own[source.index] if source.is_operand else first[source.index]) for peer, source in parts.sends]
    receives = [(peer, np.empty(t.shape, t.dtype)) for peer, t in parts.receives]
    return [np.asarray(x) for x in weft.evaluate(parts.second, *own, *first, *exchanged(world, sends, receives))]


def has_one_operand_along_one_axis(case: Case) -> bool:
    sizes = list(case.environment.values())
    return isinstance(case.primitive, Collective) and len(sizes) == 1 and sizes[0] > 1 and len(case.operands) == 1


@pytest.mark.parametrize("case", [c for c in CASES if has_one_operand_along_one_axis(c)], ids=str)
def test_parts_of_a_collective_have_the_bits_of_the_whole(case: Case) -> None:
    primitive: Any = case.primitive
    (members,) = case.environment.values()
    (operands,) = case.arrays

    def group(*args: Any) -> list[Any]:
        return [x for result in primitive.group_results([args], **case.params) for x in result]

    jaxpr = stage_subjaxpr(group, case.types * members, name=primitive.name)
    expected = [np.asarray(x) for x in weft.evaluate(jaxpr, *operands)]
    owners: Sequence[int]
    for owners in ([0] * (members // 2) + [1] * (members - members // 2), [m % 2 for m in range(members)]):

        def part(
            world: World, here: RecordingTransport, owners: Sequence[int] = owners
        ) -> tuple[list[np.ndarray], int]:
            own = [operands[m] for m, owner in enumerate(owners) if owner == world.rank]
            results = in_parts(world, process_parts(jaxpr, owners, owners, world.rank), own)
            return results, sum(nbytes for nbytes, _ in here.sent)

        found = on_ranks(len(set(owners)), part)
        each = [iter(results) for results, _ in found]
        for owner, value in zip(owners, expected, strict=True):
            np.testing.assert_array_equal(next(each[owner]), value)
        alone = case.params.get("axis_index_groups") is None and list(owners) == sorted(owners)
        if primitive.name in ("psum", "pmax", "pmin") and alone and operands.itemsize >= 4:
            # The partial result of each process, where its members are a subtree; narrow types have it in a wider one.
            assert [sent for _, sent in found] == [operands[0].nbytes] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", ["psum", "pmax"])
def test_reductions_in_pieces_have_the_bits_of_the_whole(name: str, dtype: str, transport: str) -> None:
    members, size = 6, 3
    owners = [0, 0, 1, 1, 2, 2]
    operands = (np.random.RandomState(0).randn(members, 5, 7) * 20).astype(weft.numpy.dtype(dtype))
    reduction = weft.make_jaxpr(lambda x: getattr(weft.lax, name)(x, "i"), axis_env=[("i", members)])(operands[0])
    (equation,) = reduction.eqns
    (whole,) = {np.asarray(x).tobytes() for x in weft.evaluate(group_jaxpr(equation, members), *operands)}

    def part(world: World, here: RecordingTransport) -> tuple[list[bytes], int]:
        ranks, aval = list(range(size)), equation.outvars[0].aval
        own = [x for x, owner in zip(operands, owners, strict=True) if owner == world.rank]
        reduced = process_parts(stage_piece_reduction(equation, members, size), owners, ranks, world.rank)
        gathered = process_parts(stage_piece_gather(aval, members, size), ranks, owners, world.rank)
        results = in_parts(world, gathered, in_parts(world, reduced, own))
        return [x.tobytes() for x in results], sum(nbytes for nbytes, _ in here.sent)

    found = on_ranks(size, part, transport)
    assert all(results == [whole] * 2 for results, _ in found)
    if transport == "messages" and dtype == "float32":
        # Two thirds of a partial result of its own members, and twice its piece; all at once would be twice a result.
        assert all(sent <= 4 * len(whole) / 3 + 16 for _, sent in found)


def test_a_window_is_used_again_when_it_has_been_read() -> None:
    """One process sends more than a ring has entries, and the other reads later; then memory does not grow."""
    count = 3 * ENTRIES

    def part(world: World, here: RecordingTransport) -> Any:
        transport: Any = world.transport
        data = np.arange(5000)
        for i in range(count):
            if world.rank == 0:
                world.wait(transport.start([Message(1, 0, data.ctypes.data, data.nbytes)], []), [1], "sends")
                data = data + 1
            else:
                (found,) = exchanged(world, [], [(0, data)])
                assert (found == np.arange(5000) + i).all()
        world.all_gather(b"")  # its answer may be unread
        if world.rank == 0:
            transport._own.reclaim()
            return transport._own.unread_bytes, len(transport.take(10)._segment._free[49152])
        return None

    (unread, free), _ = on_ranks(2, part, "windows")
    assert unread <= 2 * 4096 and 1 <= free <= count


def test_a_message_of_another_size_is_an_error() -> None:
    def part(world: World, here: RecordingTransport) -> Any:
        if world.rank == 0:
            return exchanged(world, [(1, np.ones(3))], [])
        with pytest.raises(ProgramMismatchError, match="process 0 sent 24 bytes where 32 were expected"):
            exchanged(world, [], [(0, np.ones(4))])

    on_ranks(2, part, "windows")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("differs", [False, True])
def test_the_order_of_what_was_started_is_compared(differs: bool, transport: str) -> None:
    """Of three processes one may have started two programs in another order: it and the next one find out."""
    names = ["a", "b", "c", "d"]

    def part(world: World, here: RecordingTransport) -> bool:
        order = get_order(world, (0, 1, 2))
        assert order is get_order(world, (0, 1, 2))
        for name in ["a", "c", "b", "d"] if differs and world.rank == 1 else names:
            order.tell(world.record((0, 1, 2), name, name, None))
        try:
            while not order.is_compared():
                time.sleep(0.001)
        except TransportError as error:
            assert f"process {(world.rank - 1) % 3} has started other programs" in str(error)
            here.finish()  # others look at more of it
            return False
        return True

    assert on_ranks(3, part, transport) == [True, not differs, not differs]
