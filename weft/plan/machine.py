"""Machines as plans see them: how fast one device computes, reads its memory, and sends along each axis of a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.base.arguments import described
from weft.base.errors import ArgumentError
from weft.compiler.target.costs import KernelCosts
from weft.runtime.cpu.limits import limits
from weft.runtime.device import CPU
from weft.runtime.execution_backend import execution_backend


@dataclass(frozen=True)
class Link:
    """Link between the devices along an axis of a mesh: bytes per second that one device sends, and the least seconds
    of a collective."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machine:
    """Device and its links: flops and bytes of memory per second, bytes of memory, the default link, and links along
    some axes by name. `kernels` is set if plans are compiled for this machine: then steps take the time of their
    kernels, not the optimum for their flops or bytes."""

    name: str
    flops: float
    memory_bandwidth: float
    memory: float
    link: Link
    links: Mapping[Any, Link] = field(default_factory=dict)
    kernels: KernelCosts | None = None

    def along(self, axis: Any) -> Link:
        """Return the link along an axis, the slowest of several axes."""
        if isinstance(axis, tuple):
            return min((self.along(a) for a in axis), key=lambda link: link.bandwidth)
        return self.links.get(axis, self.link)

    def with_links(self, **links: Link) -> Machine:
        """Return a copy with other links along some axes."""
        return replace(self, links={**self.links, **links})


# Dense matrix units in bfloat16, by the vendors' figures; programs reach about half.
MACHINES = {
    "h100": Machine("h100", 990e12, 3.35e12, 80e9, Link(450e9, 5e-6)),
    "h200": Machine("h200", 990e12, 4.8e12, 141e9, Link(450e9, 5e-6)),
    "tpu_v5p": Machine("tpu_v5p", 459e12, 2.76e12, 95e9, Link(200e9, 2e-6)),
}


def get_machine(machine: Any) -> Machine:
    """Return a machine by its name. `cpu` is this machine with its measured limits, each thread a device."""
    if isinstance(machine, Machine):
        return machine
    if machine == "cpu":
        found = limits()
        # All devices share the memory, so sending takes the time of reading memory.
        return Machine(
            "cpu",
            found.flops / found.threads,
            found.memory / found.threads,
            8e9,
            Link(found.memory, 2e-6),
            kernels=execution_backend(CPU).target(CPU).kernel,
        )
    if machine not in MACHINES:
        raise ArgumentError(
            "The machine is unknown.",
            received=described(machine),
            fix=f"one of 'cpu', {', '.join(map(repr, MACHINES))}, or weft.plan.Machine(...)",
        )
    return MACHINES[machine]
