"""Arrays between shardings across processes: the right parts, and not a byte more than is lacking."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.processes.recording import RecordingTransport
from tests.processes.test_transport import TRANSPORTS, on_ranks
from weft.runtime.processes.moving import Box, exchange_boxes, pieces, slice_box
from weft.runtime.processes.world import World
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P
from weft.sharding.device import Device

# Eight devices in four processes, in this order and in another one.
DEVICES = [Device(i, "cpu", i // 2) for i in range(8)]
MESHES = [
    Mesh(np.array(devices, object).reshape(2, 2, 2), ("x", "y", "z"))
    for devices in (DEVICES, [DEVICES[i] for i in (5, 0, 3, 6, 1, 4, 7, 2)])
]
SHAPE = (8, 4)
SPECS = [P(), P("x"), P(None, "z"), P(("x", "y", "z")), P("z", "x"), P(("y", "x"), "z"), P("y", ("x", "z")), P("z")]
SHARDINGS = [NamedSharding(mesh, spec) for mesh in MESHES for spec in SPECS]
VALUE = np.arange(32, dtype=np.float32).reshape(SHAPE)


def boxes(sharding: NamedSharding) -> dict[Device, Box]:
    return {d: slice_box(index, SHAPE) for d, index in sharding.devices_indices_map(SHAPE).items()}


def owners(sharding: NamedSharding) -> dict[Box, list[int]]:
    found: dict[Box, list[int]] = {}
    for device, box in boxes(sharding).items():
        found.setdefault(box, [])
        if device.process_index not in found[box]:
            found[box].append(device.process_index)
    return found


def wanted(sharding: NamedSharding) -> dict[int, list[Box]]:
    found: dict[int, list[Box]] = {}
    for device, box in boxes(sharding).items():
        found.setdefault(device.process_index, []).append(box)
    return found


def cut(box: Box) -> np.ndarray:
    return VALUE[tuple(slice(*ends) for ends in box)]


def test_pieces_are_what_a_process_lacks() -> None:
    for source, target in itertools.product(SHARDINGS, SHARDINGS):
        for rank in range(4):
            has, wants = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
            for shown, of in ((has, source), (wants, target)):
                for box in wanted(of)[rank]:
                    shown[tuple(slice(*ends) for ends in box)] = True
            received = [p for p in pieces(owners(source), wanted(target)[rank], rank) if p.sender != rank]
            counts = np.zeros(SHAPE, int)
            for piece in received:
                counts[tuple(slice(*ends) for ends in piece.box)] += 1
            assert (counts == (wants & ~has)).all()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_moved_parts_are_right(transport: str) -> None:
    random = np.random.RandomState(0)
    pairs = [(SHARDINGS[i], SHARDINGS[j]) for i, j in random.randint(0, len(SHARDINGS), (40, 2))]

    def part(world: World, here: RecordingTransport) -> bool:
        for source, target in pairs:
            parts = {box: cut(box) for box in wanted(source)[world.rank]}
            results = exchange_boxes(parts, owners(source), wanted(target), np.float32, "a test", world=world)
            for box, value in zip(wanted(target)[world.rank], results, strict=True):
                np.testing.assert_array_equal(value, cut(box))
        return True

    assert on_ranks(4, part, transport) == [True] * 4
