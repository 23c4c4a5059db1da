"""Plans by the compiler of a machine that is not here: `weft.plan(f, *shapes, topology="v5e:2x4")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.api.communication import Communication
from weft.base.text import bytes_text
from weft.compiler.analysis import MemoryAnalysis
from weft.ir.jaxpr import Jaxpr
from weft.runtime.pjrt.executable import PjrtCompilation
from weft.runtime.pjrt.inside import memory_analysis
from weft.runtime.pjrt.topology import Topology
from weft.sharding import AbstractMesh, Mesh, NamedSharding

MOST_SHOWN = 6


@dataclass(frozen=True)
class TopologyPlan:
    """Result of compiling a function for the devices of a topology: the memory that one run takes on each, the size of
    the code, and the operations that the compiler counts. If the memory of a device does not suffice, there is the
    message of the compiler instead. Shardings are in the order of the leaves of arguments and results."""

    topology: str
    device_kind: str
    num_devices: int
    mesh: Mesh | AbstractMesh | None
    in_shardings: tuple[NamedSharding, ...] | None
    out_shardings: tuple[NamedSharding, ...] | None
    memory: MemoryAnalysis | None
    code_bytes: int
    costs: Mapping[str, float]
    out_of_memory: str
    communication: Communication
    text: str = field(repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def fits(self) -> bool:
        """True if the memory of a device suffices."""
        return not self.out_of_memory

    @property
    def peak_memory(self) -> int | None:
        """Bytes that a device needs at once; None if it does not have them."""
        return None if self.memory is None else self.memory.peak_memory_in_bytes

    @property
    def flops(self) -> float:
        """Operations of one run on one device, as the compiler counts them."""
        return self.costs.get("flops", 0.0)

    def __repr__(self) -> str:
        lines = [f"plan for {self.num_devices} of {self.topology} ({self.device_kind}), each in one run:"]
        if self.memory is None:
            return "\n".join([*lines, "  does not fit:", *(f"    {line}" for line in self.out_of_memory.splitlines())])
        memory = self.memory
        lines += [
            f"  memory   {bytes_text(memory.peak_memory_in_bytes)}: arguments "
            f"{bytes_text(memory.argument_size_in_bytes)}, results {bytes_text(memory.output_size_in_bytes)} "
            f"({bytes_text(memory.alias_size_in_bytes)} in place), temporaries {bytes_text(memory.temp_size_in_bytes)}",
            f"  code     {bytes_text(self.code_bytes)}",
            f"  computes {self.flops:.3g} flops, {bytes_text(self.costs.get('bytes accessed', 0.0))} read and written",
        ]
        sent = self.communication
        lines += [
            f"  sends    {bytes_text(row.total_bytes)} {row.kind} over {row.axis}, {row.line}: {row.reason}"
            for row in sorted(sent, key=lambda row: -row.total_bytes)[:MOST_SHOWN]
        ]
        return "\n".join(lines)


def compile_plan(
    jaxpr: Jaxpr,
    donated: tuple[bool, ...],
    topology: Topology,
    mesh: Mesh | AbstractMesh | None,
    shardings: tuple[Any, Any] = (None, None),
    communication: Communication | None = None,
) -> TopologyPlan:
    """Compile the jaxpr of one device, whose constants are arguments, for the devices of a mesh."""
    sizes: dict[Any, int] = {} if mesh is None else dict(mesh.shape)
    count = 1 if mesh is None else mesh.size
    topology.choose_devices(count)
    compilation = PjrtCompilation(jaxpr, donated, topology.platform, sizes or {"device": 1})
    found = topology.compile(compilation.text, f"`{compilation.name}`", count)
    fits = not isinstance(found, str)
    return TopologyPlan(
        topology.name,
        topology.device_kind,
        count,
        mesh,
        *shardings,
        memory_analysis(found) if not isinstance(found, str) else None,
        found.code_bytes if not isinstance(found, str) else 0,
        found.costs() if not isinstance(found, str) else {},
        "" if fits else str(found),
        communication or Communication(()),
        compilation.text,
        dict(compilation.seconds),
    )
