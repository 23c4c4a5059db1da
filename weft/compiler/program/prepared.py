"""Programs for a class of sizes: built once with symbolic sizes, and evaluated with integers at concrete sizes.

The ordinary `ProgramBuilder` runs on a fused jaxpr with symbolic sizes, under `deciding`: its steps depend on the
comparisons recorded there and on the classes of its kernels. So one `PreparedProgram` serves all sizes with the same
kernels and the same answers. Preparing it for concrete sizes only evaluates a row of integers and plans memory; the
steps are built at the first access (`ProgramAtSizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Emission
from weft.compiler.fuse.fusion import is_fusion
from weft.compiler.kernel.cost import grain_for
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.assign import Lifetimes, align, pack_offsets
from weft.compiler.program.block import JaxprValues
from weft.compiler.program.build import ProgramBuilder
from weft.compiler.program.emissions import Emissions, SizeClass, Sizes, get_emissions
from weft.compiler.program.frame import CallFrame, first_own
from weft.compiler.program.ir import Copy, Kind, Launch, Program, Slot, Step, byte_size
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.schedules import FIRST
from weft.compiler.target.target import Target
from weft.indexing.expression import Expression, value_range
from weft.indexing.guards import checker, compile_with_sharing, deciding
from weft.ir.at_sizes import symbols_of_jaxpr
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import ArrayType
from weft.primitives.control.remat import optimization_barrier
from weft.primitives.movement.size import size as size_primitive

# Maximum of cached programs for one combination of kernels; they differ in which values share memory.
MOST_PROGRAMS = 8


class PreparedPrograms:
    """The programs of a fused jaxpr with symbolic sizes, one for each combination of classes."""

    def __init__(self, fused: Jaxpr, donated: Sequence[bool], target: Target) -> None:
        self.fused, self.donated, self.target = fused, donated, target
        self.symbols = symbols_of_jaxpr(fused)
        found = _kernel_fusions(fused)
        # None if the jaxpr has operations that have to be planned for each size.
        self.emissions: list[Emissions] | None = None
        if found is not None:
            own = [get_emissions(*_fusion_params(e), target, int(FIRST)) for e in found]
            self.emissions = list(dict.fromkeys(own))
            self.expressions = list(dict.fromkeys(_byte_sizes(fused)))
            texts = "".join(f"{e}, " for e in self.expressions)
            self.evaluate: Callable[..., tuple[int, ...]] = compile_with_sharing(f"({texts})", self.symbols)
        self._programs: dict[tuple[SizeClass, ...], list[PreparedProgram]] = {}

    def at(self, sizes: Sizes) -> ProgramAtSizes | None:
        """Return the program at these sizes, or None if it has to be built for them."""
        if self.emissions is None:
            return None
        classes: list[SizeClass] = []
        for emissions in self.emissions:
            known = emissions.class_at(sizes)
            if known is None:
                return None
            classes.append(known)
        values = [sizes[s] for s in self.symbols]
        key = tuple(classes)
        others = self._programs.get(key, [])
        for prepared in others:
            if prepared.holds(*values):
                return prepared.at(sizes, values)
        with deciding({s: sizes[s] for s in self.symbols}, user_code=False) as answers:
            builder = _PreparedBuilder(self.target, sizes)
            program = builder.program(self.fused, self.donated)
        if answers.constants:
            self.emissions = None
            return None
        holds = checker(answers.guards, self.symbols)
        prepared = PreparedProgram(self, key, program, builder.rows, builder.sizes_of_slots, holds)
        self._programs[key] = [prepared, *others[: MOST_PROGRAMS - 1]]
        return prepared.at(sizes, values)


def _fusion_params(equation: Equation) -> tuple[str, Jaxpr, int | None]:
    return equation.params["kind"], equation.params["jaxpr"], equation.params["hero"]


def _kernel_fusions(fused: Jaxpr) -> list[Equation] | None:
    """Return the fusions with kernels, or None if the jaxpr has anything else but sizes, fences and aliases, or a
    result that may be empty.
    """
    found: list[Equation] = []
    if not all(isinstance(v.aval, ArrayType) for v in (*fused.invars, *fused.outvars)):
        return None
    for e in fused.eqns:
        if is_fusion(e):
            if e.params["kind"] == "library" or any(0 in value_range(byte_size(v.aval)) for v in e.outvars):
                return None
            if e.params["kind"] != "alias":
                found.append(e)
        elif not (isinstance(e.primitive, type(size_primitive)) or e.primitive is optimization_barrier):
            return None
    return found


def _byte_sizes(fused: Jaxpr) -> list[Expression]:
    values = (*fused.invars, *(v for e in fused.eqns for v in e.outvars))
    sizes = [byte_size(v.aval) for v in values]
    sizes += [e.params["expression"] for e in fused.eqns if not is_fusion(e) and not e.invars]
    return [s for s in sizes if isinstance(s, Expression)]


class _PreparedBuilder(ProgramBuilder):
    """Builds steps whose sizes are expressions.

    `rows` has for each launch its class and its index in the emission of that class. `sizes_of_slots` maps constants
    with sizes to their source: the launch whose sizes they are, or the equation for a size that the program computes
    with.
    """

    def __init__(self, target: Target, sizes: Sizes) -> None:
        super().__init__(target, None, sizes)
        self.rows: list[tuple[SizeClass, int]] = []
        self.sizes_of_slots: dict[Slot, tuple[SizeClass, int] | Equation] = {}
        self._class: SizeClass | None = None

    def emission(self, kind: str, jaxpr: Jaxpr, hero: int | None, schedule: int) -> Emission:
        assert self.sizes is not None
        self._class = get_emissions(kind, jaxpr, hero, self.target, schedule).class_at(self.sizes)
        assert self._class is not None
        return self._class.emission

    def launch(self, emission: Emission, operands: Sequence[Slot], label: str) -> None:
        assert self._class is not None
        for i, launch in enumerate(emission.launches):
            row = (self._class, i)
            slots = tuple([operands[n] for n in launch.operands])
            if launch.kernel.sizes:
                slots += (self._sizes_slot(row, np.zeros(len(launch.kernel.sizes), np.int64)),)
            count: Any = launch.kernel.count
            self.steps.append(Launch(launch.kernel, slots, 0, label, (), count))
            self.rows.append(row)

    def equation(self, block: JaxprValues, position: int, equation: Equation) -> None:
        if is_fusion(equation) or equation.invars:
            super().equation(block, position, equation)
            return
        self.put_slot(block, equation.outvars[0], self._sizes_slot(equation, _size_at(equation, 0)))

    def _sizes_slot(self, source: tuple[SizeClass, int] | Equation, like: np.ndarray) -> Slot:
        """Return a constant slot for sizes. Equal launches share it."""
        key = ("sizes", source)
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = Slot(Kind.CONSTANT, like.nbytes, len(self.constants))
            self.constants.append(like)
            self.constant_slots.append(slot)
            self.sizes_of_slots[slot] = source
        return slot


def _size_at(equation: Equation, value: int) -> np.ndarray:
    """Return the value of a size that the program computes with."""
    result: np.ndarray = np.asarray(equation.primitive.eval(**{**equation.params, "expression": value}))
    return result


@dataclass(frozen=True)
class Row:
    """Positions of a launch in the row of integers: its kernel's sizes start at `start`, its trip count is at `count`
    and its work at `work`, one after the other.
    """

    start: int
    count: int
    work: int


class PreparedProgram:
    """A program whose sizes are expressions. Offsets of temporaries are ordered by their index in `temporaries`."""

    def __init__(
        self,
        family: PreparedPrograms,
        classes: Sequence[SizeClass],
        program: Program,
        rows: Sequence[tuple[SizeClass, int]],
        sizes_of_slots: dict[Slot, tuple[SizeClass, int] | Equation],
        holds: Callable[..., bool],
    ) -> None:
        self.family, self.program, self.holds = family, program, holds
        self.costs = family.target.kernel
        lifetimes = Lifetimes()
        lifetimes.visit(program.steps)
        self.temporaries = {slot: i for i, slot in enumerate(lifetimes.ranges)}
        self._extents = list(lifetimes.ranges.values())
        offset = 0
        for slot in program.constant_slots:
            slot.offset = offset
            offset += align(slot.size)
        program.constant_bytes = offset
        program.registers = first_own(program)
        self.frame: CallFrame | None = None
        self.codes: dict[Any, Any] = {}  # compiled code, by target
        # The row of integers: sizes of values, then the integers of each class.
        index: dict[Expression, int] = {e: i for i, e in enumerate(family.expressions)}
        self._parts: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        first: dict[tuple[SizeClass, int], Row] = {}
        scratch: dict[Expression, tuple[int, int]] = {}
        length = len(index)
        for known, emissions in zip(classes, family.emissions or (), strict=True):
            self._parts.append((known.integers, tuple(family.symbols.index(s) for s in emissions.symbols)))
            for i, launch in enumerate(known.emission.launches):
                end = length + len(launch.kernel.sizes)
                first[known, i] = Row(length, end, end + 1)
                length = end + 2
            for s in known.emission.scratch:
                size = s.size * s.dtype.itemsize
                if isinstance(size, Expression):
                    scratch.setdefault(size, (length, s.dtype.itemsize))
                length += 1
        self.rows = [first[row] for row in rows]
        self.launch_rows = {id(step): self.rows[i] for i, step in enumerate(self._launches())}

        def source(size: Any) -> tuple[int, int]:
            """Return (index of an integer, scale) for a size; index -1 means that the scale is the size."""
            if not isinstance(size, Expression):
                return -1, int(size)
            return (index[size], 1) if size in index else scratch[size]

        self._source = source
        self._sizes = [source(slot.size) for slot in self.temporaries]
        self.copies = {id(step): source(step.size) for step in program.steps if isinstance(step, Copy)}
        self._copied = sum(s[1] for s in self.copies.values() if s[0] < 0)
        self._copies = [s for s in self.copies.values() if s[0] >= 0]
        # Constants: those that do not depend on sizes, and the positions of the others.
        constant_positions: list[int] = []
        self._constant_sources: list[int] = []
        self._values: list[tuple[Slot, Equation, int]] = []
        for slot, asked in sizes_of_slots.items():
            if isinstance(asked, Equation):
                self._values.append((slot, asked, index[asked.params["expression"]]))
                continue
            for n in range(len(asked[0].emission.launches[asked[1]].kernel.sizes)):
                constant_positions.append(slot.offset // 8 + n)
                self._constant_sources.append(first[asked].start + n)
        self._sizes_of_slots = sizes_of_slots
        self._first = first
        self.block = np.zeros(-(-max(program.constant_bytes, 1) // 8), np.int64)
        as_bytes = self.block.view(np.uint8)
        for slot, array in zip(program.constant_slots, program.constants, strict=True):
            as_bytes[slot.offset : slot.offset + slot.size] = array.reshape(-1).view(np.uint8)
        self._constant_positions = np.array(constant_positions, np.intp)

    def _launches(self) -> list[Launch]:
        return [step for step in self.program.steps if isinstance(step, Launch)]

    def at(self, sizes: Sizes, values: Sequence[int]) -> ProgramAtSizes:
        """Return the program at sizes of its class."""
        integers: list[Any] = [*self.family.evaluate(*values)]
        for function, own in self._parts:
            integers += function(*[values[i] for i in own])
        return ProgramAtSizes(self, sizes, integers)

    def plan(self, integers: Sequence[Any]) -> tuple[list[int], int]:
        """Return the offsets of temporaries and the size of their block in bytes."""
        sizes = [scale if i < 0 else integers[i] * scale for i, scale in self._sizes]
        return pack_offsets(self._extents, sizes)

    def estimate(self, integers: Sequence[Any]) -> float:
        """Estimate the nanoseconds of a run."""
        copied = self._copied + sum([integers[i] * scale for i, scale in self._copies])
        work: float = sum([integers[row.work] for row in self.rows])
        result: float = work + self.costs.launch * len(self.rows) + copied * self.costs.copied_byte
        return result

    def work_of_kernels(self, integers: Sequence[Any]) -> dict[Kernel, float]:
        """Estimate the nanoseconds of each kernel in a run, the most expensive one first."""
        work: dict[Kernel, float] = {}
        for step, row in zip(self._launches(), self.rows, strict=True):
            work[step.full] = work.get(step.full, 0.0) + integers[row.work]
        return dict(sorted(work.items(), key=lambda item: -item[1]))

    def grain(self, row: Row, integers: Sequence[Any]) -> int:
        """Return the number of iterations in one task of a launch, or 0 if threads do not pay."""
        return grain_for(integers[row.count], integers[row.work], self.costs)

    def write_constants(self, integers: Sequence[Any], block: np.ndarray) -> None:
        """Fill the block of constants."""
        block[...] = self.block
        block[self._constant_positions] = [integers[i] for i in self._constant_sources]
        as_bytes = block.view(np.uint8)
        for slot, equation, i in self._values:
            value = _size_at(equation, integers[i])
            as_bytes[slot.offset : slot.offset + slot.size] = value.reshape(-1).view(np.uint8)

    def size(self, size: Any, integers: Sequence[Any]) -> int:
        """Evaluate a size of the program."""
        i, scale = self._source(size)
        return scale if i < 0 else integers[i] * scale

    def steps_at(self, found: ProgramAtSizes) -> Program:
        """Return the complete program at concrete sizes, equal to one built for them."""
        integers, general = found.integers, self.program
        slots: dict[Slot, Slot] = {}

        def slot_at(slot: Slot) -> Slot:
            new = slots.get(slot)
            if new is None:
                size = self.size(slot.size, integers)
                new = slots[slot] = Slot(slot.kind, size, slot.index, donated=slot.donated, alignment=slot.alignment)
                new.offset = found.offsets[self.temporaries[slot]] if slot in self.temporaries else slot.offset
            return new

        # Reports look up the costs of steps by their equations, which must have the concrete sizes.
        remaining = (e for e in self.family.fused.eqns if is_fusion(e) or e.invars)
        equations = {id(e): new for e, new in zip(remaining, found.fused.eqns, strict=True)}
        steps: list[Step] = []
        for step in general.steps:
            if isinstance(step, Launch):
                row = self.launch_rows[id(step)]
                new: Step = Launch(
                    step.kernel,
                    tuple(map(slot_at, step.slots)),
                    self.grain(row, integers),
                    step.label,
                    tuple(integers[row.start : row.count]),
                    integers[row.count],
                    integers[row.work],
                )
            else:
                assert isinstance(step, Copy)
                new = Copy(slot_at(step.target), slot_at(step.source), self.size(step.size, integers))
            new.line, new.origin = step.line, equations.get(id(step.origin))
            steps.append(new)
        constants = list(general.constants)
        for slot, asked in self._sizes_of_slots.items():
            if isinstance(asked, Equation):
                constants[slot.index] = _size_at(asked, self.size(asked.params["expression"], integers))
            else:
                row = self._first[asked]
                constants[slot.index] = np.array(integers[row.start : row.count], np.int64)
        arguments, results, constant_slots = (
            [slot_at(s) for s in some] for some in (general.arguments, general.results, general.constant_slots)
        )
        return Program(general.name, steps, arguments, results, general.aliases, constants, constant_slots)
