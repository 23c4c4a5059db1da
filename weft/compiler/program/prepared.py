"""Programs for a class of sizes: built once with expressions for sizes, and at given sizes a matter of integers.

The ordinary `Builder` is run on a fused jaxpr with symbolic sizes, under `deciding`: what it asks is what its steps
depend on, besides the classes of its kernels. So there is one `PreparedProgram` for all sizes that have the same
kernels and the same answers. At sizes it evaluates a row of integers, plans memory, and that is all: the steps
themselves exist only if somebody looks at them (`ProgramAtSizes`).
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
from weft.compiler.program.assign import Lifetimes, aligned, offsets_of
from weft.compiler.program.block import Block
from weft.compiler.program.build import Builder
from weft.compiler.program.emissions import Emissions, SizeClass, Sizes, emissions_of
from weft.compiler.program.frame import CallFrame, first_own
from weft.compiler.program.ir import Copy, Kind, Launch, Program, Slot, Step, bytes_of
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.schedules import FIRST
from weft.compiler.target.target import Target
from weft.indexing.expression import Expression, range_of
from weft.indexing.guards import checker, deciding, evaluated_once
from weft.ir.at_sizes import symbols_of_jaxpr
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import ArrayType
from weft.primitives.movement.size import size as size_primitive

# Programs that are remembered for one combination of kernels: they differ in what shares memory.
MOST_PROGRAMS = 8


class PreparedPrograms:
    """The programs of a fused jaxpr with symbolic sizes, one for each combination of classes."""

    def __init__(self, fused: Jaxpr, donated: Sequence[bool], target: Target) -> None:
        self.fused, self.donated, self.target = fused, donated, target
        self.symbols = symbols_of_jaxpr(fused)
        found = _kernel_fusions(fused)
        # None: the jaxpr has operations that are planned for each size.
        self.emissions: list[Emissions] | None = None
        if found is not None:
            own = [emissions_of(*_fusion_of(e), target, int(FIRST)) for e in found]
            self.emissions = list(dict.fromkeys(own))
            self.expressions = list(dict.fromkeys(_byte_sizes(fused)))
            texts = "".join(f"{e}, " for e in self.expressions)
            self.evaluate: Callable[..., tuple[int, ...]] = evaluated_once(f"({texts})", self.symbols)
        self._programs: dict[tuple[SizeClass, ...], list[PreparedProgram]] = {}

    def at(self, sizes: Sizes) -> ProgramAtSizes | None:
        """The program at sizes; None if it is to be built for them."""
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


def _fusion_of(equation: Equation) -> tuple[str, Jaxpr, int | None]:
    return equation.params["kind"], equation.params["jaxpr"], equation.params["hero"]


def _kernel_fusions(fused: Jaxpr) -> list[Equation] | None:
    """The fusions that have kernels, if nothing else is in a jaxpr but sizes, fences and aliases; and if no result may
    be empty."""
    found: list[Equation] = []
    if not all(isinstance(v.aval, ArrayType) for v in (*fused.invars, *fused.outvars)):
        return None
    for e in fused.eqns:
        if is_fusion(e):
            if e.params["kind"] == "library" or any(0 in range_of(bytes_of(v.aval)) for v in e.outvars):
                return None
            if e.params["kind"] != "alias":
                found.append(e)
        elif not (isinstance(e.primitive, type(size_primitive)) or e.primitive.fence):
            return None
    return found


def _byte_sizes(fused: Jaxpr) -> list[Expression]:
    values = (*fused.invars, *(v for e in fused.eqns for v in e.outvars))
    sizes = [bytes_of(v.aval) for v in values]
    sizes += [e.params["expression"] for e in fused.eqns if not is_fusion(e) and not e.invars]
    return [s for s in sizes if isinstance(s, Expression)]


class _PreparedBuilder(Builder):
    """Builds steps whose sizes are expressions. `rows` says for each launch of which class it is and which of its
    launches; `sizes_of_slots` which constants have sizes: those of a launch, or one that the program computes with."""

    def __init__(self, target: Target, sizes: Sizes) -> None:
        super().__init__(target, None, sizes)
        self.rows: list[tuple[SizeClass, int]] = []
        self.sizes_of_slots: dict[Slot, tuple[SizeClass, int] | Equation] = {}
        self._class: SizeClass | None = None

    def emission(self, kind: str, jaxpr: Jaxpr, hero: int | None, schedule: int) -> Emission:
        assert self.sizes is not None
        self._class = emissions_of(kind, jaxpr, hero, self.target, schedule).class_at(self.sizes)
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

    def equation(self, block: Block, position: int, equation: Equation) -> None:
        if is_fusion(equation) or equation.invars:
            super().equation(block, position, equation)
            return
        self.put_slot(block, equation.outvars[0], self._sizes_slot(equation, _size_at(equation, 0)))

    def _sizes_slot(self, source: tuple[SizeClass, int] | Equation, like: np.ndarray) -> Slot:
        """A constant that has sizes; equal launches share it."""
        key = ("sizes", source)
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = Slot(Kind.CONSTANT, like.nbytes, len(self.constants))
            self.constants.append(like)
            self.constant_slots.append(slot)
            self.sizes_of_slots[slot] = source
        return slot


def _size_at(equation: Equation, value: int) -> np.ndarray:
    """A size that a program computes with."""
    result: np.ndarray = np.asarray(equation.primitive.eval(**{**equation.params, "expression": value}))
    return result


@dataclass(frozen=True)
class Row:
    """Where among the integers of an instance those of a launch are: the values of its kernel's sizes, its iterations
    and its work, one after the other."""

    start: int
    count: int
    work: int


class PreparedProgram:
    """A program whose sizes are expressions. `offsets` of temporaries are by their index in `temporaries`."""

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
            offset += aligned(slot.size)
        program.constant_bytes = offset
        program.registers = first_own(program)
        self.frame: CallFrame | None = None
        self.codes: dict[Any, Any] = {}  # what it became, by target
        # The row of integers: sizes of values, then what each class has.
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
            """Which integer a size is, and how often; -1: it is itself."""
            if not isinstance(size, Expression):
                return -1, int(size)
            return (index[size], 1) if size in index else scratch[size]

        self._source = source
        self._sizes = [source(slot.size) for slot in self.temporaries]
        self.copies = {id(step): source(step.size) for step in program.steps if isinstance(step, Copy)}
        self._copied = sum(s[1] for s in self.copies.values() if s[0] < 0)
        self._copies = [s for s in self.copies.values() if s[0] >= 0]
        # Constants: those that are the same for all sizes, and where others go.
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
        """The program at sizes that it is for."""
        integers: list[Any] = [*self.family.evaluate(*values)]
        for function, own in self._parts:
            integers += function(*[values[i] for i in own])
        return ProgramAtSizes(self, sizes, integers)

    def plan(self, integers: Sequence[Any]) -> tuple[list[int], int]:
        """The offsets of temporaries, and how much memory they take."""
        sizes = [scale if i < 0 else integers[i] * scale for i, scale in self._sizes]
        return offsets_of(self._extents, sizes)

    def estimate(self, integers: Sequence[Any]) -> float:
        """Nanoseconds of a run, roughly."""
        copied = self._copied + sum([integers[i] * scale for i, scale in self._copies])
        work: float = sum([integers[row.work] for row in self.rows])
        return work + self.costs.launch * len(self.rows) + copied * self.costs.copied_byte

    def work_of_kernels(self, integers: Sequence[Any]) -> dict[Kernel, float]:
        """The nanoseconds of each kernel in a run, roughly; the most expensive one first."""
        work: dict[Kernel, float] = {}
        for step, row in zip(self._launches(), self.rows, strict=True):
            work[step.full] = work.get(step.full, 0.0) + integers[row.work]
        return dict(sorted(work.items(), key=lambda item: -item[1]))

    def grain(self, row: Row, integers: Sequence[Any]) -> int:
        """How many iterations of a launch are one task; 0: threads do not pay."""
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
        """An expression of the program at sizes."""
        i, scale = self._source(size)
        return scale if i < 0 else integers[i] * scale

    def steps_at(self, found: ProgramAtSizes) -> Program:
        """All of the program at sizes, as it would be if it were built for them."""
        integers, general = found.integers, self.program
        slots: dict[Slot, Slot] = {}

        def slot_at(slot: Slot) -> Slot:
            new = slots.get(slot)
            if new is None:
                size = self.size(slot.size, integers)
                new = slots[slot] = Slot(slot.kind, size, slot.index, donated=slot.donated, alignment=slot.alignment)
                new.offset = found.offsets[self.temporaries[slot]] if slot in self.temporaries else slot.offset
            return new

        # Who looks at steps wants to know what their equations cost at these sizes.
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
