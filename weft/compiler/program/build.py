"""Build a program from a fused jaxpr: emit kernels, plan library calls, lower control flow to loops and branches.

Values share memory where possible: a result takes the slot of an operand that dies, if its kernel allows that; an
update in place copies its operand only if the operand is needed later; carries of loops stay in one slot. `assign`
decides afterwards which temporaries may overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, get_size, literal_arrays, storage as storage
from weft.compiler.fuse.classify import classify
from weft.compiler.fuse.fusion import fusion
from weft.compiler.kernel.cost import choose_grain
from weft.compiler.program import control, tapes
from weft.compiler.program.block import JaxprValues
from weft.compiler.program.checks import EnclosingLoop, build_trap
from weft.compiler.program.emissions import Sizes, emission_at, equal_fusions, get_emission
from weft.compiler.program.ir import (
    Begin,
    Call,
    Communicate,
    Copy,
    FrameRegister,
    Kind,
    Launch,
    Program,
    Slot,
    Step,
    byte_size as byte_size,
    nested_steps,
)
from weft.compiler.schedules import FIRST, KINDS, LIBRARY, Schedules, alone, has_library_alternative
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.tables import get_tables
from weft.compiler.target.target import Target
from weft.ir.fusing import HERO
from weft.ir.higher_order import ControlFlow
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var
from weft.ir.kinds import Constant
from weft.ir.primitive import lookup
from weft.primitives.collectives import Collective
from weft.primitives.contraction.contract import dot_general
from weft.primitives.control.callback import Callback
from weft.primitives.control.check import trap
from weft.primitives.control.remat import optimization_barrier
from weft.primitives.control.tape import TapePrimitive


def build(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    schedules: Schedules | None = None,
    sizes: Sizes | None = None,
    begin: Begin | None = None,
) -> Program:
    """Build the steps of a fused jaxpr whose constants are arguments.

    `donated` has a flag for each argument. Contractions use the schedules that emitters prefer, unless `schedules`
    overrides them. With `sizes`, the jaxprs of fusions may have symbolic sizes, whose values these are; all other types
    are concrete. `begin` receives steps as they are built.
    """
    return ProgramBuilder(target, schedules, sizes, begin).program(jaxpr, donated)


class ProgramBuilder:
    """Builds the steps of one program."""

    def __init__(
        self,
        target: Target,
        schedules: Schedules | None = None,
        sizes: Sizes | None = None,
        begin: Begin | None = None,
    ) -> None:
        self.target, self.schedules, self.sizes, self.begin = target, schedules, sizes, begin
        self.constants: list[np.ndarray] = []
        self.constant_slots: list[Slot] = []
        self._constants: dict[Any, Slot] = {}
        self.loop: Any = None  # the loop whose body is being built
        self.enclosing_loops: list[EnclosingLoop] = []  # outermost first, for steps that read counters
        self.steps: list[Step] = []
        # For several devices: number of arguments before the axis indices, the axis indices, and number of collectives.
        self.arguments = 0
        self.axis_slots: dict[Any, Slot] = {}
        self.collectives = 0

    def program(self, jaxpr: Jaxpr, donated: Sequence[bool]) -> Program:
        arguments = [
            Slot(Kind.ARGUMENT, byte_size(v.aval), i, donated=i < len(donated) and donated[i])
            for i, v in enumerate(jaxpr.invars)
        ]
        self.arguments = len(arguments)
        results = [Slot(Kind.RESULT, byte_size(v.aval), i) for i, v in enumerate(jaxpr.outvars)]
        block = JaxprValues(jaxpr, owned=[a for a in arguments if a.donated])
        for v, slot in zip(jaxpr.invars, arguments, strict=True):
            block.put(v, slot)
        self.prefer_donated(block, jaxpr, arguments)
        self.fill(block, results)
        aliases: list[int | None] = []
        taken: set[int] = set()
        for outvar, slot in zip(jaxpr.outvars, results, strict=True):
            found = block.slots.get(outvar)
            donor = found is not None and found.kind is Kind.ARGUMENT and found.donated and found.index not in taken
            if found is not None and donor:
                taken.add(found.index)
            elif found is not slot:
                self.copy(slot, self.atom(block, outvar))
            aliases.append(found.index if found is not None and donor else None)
        arguments += self.axis_slots.values()
        program = Program(jaxpr.name, self.steps, arguments, results, aliases, self.constants, self.constant_slots)
        program.axes = list(self.axis_slots)
        program.schedules = {} if self.schedules is None else self.schedules.chosen
        return program

    def prefer_donated(self, block: JaxprValues, jaxpr: Jaxpr, arguments: Sequence[Slot]) -> None:
        """Pair every donated argument with a result of its type."""
        free = {n: v.aval for n, v in enumerate(jaxpr.invars) if arguments[n].donated}
        for outvar in jaxpr.outvars:
            for i, aval in free.items():
                if type(outvar) is not Literal and outvar not in block.slots and aval.matches(outvar.aval):
                    block.preferred.setdefault(outvar, arguments[i])
                    del free[i]
                    break

    # -- blocks ----------------------------------------------------------------------------------------------------

    def fill(self, block: JaxprValues, results: Sequence[Slot | None] = ()) -> None:
        """Build the steps of a block, with results written to the slots in `results` (None: wherever they are
        computed).
        """
        jaxpr = block.jaxpr
        for v, value in zip(jaxpr.constvars, jaxpr.consts, strict=True):
            block.put(v, self.constant(storage_array(value)))
        targets: dict[Any, Slot] = {}
        for outvar, slot in zip(jaxpr.outvars, results, strict=False):
            if slot is not None and type(outvar) is not Literal and outvar not in block.slots:
                targets.setdefault(outvar, slot)
        block.send(targets)
        # Steps inside of loops and branches are reported with the step that contains them.
        begin, self.begin = self.begin, None
        equal = {} if begin is None else equal_fusions(jaxpr, KINDS, self.target)
        for position, equation in enumerate(jaxpr.eqns):
            before = len(self.steps)
            self.equation(block, position, equation)
            if begin is not None:
                begin(self.steps[before:], equal)

    def copy_results(self, block: JaxprValues, results: Sequence[Slot]) -> None:
        """Copy the block's results to their slots, unless they are there already."""
        pairs = [(slot, self.atom(block, v)) for v, slot in zip(block.jaxpr.outvars, results, strict=True)]
        self.copy_all([(target, source) for target, source in pairs if target is not source])

    def copy_all(self, pairs: Sequence[tuple[Slot, Slot]]) -> None:
        """Copy all sources to their targets as if at once.

        Slots that are still to be read are overwritten after the read; in a cycle, one slot is first copied to a
        temporary.
        """
        rest = list(pairs)
        while rest:
            free = next((n for n, (target, _) in enumerate(rest) if all(target is not s for _, s in rest)), None)
            if free is not None:
                self.copy(*rest.pop(free))
                continue
            target = rest[0][0]
            aside = self.temporary(target.size)
            self.copy(aside, target)
            rest = [(to, aside if source is target else source) for to, source in rest]

    def copy(self, target: Slot, source: Slot) -> None:
        if target is not source and target.size:
            self.steps.append(Copy(target, source, target.size))

    size = staticmethod(byte_size)

    def temporary(self, size: int) -> Slot:
        return Slot(Kind.TEMPORARY, size, owner=self.loop)

    def slice_slot(self, base: Slot, size: int) -> Slot:
        """Return a pointed slot for slices of `size` bytes that lie consecutively in `base`."""
        alignment = math.gcd(base.alignment, size)
        return Slot(Kind.POINTED, size, register=FrameRegister("pointer"), alignment=alignment)

    def constant(self, value: Any) -> Slot:
        """Return a slot in the block of constants. Equal small constants share one."""
        array = np.ascontiguousarray(value)
        key = (array.dtype, array.shape, array.tobytes()) if array.size <= 16 else id(value)
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = Slot(Kind.CONSTANT, array.nbytes, len(self.constants))
            self.constants.append(array)
            self.constant_slots.append(slot)
        return slot

    def atom(self, block: JaxprValues, atom: Any) -> Slot:
        """Return the slot of an operand."""
        if type(atom) is Literal:
            return self.constant(np.asarray(atom.val, dtypes.storage(atom.aval.dtype)))  # type: ignore[attr-defined]
        return block.slots[atom]

    def allocate(self, block: JaxprValues, v: Any, position: int) -> Slot:
        """Return memory for a new value: its preferred slot, its target, or a temporary."""
        preferred = block.preferred.get(v)
        if preferred is not None and block.dead(preferred, position, from_now=True):
            slot = preferred
        else:
            slot = block.targets.get(v) or self.temporary(byte_size(v.aval))
        self.define(block, v, slot)
        return slot

    def define(self, block: JaxprValues, v: Any, slot: Slot) -> None:
        if slot.kind is Kind.TEMPORARY and slot.owner is self.loop and v not in block.targets:
            block.owned.add(slot)
        block.put(v, slot)

    # -- equations -------------------------------------------------------------------------------------------------

    def equation(self, block: JaxprValues, position: int, equation: Equation) -> None:
        """Build the steps of one equation."""
        primitive = equation.primitive
        before = len(self.steps)
        if primitive is fusion:
            self.fusion(block, position, equation)
        elif primitive is optimization_barrier:
            for v, atom in zip(equation.outvars, equation.invars, strict=True):
                self.alias(block, v, atom)
        elif isinstance(primitive, ControlFlow):
            control.BUILDERS[primitive](self, block, position, equation)
        elif isinstance(primitive, TapePrimitive):
            tapes.build_tape(self, block, position, equation)
        elif isinstance(primitive, Callback):
            self.callback(block, position, equation)
        elif primitive is trap:
            build_trap(self, block, equation)
        elif isinstance(primitive, Constant) and (literal := primitive.literal(equation.params)) is not None:
            self.put_slot(block, equation.outvars[0], self.constant(literal))
        elif isinstance(primitive, Collective):
            self.collective(block, position, equation)
        elif primitive.higher_order:
            raise InternalError(f"`{primitive.name}` must be lowered before steps are built.", stage="program")
        else:
            self.library(block, position, equation)
        # Steps inside of loops and branches already have a line and an origin, except copies of values.
        for step in nested_steps(self.steps[before:]):
            if step.line is None:
                step.line = equation.source
            if step.origin is None:
                step.origin = equation

    def collective(self, block: JaxprValues, position: int, equation: Equation) -> None:
        """Build a collective step. The index of the device along an axis is an argument, not a step."""
        if not equation.invars:
            (v,) = equation.outvars
            axis = equation.params["axis_name"]
            if axis not in self.axis_slots:
                self.axis_slots[axis] = Slot(Kind.ARGUMENT, byte_size(v.aval), self.arguments + len(self.axis_slots))
            self.put_slot(block, v, self.axis_slots[axis])
            return
        operands = tuple(self.atom(block, a) for a in equation.invars)
        results = tuple(self.allocate(block, v, position) for v in equation.outvars)
        name = equation.primitive.name
        self.steps.append(Communicate(equation, operands, results, self.collectives, label=name))
        self.collectives += 1

    def put_slot(self, block: JaxprValues, v: Any, slot: Slot) -> None:
        """Record that a value is in a slot already, or copy it if its target is another slot."""
        target = block.targets.get(v)
        if target is not None and target is not slot:
            self.copy(target, slot)
            slot = target
        block.put(v, slot)

    def alias(self, block: JaxprValues, v: Any, atom: Any) -> None:
        """Record that a value shares the memory of another, or copy it if its target is another slot."""
        self.put_slot(block, v, self.atom(block, atom))

    def fusion(self, block: JaxprValues, position: int, equation: Equation) -> None:
        kind, jaxpr = equation.params["kind"], equation.params["jaxpr"]
        if kind == "alias":
            for v, result in zip(equation.outvars, jaxpr.outvars, strict=True):
                self.alias(block, v, alias_source(equation, jaxpr, result))
            return
        if not any(get_size(v) for v in equation.outvars):
            for v in equation.outvars:
                self.allocate(block, v, position)
            return
        if kind == "library":
            self.call(block, position, equation)
            return
        hero = equation.params["hero"]
        schedule = self.schedule(jaxpr, hero, FIRST) if kind in KINDS else FIRST
        if schedule == LIBRARY:
            (matmul,) = jaxpr.eqns
            operands = dict(zip(jaxpr.invars, equation.invars, strict=True))
            args = tuple(a if type(a) is Literal else operands[a] for a in matmul.invars)
            self.call(block, position, matmul.replace(invars=args, outvars=equation.outvars))
            return
        self.kernels(block, position, equation, kind, jaxpr, hero, int(schedule))

    def schedule(self, jaxpr: Jaxpr, hero: int | None, default: str) -> str:
        """Return the schedule of a contraction."""
        if self.schedules is None:
            return default
        either = has_library_alternative(jaxpr, self.target)
        if default == LIBRARY and not either:
            return default
        return self.schedules.choose(jaxpr, hero, default, changes_bits=either)

    def kernels(
        self,
        block: JaxprValues,
        position: int,
        equation: Equation,
        kind: str,
        jaxpr: Jaxpr,
        hero: int | None,
        schedule: int = 0,
    ) -> None:
        """Launch the kernels of a fusion with the operands and results of an equation."""
        emission = self.emission(kind, jaxpr, hero, schedule)
        arguments = [self.atom(block, a) for a in equation.invars]
        results: list[Slot] = []
        for i, v in enumerate(equation.outvars):
            results.append(self.result(block, position, emission, arguments, results, i, v))
        scratch = [self.temporary(s.size * s.dtype.itemsize) for s in emission.scratch]
        literals = [self.constant(a) for a in literal_arrays(jaxpr)]
        operands = [*arguments, *results, *scratch, *literals]
        self.launch(emission, operands, kind)

    def emission(self, kind: str, jaxpr: Jaxpr, hero: int | None, schedule: int) -> Emission:
        """Return the kernels of a fusion."""
        if self.sizes is None:
            return get_emission(kind, jaxpr, hero, self.target, schedule)
        return emission_at(kind, jaxpr, hero, self.target, schedule, self.sizes)

    def result(
        self,
        block: JaxprValues,
        position: int,
        computed: Emission | LibraryCall,
        arguments: Sequence[Slot],
        others: Sequence[Slot],
        i: int,
        v: Any,
    ) -> Slot:
        """Return memory for a result: that of an operand that dies here, if the kernel or library allows or requires
        it, else new memory.
        """
        for argument, result in computed.updated if isinstance(computed, Emission) else ():
            if result == i:
                return self.update_slot(block, position, arguments, others, arguments[argument], v)
        target, preferred = block.targets.get(v), block.preferred.get(v)
        allowed = sorted((arguments[a] for a, r in computed.in_place if r == i), key=lambda slot: slot is not preferred)
        # The preferred slot (a carry) is better than an operand's, from which the result would have to be copied.
        if target is not None or (preferred is not None and block.dead(preferred, position, from_now=True)):
            allowed = [slot for slot in allowed if slot is preferred]
        for slot in allowed:
            once = arguments.count(slot) == sum(s is slot for s in allowed)
            fits = slot.size == byte_size(v.aval) and slot not in others
            if fits and once and block.dead(slot, position, from_now=False):
                block.put(v, slot)
                return slot
        return self.allocate(block, v, position)

    def update_slot(
        self, block: JaxprValues, position: int, arguments: Sequence[Slot], others: Sequence[Slot], slot: Slot, v: Any
    ) -> Slot:
        """Return memory for the result of an update in place: the operand's own if it dies here, else a copy."""
        once = arguments.count(slot) == 1  # otherwise it would be read, under another shape, while it is updated
        free = v not in block.targets or block.preferred.get(v) is slot
        if once and free and slot not in others and block.dead(slot, position, from_now=False):
            block.put(v, slot)
            return slot
        allocated = self.allocate(block, v, position)
        self.copy(allocated, slot)
        return allocated

    # -- libraries and callbacks -----------------------------------------------------------------------------------

    def library(self, block: JaxprValues, position: int, equation: Equation) -> None:
        """Build a library call, or kernels of our own for a matmul for which they are faster."""
        if equation.primitive is dot_general:
            jaxpr = alone(equation)
            schedule = self.schedule(jaxpr, 0, LIBRARY)
            if schedule != LIBRARY:
                distinct = tuple(dict.fromkeys(a for a in equation.invars if type(a) is not Literal))
                operands_only = equation.replace(invars=distinct)
                self.kernels(block, position, operands_only, "contraction", jaxpr, 0, int(schedule))
                return
        self.call(block, position, equation)

    def call(self, block: JaxprValues, position: int, equation: Equation) -> None:
        """Build a library call."""
        call = get_tables(self.target).plan(equation, self.target)
        operands = [self.atom(block, a) for a in equation.invars]
        for i, permutation in enumerate(call.permutations):
            if permutation is not None:
                operands[i] = self.transpose(equation.invars[i].aval, permutation, operands[i])
        results: list[Slot] = []
        for i, v in enumerate(equation.outvars):
            results.append(self.result(block, position, call, operands, results, i, v))
        scratch = [self.temporary(size) for size in call.scratch]
        slots = (*operands, *results, *scratch)
        if call.routine == "host":
            self.host(call.host, equation, operands, results)
            return
        self.steps.append(
            Call(call.routine, slots, (*results, *scratch), call.parameters, call.tiles, label=call_label(equation))
        )

    def transpose(self, aval: Any, permutation: tuple[int, ...], source: Slot) -> Slot:
        """Transpose an operand into memory of its own."""
        before = Var(aval)
        primitive = lookup("transpose")
        after = Var(primitive.type(aval, permutation=permutation))
        equation = Equation([before], [after], primitive, {"permutation": permutation})
        hero = classify(equation, self.target).role == HERO
        emission = get_emission(
            "transpose" if hero else "loop",
            Jaxpr((), [before], [after], [equation]),
            0 if hero else None,
            self.target,
        )
        result = self.temporary(source.size)
        self.launch(
            emission,
            [source, result, *(self.temporary(s.size * s.dtype.itemsize) for s in emission.scratch)],
            "transpose",
        )
        return result

    def launch(self, emission: Emission, operands: Sequence[Slot], label: str) -> None:
        for launch in emission.launches:
            slots = tuple([operands[n] for n in launch.operands])
            if launch.sizes:
                slots += (self.constant(np.array(launch.sizes, np.int64)),)
            grain = choose_grain(launch.kernel, self.target.kernel) if launch.grain is None else launch.grain
            kernel = launch.kernel
            if any(slot.alignment < self.target.grid_bytes for slot in slots):
                kernel = replace(kernel, alignments=tuple([slot.alignment for slot in slots]))
            self.steps.append(Launch(kernel, slots, grain, label, launch.sizes, launch.count, launch.nanoseconds))

    def callback(self, block: JaxprValues, position: int, equation: Equation) -> None:
        """Build a call of the user's Python function. It gets copies of the operands."""
        operands = [self.atom(block, a) for a in equation.invars]
        results = [self.allocate(block, v, position) for v in equation.outvars]
        primitive, params = equation.primitive, equation.params

        def call(*arrays: np.ndarray, out: Sequence[np.ndarray]) -> None:
            results = primitive.eval(*(a.copy() for a in arrays), **params)
            for target, value in zip(out, results, strict=True):
                target[...] = value

        self.host(call, equation, operands, results)

    def host(self, function: Any, equation: Equation, operands: Sequence[Slot], results: Sequence[Slot]) -> None:
        types = [(a.aval.shape, dtypes.storage(a.aval.dtype)) for a in (*equation.invars, *equation.outvars)]  # type: ignore[attr-defined]
        self.steps.append(
            Call(
                "host",
                (*operands, *results),
                tuple(results),
                host=function,
                types=tuple(types),
                results=len(results),
                label=equation.primitive.name,
            )
        )


def call_label(equation: Equation) -> str:
    """Return the label of a library call: the primitive's name, or the hero's name for a fusion."""
    hero = equation.params.get("hero")
    return equation.primitive.name if hero is None else equation.params["jaxpr"].eqns[hero].primitive.name


def alias_source(equation: Equation, jaxpr: Jaxpr, result: Any) -> Any:
    """Return the operand (or literal) whose bytes a result of an alias fusion shares."""
    sources: dict[Any, Any] = dict(zip(jaxpr.invars, equation.invars, strict=True))
    for inner in jaxpr.eqns:
        (atom,) = inner.invars
        for v in inner.outvars:
            sources[v] = atom if type(atom) is Literal else sources[atom]
    return sources[result]
