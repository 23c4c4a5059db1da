"""Machines as plans see them: how fast one device computes, reads its memory, and sends along each axis of a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.base.arguments import described
from weft.base.errors import ArgumentError
from weft.compiler.target.costs import KernelCosts
from weft.runtime.backend import backend_of
from weft.runtime.cpu.limits import limits
from weft.runtime.device import CPU


@dataclass(frozen=True)
class Link:
    """What connects the devices along an axis of a mesh: bytes a second that one device sends, and seconds that a
    collective takes at least."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machine:
    """A device and its links: flops and bytes of memory a second, bytes of memory, the link along most axes and those
    along some by name. `kernels` is there if plans are compiled for this very machine: then steps take as long as their
    kernels, and not only as long as their flops or bytes do at best."""

    name: str
    flops: float
    memory_bandwidth: float
    memory: float
    link: Link
    links: Mapping[Any, Link] = field(default_factory=dict)
    kernels: KernelCosts | None = None

    def along(self, axis: Any) -> Link:
        """The link along an axis; of several the slowest."""
        if isinstance(axis, tuple):
            return min((self.along(a) for a in axis), key=lambda link: link.bandwidth)
        return self.links.get(axis, self.link)

    def with_links(self, **links: Link) -> Machine:
        """The same machine with other links along some axes."""
        return replace(self, links={**self.links, **links})


# Dense matrix units in bfloat16; what vendors say, of which programs reach about half.
MACHINES = {
    "h100": Machine("h100", 990e12, 3.35e12, 80e9, Link(450e9, 5e-6)),
    "h200": Machine("h200", 990e12, 4.8e12, 141e9, Link(450e9, 5e-6)),
    "tpu_v5p": Machine("tpu_v5p", 459e12, 2.76e12, 95e9, Link(200e9, 2e-6)),
}


def machine_of(machine: Any) -> Machine:
    """A machine by its name; `cpu` is this one, as it is measured, of which each device is a thread."""
    if isinstance(machine, Machine):
        return machine
    if machine == "cpu":
        found = limits()
        # All devices share the memory, so that is what sending is.
        return Machine(
            "cpu",
            found.flops / found.threads,
            found.memory / found.threads,
            8e9,
            Link(found.memory, 2e-6),
            kernels=backend_of(CPU).target(CPU).kernel,
        )
    if machine not in MACHINES:
        raise ArgumentError(
            "There is no description of such a machine.",
            received=described(machine),
            fix=f"one of 'cpu', {', '.join(map(repr, MACHINES))}, or weft.plan.Machine(...)",
        )
    return MACHINES[machine]
