"""Communicators of groups of GPUs, also of other processes; waits for their collectives notice failures, as those for
messages do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import JaxRuntimeError
from weft.runtime.cuda.libraries.nccl import Nccl
from weft.runtime.cuda.memory import Gpu
from weft.runtime.cuda.unfinished import wait_for_others
from weft.runtime.processes import world
from weft.runtime.processes.order import Order
from weft.runtime.processes.transport import NothingBorrowed, TransportError
from weft.sharding.device import Device, is_addressable

nccl = functools.cache(Nccl)
# Polls of a GPU between two checks of NCCL for errors.
LOOKS = 256


class Communicator:
    """Communicator of a group of GPUs: the handles of this process by rank, and the other processes."""

    def __init__(self, library: Nccl, handles: dict[int, Any], peers: Sequence[int]) -> None:
        self._library, self.handles, self.peers = library, handles, tuple(peers)
        self._own = [*handles.values()]

    def start_calls(self, doing: Callable[[], str], calls: Sequence[tuple[Any, ...]]) -> None:
        """Start calls together, and wait until they are in the streams of their GPUs. `doing` names them in
        messages.
        """
        try:
            self._library.start_calls(calls, self._own)
        except TransportError as error:
            if not self.peers:
                raise JaxRuntimeError(f"GPUs of this process cannot do {doing()}: {error}.", fix=error.fix) from None
            world.current().raise_lost(error, doing())
        if self.peers:
            self.wait_until_started(doing)

    def wait_until_started(self, doing: str | Callable[[], str]) -> None:
        """Wait until all calls are in the streams of their GPUs."""
        world.current().wait(_Started(self._library, self._own), self.peers, doing)

    def is_under_way(self, gpu: Gpu, doing: Callable[[], str], order: Order) -> None:
        """Make waits for a GPU notice failures of the other processes, whose order is compared."""
        gpu.with_others = functools.partial(self._wait, doing, order)

    def _wait(self, doing: Callable[[], str], order: Order, has_ended: Callable[[], bool]) -> None:
        """Wait until `has_ended` returns True."""
        request = _UnderWay(self._library, self._own, has_ended, order)
        world.current().wait(request, self.peers, doing, started=True)


class _Started(NothingBorrowed):
    """Request that ends when all calls are in the streams of their GPUs."""

    def __init__(self, library: Nccl, handles: Sequence[Any]) -> None:
        self._library, self._handles = library, handles

    def test(self) -> bool:
        return self._library.has_started(self._handles)


class _UnderWay(_Started):
    """Request that ends when work with collectives has ended, and all processes are known to have started the same."""

    def __init__(self, library: Nccl, handles: Sequence[Any], has_ended: Callable[[], bool], order: Order) -> None:
        super().__init__(library, handles)
        self._has_ended, self._order, self._looks = has_ended, order, 0

    def test(self) -> bool:
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._library.has_started(self._handles)  # raises if there is an error
        if not self._has_ended():
            return False
        self._library.check(self._handles)  # aborted work has ended too
        return self._order.is_compared()


_communicators: dict[tuple[Device, ...], Communicator] = {}


def get_communicator(devices: tuple[Device, ...], gpus: dict[Device, Gpu]) -> Communicator:
    """Return the communicator of a group of GPUs, created once by all its processes together, in one order.

    `gpus` has those of this process.
    """
    found = _communicators.get(devices)
    if found is None:
        found = _communicators[devices] = _new_communicator(nccl(), devices, gpus)
    return found


def get_peers(devices: Sequence[Device]) -> list[int]:
    """Return the other processes that have some of these GPUs."""
    return sorted({d.process_index for d in devices if not is_addressable(d)})


def _new_communicator(library: Nccl, devices: tuple[Device, ...], gpus: dict[Device, Gpu]) -> Communicator:
    here = world.current()
    processes = sorted({d.process_index for d in devices})
    peers = get_peers(devices)
    members = [(rank, gpus[d]) for rank, d in enumerate(devices) if is_addressable(d)]
    doing = f"the communicator of GPUs {[d.id for d in devices]}"
    try:
        # The process of the first member creates the id and sends it to the others.
        makes = devices[0].process_index == here.rank
        unique_id = library.unique_id() if makes else b""
        if peers:
            told = here.all_gather(unique_id, processes, doing)
            unique_id = told[processes.index(devices[0].process_index)]
            if here.control is not None:
                here.control.call_on_failure(library.abort)
            # Other processes read the memory of its GPUs until then.
            here.ends += [functools.partial(wait_for_others, gpu) for _, gpu in members]
        handles = library.connect(unique_id, len(devices), members, blocks=not peers)
    except TransportError as error:
        if not peers:
            raise JaxRuntimeError(f"GPUs of this process cannot create {doing}: {error}.", fix=error.fix) from None
        here.raise_lost(error, doing)
    found = Communicator(library, dict(zip([rank for rank, _ in members], handles, strict=True)), peers)
    if peers:
        found.wait_until_started(doing)
    return found
