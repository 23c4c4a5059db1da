"""Training steps over links on which every message takes a while, with collectives under way while devices compute and
without. The first process writes seconds and losses to the file that is the first argument, and how often a message was
not followed by another before it had ended: where collectives overlap the first message of a step ends only then."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from weft.runtime.processes import world
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, Request, Transport
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

PATIENCE = 20.0  # seconds, after which no other message will come


class SlowRequest(NothingBorrowed):
    """Messages that have ended after a while, whatever the processor does; one that is `held` when another has been
    started."""

    def __init__(self, beneath: Request) -> None:
        self.beneath, self.end = beneath, time.monotonic() + SlowLinks.delay
        SlowLinks.started += 1
        self.index, self.held = SlowLinks.started, SlowLinks.hold
        SlowLinks.hold = False

    def test(self) -> bool:
        if not self.beneath.test() or time.monotonic() < self.end:
            return False
        if self.held and self.index == SlowLinks.started:
            if time.monotonic() < self.end + PATIENCE:
                return False
            SlowLinks.alone += 1
        self.held = False
        return True


class SlowLinks(Messages):
    """Transport whose messages take a while."""

    delay = 0.03
    started, alone, hold = 0, 0, False

    def __init__(self, beneath: Transport) -> None:
        self.beneath, self.name = beneath, f"slow {beneath.name}"
        self.rank, self.size, self.tags, self.close = beneath.rank, beneath.size, beneath.tags, beneath.close

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        return SlowRequest(self.beneath.start(sends, receives))


weft.distributed.initialize()
world.enter(world.World(SlowLinks(world.current().transport), world.current().control))
mesh = weft.make_mesh((weft.device_count(),), ("d",), (AxisType.Auto,))
PARAMS = [onp.full((512, 512), 0.01 * (i + 1), onp.float32) for i in range(4)]
BATCH = onp.linspace(-1, 1, 512 * 512, dtype=onp.float32).reshape(512, 512)


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for w in params:
            h = np.tanh(h @ w)
        return np.mean(h**2)

    value, gradients = weft.value_and_grad(loss)(params)
    return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], value


results: dict[str, Any] = {}
for name, spec in (("dp", P()), ("fsdp", P("d"))):
    for overlap_bytes in (0, 1 << 26):
        weft.config.overlap_bytes = overlap_bytes
        function = weft.jit(lambda params, x: step(params, x))
        params = weft.device_put(PARAMS, NamedSharding(mesh, spec))
        x = weft.device_put(BATCH, NamedSharding(mesh, P("d")))
        losses, seconds = [], []
        SlowLinks.alone = 0
        for i in range(6):
            SlowLinks.hold = overlap_bytes > 0 and i == 1
            start = time.monotonic()
            params, value = weft.block_until_ready(function(params, x))
            seconds.append(time.monotonic() - start)
            losses.append(onp.asarray(value).tobytes().hex())
        results[f"{name} {'overlapped' if overlap_bytes else 'one after the other'}"] = (
            min(seconds[2:]),
            losses,
            SlowLinks.alone,
        )
if weft.process_index() == 0:
    pathlib.Path(sys.argv[1]).write_text(json.dumps(results))
# The first process has ended while the last messages of the others are still under way.
SlowLinks.delay = 1.0 if weft.process_index() else 0.0
weft.block_until_ready(function(params, x))
