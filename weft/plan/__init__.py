"""`weft.plan(f, *shapes, mesh=...)`: what a function takes on a mesh of any size, without a device or an allocation.

The function is staged, partitioned and compiled as far as steps and memory, as `jit` would; what comes of it does not
depend on how many devices there are, but for sizes. Memory is what the compiler plans, bytes those of the collectives,
and time follows from a description of the machine.
"""

from __future__ import annotations

import math
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from weft.api.communication import Communication
from weft.api.jit import jit
from weft.base import tree
from weft.base.arguments import described
from weft.base.compile_options import get_compile_options
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.lazy import lazy
from weft.base.publish import suggest as _suggest
from weft.base.settings import config
from weft.base.text import bytes_text
from weft.compiler.analysis import MemoryAnalysis, memory_analysis
from weft.compiler.compile import compile_program
from weft.compiler.fuse.cost import equation_cost
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr, partition
from weft.compiler.program.ir import Kind, Program
from weft.compiler.program.overlap import overlap_collectives
from weft.ir.jaxpr import Equation, Jaxpr, constants_to_arguments, subjaxprs
from weft.ir.types import ArrayType
from weft.plan.machine import MACHINES, Link, Machine, get_machine
from weft.plan.simulate import Simulation
from weft.plan.times import equation_seconds, get_step_timer
from weft.runtime.device import CPU
from weft.runtime.execution_backend import execution_backend
from weft.runtime.memory_backend import memory_backend
from weft.runtime.spmd import find_stored_arguments
from weft.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from weft.sharding.spec import spec_dims

if TYPE_CHECKING:
    from weft.plan import topology as topology_plans
    from weft.plan.topology import TopologyPlan
    from weft.runtime.pjrt import topology as topologies
else:
    topology_plans = lazy("weft.plan.topology")
    topologies = lazy("weft.runtime.pjrt.topology")

__all__ = ["MACHINES", "Link", "Machine", "Plan", "plan"]

MOST_SHOWN = 6


@dataclass(frozen=True)
class Plan:
    """Cost of one run of a function on one device of a mesh: memory, computation, bytes read and sent, and the time on
    a machine. Shardings are in the order of the leaves of arguments and results."""

    mesh: Mesh | AbstractMesh
    machine: Machine
    in_shardings: tuple[NamedSharding, ...]
    out_shardings: tuple[NamedSharding, ...]
    names: tuple[str, ...]
    jaxpr: Jaxpr
    memory: MemoryAnalysis
    largest: tuple[tuple[int, str], ...]
    communication: Communication
    flops: float
    bytes_accessed: float
    compute_seconds: float
    communication_seconds: float
    # With collectives overlapping computation, as between processes.
    overlapped_seconds: float
    planning_seconds: float = field(default=0.0, compare=False)

    @property
    def seconds(self) -> float:
        """Time of one run; devices compute, then send, then compute."""
        return self.compute_seconds + self.communication_seconds

    @property
    def peak_memory(self) -> int:
        """Bytes that a device needs at once."""
        return self.memory.peak_memory_in_bytes

    @property
    def fits(self) -> bool:
        """True if the memory of a device suffices."""
        return self.peak_memory <= self.machine.memory

    def __repr__(self) -> str:
        axes = " x ".join(f"{n} {s}" for n, s in self.mesh.shape.items())
        memory, sent = self.memory, self.communication
        by_kind = ", ".join(f"{kind} {bytes_text(size)}" for kind, size in sent.by_kind().items())
        lines = [
            f"plan for {self.mesh.size} devices ({axes}) of {self.machine.name}, each in one run:",
            f"  memory   {bytes_text(self.peak_memory)} of {bytes_text(self.machine.memory)}: arguments "
            f"{bytes_text(memory.argument_size_in_bytes)}, results {bytes_text(memory.output_size_in_bytes)} "
            f"({bytes_text(memory.alias_size_in_bytes)} in place), temporaries {bytes_text(memory.temp_size_in_bytes)}",
            f"  sends    {bytes_text(sent.total_bytes)} in {len(sent)} collectives{f': {by_kind}' if by_kind else ''}",
            f"  computes {self.flops:.3g} flops, {bytes_text(self.bytes_accessed)} read and written",
            f"  time     {_seconds(self.seconds)}: {_seconds(self.compute_seconds)} computing, "
            f"{_seconds(self.communication_seconds)} sending; {_seconds(self.overlapped_seconds)} if both overlap",
        ]
        largest: dict[tuple[int, str], int] = {}
        for buffer in self.largest:
            largest[buffer] = largest.get(buffer, 0) + 1
        for (size, what), count in [*largest.items()][:MOST_SHOWN]:
            lines.append(f"  largest  {f'{count} x ' if count > 1 else ''}{bytes_text(size)} {what}")
        lines += [
            f"  sends    {bytes_text(row.total_bytes)} {row.kind} over {row.axis}, {row.line}: {row.reason}"
            for row in sorted(sent, key=lambda row: -row.total_bytes)[:MOST_SHOWN]
        ]
        return "\n".join(lines)


@overload
def plan(
    fun: Callable[..., Any],
    /,
    *shapes: Any,
    mesh: Mesh | AbstractMesh,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] | None = None,
    machine: Any = "h100",
    topology: None = None,
) -> Plan: ...
@overload
def plan(
    fun: Callable[..., Any],
    /,
    *shapes: Any,
    mesh: Mesh | AbstractMesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] | None = None,
    topology: str,
) -> TopologyPlan: ...
def plan(
    fun: Callable[..., Any],
    /,
    *shapes: Any,
    mesh: Mesh | AbstractMesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] | None = None,
    machine: Any = "h100",
    topology: str | None = None,
) -> Plan | TopologyPlan:
    """Plan `jit(fun, donate_argnums=...)` on a mesh, for arguments of these shapes (arrays or `ShapeDtypeStruct`s, in
    trees). They may exceed the memory of this machine: nothing is allocated.

    `in_shardings` and `out_shardings` are trees of `PartitionSpec`s or `NamedSharding`s that are prefixes of the
    arguments and the result; None leaves it open, and for arguments the sharding of a `ShapeDtypeStruct` holds. The
    mesh may be an `AbstractMesh`. `machine` is a name ('cpu', 'h100', 'h200', 'tpu_v5p') or a `weft.plan.Machine`.

    With a `topology`, such as "v5e:2x4" or "v5p:2x2x4", the compiler of TPUs compiles the program for it, which needs
    the package libtpu but no TPU: a `TopologyPlan` has the memory and the code that it found, or its message if the
    memory does not suffice. Without a mesh it is the program of one device.
    """
    started = time.perf_counter()
    if topology is not None:
        return plan_topology(fun, shapes, topology, mesh, in_shardings, out_shardings, donate_argnums)
    staged = Staged(fun, shapes, mesh, donate_argnums)
    split = staged.partition_for(staged.in_dims(in_shardings), staged.out_dims(out_shardings))
    return staged.plan(split, get_machine(machine), started)


def plan_topology(
    fun: Callable[..., Any],
    shapes: Sequence[Any],
    name: str,
    mesh: Mesh | AbstractMesh | None,
    in_shardings: Any,
    out_shardings: Any,
    donate_argnums: int | Sequence[int] | None,
) -> TopologyPlan:
    """Compile a function for the devices of a topology."""
    found = topologies.Topology(name)
    staged = Staged(fun, shapes, AbstractMesh((1,), ("device",)) if mesh is None else mesh, donate_argnums)
    split = staged.partition_for(staged.in_dims(in_shardings), staged.out_dims(out_shardings))
    local, donated = staged.close(split.jaxpr)
    if mesh is None:
        return topology_plans.compile_plan(local, donated, found, None)
    shardings = (
        tuple(map(staged.as_sharding, split.in_dims[staged.constants :])),
        tuple(map(staged.as_sharding, split.out_dims)),
    )
    return topology_plans.compile_plan(local, donated, found, mesh, shardings, Communication(split.communication))


class Staged:
    """Function staged for shapes, to be partitioned for several shardings."""

    def __init__(self, fun: Callable[..., Any], shapes: Sequence[Any], mesh: Any, donate_argnums: Any = None) -> None:
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise ArgumentTypeError(
                "plan needs a mesh.",
                received=described(mesh),
                fix="AbstractMesh((4, 2), ('d', 't'))",
            )
        self.mesh, self.sizes = mesh, dict(mesh.shape)
        traced = jit(fun, donate_argnums=donate_argnums).trace(*shapes)
        self.shapes, self.out_tree = shapes, traced.out_tree
        self.constants = len(traced._constants)
        self.whole, self.jaxpr = traced._jaxpr, prepare(traced._jaxpr)
        self.names: tuple[str, ...] = traced._operand_names
        self.donated: tuple[bool, ...] = traced._params.get("donated", ())

    @property
    def in_types(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.invars]

    def in_dims(self, shardings: Any) -> list[Any]:
        """Return the axes of each dimension of the arguments; the function's constants come first."""
        leaves = tree.leaves(self.shapes)
        if shardings is None:
            found = [getattr(leaf, "sharding", None) for leaf in leaves]
        else:
            found = tree.broadcast_prefix(shardings, tuple(self.shapes), is_leaf=_is_sharding)
        types = self.in_types[self.constants :]
        return [None] * self.constants + [self._dims(s, t) for s, t in zip(found, types, strict=True)]

    def out_dims(self, shardings: Any) -> list[Any]:
        """Return the axes of each dimension of the results."""
        types = [v.aval for v in self.jaxpr.outvars]
        if shardings is None:
            return [None] * len(types)
        result = tree.unflatten(self.out_tree, types)
        found = tree.broadcast_prefix(shardings, result, is_leaf=_is_sharding)
        return [self._dims(s, t) for s, t in zip(found, types, strict=True)]

    def _dims(self, sharding: Any, aval: Any) -> Any:
        if isinstance(sharding, PartitionSpec):
            sharding = NamedSharding(self.mesh, sharding)
        if not isinstance(sharding, NamedSharding):
            return None
        sharding.check_compatible_aval(aval.shape)
        for axis in sharding.mesh.axis_names:
            if self.sizes.get(axis) != sharding.mesh.shape[axis]:
                raise ArgumentError(
                    "plan: all shardings must be on one mesh.",
                    received=f"{sharding!r} for {self.mesh!s}",
                    fix="one mesh",
                )
        return spec_dims(sharding.spec, aval.ndim)

    def partition_for(self, in_dims: Sequence[Any], out_dims: Sequence[Any], quick: bool = False) -> PartitionedJaxpr:
        """Partition the function for arguments and results with these axes; if `quick`, by one attempt."""
        stored, outs = find_stored_arguments(self.whole, in_dims, out_dims, self.donated)
        options = get_compile_options()
        return partition(self.jaxpr, self.sizes, in_dims, outs, stored, self.names, options=options, quick=quick)

    def as_sharding(self, dims: Any) -> NamedSharding:
        """Return the sharding that splits each dimension over these axes."""
        return NamedSharding(self.mesh, PartitionSpec(*dims))

    def close(self, jaxpr: Jaxpr, takes: Callable[[Any], bool] = lambda aval: True) -> tuple[Jaxpr, tuple[bool, ...]]:
        """Turn the constants of a local jaxpr into arguments; return it, and which of them are donated: () if none."""
        local = constants_to_arguments(jaxpr)
        donated = self.donated or (False,) * len(jaxpr.invars)
        taken = [flag and takes(v.aval) for flag, v in zip(donated, jaxpr.invars, strict=True)]
        more = len(local.invars) - len(jaxpr.invars)
        return local, ((*[False] * more, *taken) if any(taken) else ())

    def plan(self, split: PartitionedJaxpr, machine: Machine, started: float) -> Plan:
        """Plan a local jaxpr."""
        takes_donated = memory_backend(CPU).takes_donated
        local, flags = self.close(split.jaxpr, lambda aval: takes_donated(local_bytes(aval)))
        compiled = compile_program(local, flags, execution_backend(CPU).target(CPU), get_compile_options())
        compute, flops, accessed = estimate(compiled.fused, machine)
        if machine.kernels is not None:
            free = replace(machine, link=Link(math.inf, 0.0), links={})
            compute = Simulation(get_step_timer(machine), free, self.sizes).run(compiled.program.steps)
        sent = Communication(split.communication)
        memory, largest = memory_analysis(compiled.program, 0), largest_buffers(compiled.program)
        return Plan(
            self.mesh,
            machine,
            tuple(map(self.as_sharding, split.in_dims[self.constants :])),
            tuple(map(self.as_sharding, split.out_dims)),
            self.names[self.constants :],
            split.jaxpr,
            memory,
            largest,
            sent,
            flops,
            accessed,
            compute,
            communication_seconds(sent, machine),
            simulate_overlap(compiled.program, machine, self.sizes),
            time.perf_counter() - started,
        )


def simulate_overlap(program: Program, machine: Machine, sizes: Mapping[Any, int]) -> float:
    """Return the time of a run in which collectives start as early and are awaited as late as possible; reorders the
    steps of the program accordingly."""
    steps = overlap_collectives(program, lambda step: True, config.overlap_bytes or 1).steps
    return Simulation(get_step_timer(machine), machine, sizes).run(steps)


def communication_seconds(sent: Sequence[Any], machine: Machine) -> float:
    """Return the time of collectives run one after the other."""
    links = [(row, machine.along(row.axis)) for row in sent]
    return sum(row.times * (link.latency + row.bytes / link.bandwidth) for row, link in links)


def estimate(jaxpr: Jaxpr, machine: Machine) -> tuple[float, float, float]:
    """Estimate seconds, flops and bytes accessed of a jaxpr: each equation takes the time of its flops or of its
    bytes."""
    seconds = flops = accessed = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.named_axes(equation.params):
            continue
        primitive = equation.primitive
        bodies = subjaxprs(equation.params) if primitive.higher_order and primitive.name != "fusion" else []
        if bodies:
            found, times = [estimate(body, machine) for body in bodies], iterations(equation)
            if getattr(equation.primitive, "exclusive", False):
                found = [max(found)]
            s, f, b = (times * sum(column) for column in zip(*found, strict=True))
        else:
            cost = equation_cost(equation)
            f, b = cost.flops, float(cost.bytes)
            s = equation_seconds(cost, machine)
        seconds, flops, accessed = seconds + s, flops + f, accessed + b
    return seconds, flops, accessed


def iterations(equation: Equation) -> int:
    """Return how often the bodies of an equation run, 1 if that is unknown."""
    primitive: Any = equation.primitive
    count = primitive.iterations(equation.params) if primitive.higher_order else 1
    return count if isinstance(count, int) else 1


def local_bytes(aval: Any) -> int:
    return aval.size * aval.dtype.itemsize if isinstance(aval, ArrayType) else 0


def largest_buffers(program: Program) -> tuple[tuple[int, str], ...]:
    """Return the largest temporaries, each with the step that writes it."""
    found: dict[Any, str] = {}
    for step in program.all_steps():
        for slot in step.writes:
            if slot.kind is Kind.TEMPORARY and slot not in found:
                at = "" if step.line is None else f" at {step.line.describe()}"
                found[slot] = f"written by {step.label or type(step).__name__.lower()}{at}"
    ordered = sorted(found.items(), key=lambda pair: -pair[0].size)
    return tuple((slot.size, what) for slot, what in ordered[: 4 * MOST_SHOWN])


def _is_sharding(value: Any) -> bool:
    return value is None or isinstance(value, (PartitionSpec, NamedSharding))


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


class _Callable(types.ModuleType):
    """Module `weft.plan`, callable as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Plan | TopologyPlan:
        return plan(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

_suggest(__name__)
