"""Programs: ordered steps that read and write slots of memory.

A `Slot` is the memory of a value. Arguments, results and constants come from outside; temporaries share one block of
memory according to their lifetimes; a pointed slot has the address that a register holds at that time, such as the
slice of a scanned array in the current iteration. A `FrameRegister` holds an integer: a loop counter or an address.
Every slot is in one of the target's memory spaces, and each space has its own block of temporaries.

Steps run one after the other, except those begun by a `Start`: they complete at the `Wait` for their event. Programs
that run on several devices contain `Communicate` steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.kernel.sizes import at_values
from weft.indexing.expression import Expression
from weft.ir.jaxpr import Equation
from weft.ir.types import TapeType

ALIGNMENT = 64
# Size of a tape handle: the address of its entries and their count.
TAPE_BYTES = 16
# Library routines that read or change the tapes of a run.
TAPE_ROUTINES = ("weft_tape_read", "weft_tape_write", "weft_tape_length")
# The memory space in which kernels and routines find their operands.
DEFAULT_SPACE = "device"
# Iterations assumed by cost estimates for loops whose trip count is known only at run time.
ESTIMATED_ITERATIONS = 100


def byte_size(aval: Any) -> Any:
    """Return the size of a value in bytes: an integer, or an expression if its shape is symbolic."""
    if isinstance(aval, TapeType):
        return TAPE_BYTES
    count = math.prod(aval.shape)
    return (count if isinstance(count, Expression) else int(count)) * dtypes.storage(aval.dtype).itemsize


class Kind(Enum):
    """Origin of a slot's memory."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    POINTED = "pointed"


@dataclass(eq=False)
class FrameRegister:
    """An integer of the call frame that steps set and read. Memory assignment sets its `index` in the frame."""

    name: str
    index: int = -1


class Slot:
    """A piece of memory of `size` bytes.

    `index` is the position of the argument, result or constant; `offset` the byte offset of a temporary or constant in
    its block, valid after memory assignment; `owner` the token of the loop whose body it lives in; `space` one of the
    target's memory spaces. The address is a multiple of `alignment`.
    """

    __slots__ = ("alignment", "donated", "index", "kind", "offset", "owner", "register", "size", "space")

    def __init__(
        self,
        kind: Kind,
        size: int,
        index: int = -1,
        owner: Any = None,
        register: FrameRegister | None = None,
        donated: bool = False,
        space: str = DEFAULT_SPACE,
        alignment: int = ALIGNMENT,
    ) -> None:
        self.kind, self.size, self.index, self.owner, self.register = kind, size, index, owner, register
        self.donated, self.space, self.alignment = donated, space, alignment
        self.offset = 0

    def __repr__(self) -> str:
        space = "" if self.space == DEFAULT_SPACE else f" {self.space}"
        return f"{self.kind.value}{'' if self.index < 0 else self.index}[{self.size}{space}]"


class Step:
    """One action of a program. `reads` and `writes` are the slots that it accesses, `bodies` the blocks of steps inside
    it.
    """

    label: str = ""
    line: Location | None = None  # source line in user code
    origin: Equation | None = None  # the equation of the fused jaxpr that it was built for

    @property
    def reads(self) -> Sequence[Slot]:
        return ()

    @property
    def writes(self) -> Sequence[Slot]:
        return ()

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return ()

    @property
    def slices(self) -> Sequence[tuple[Slot, Slot]]:
        """Pairs (slice, base): from this step on, the first slot is a slice of the second."""
        return ()


@dataclass(eq=False)
class Launch(Step):
    """Run a kernel over slots, one for each of its buffers.

    With `grain` > 0, its loop over threads is split into tasks of `grain` iterations. For a kernel with symbolic sizes,
    `sizes` are their values (also stored in its last slot), `count` is the trip count of its loop over threads, and
    `nanoseconds` its estimated time.
    """

    kernel: Kernel | NamedKernel
    slots: tuple[Slot, ...]
    grain: int = 0
    label: str = ""
    sizes: tuple[int, ...] = ()
    count: int | None = None
    nanoseconds: float | None = None

    @property
    def iterations(self) -> int:
        """Trip count of the kernel's loop over threads, or 1."""
        count = self.kernel.count if self.count is None else self.count
        assert isinstance(count, int)
        return count

    @property
    def concrete(self) -> Kernel:
        """The kernel specialised to the sizes of this launch, without a buffer for them."""
        kernel = self.full
        if all(isinstance(b.size, int) for b in kernel.buffers) and not kernel.sizes:
            return kernel
        others = kernel.buffers[: len(kernel.buffers) - bool(kernel.sizes)]
        elements = [s.size // b.dtype.itemsize for s, b in zip(self.slots, others, strict=False)]
        return at_values(kernel, dict(zip(kernel.sizes, self.sizes, strict=True)), elements)

    @property
    def reads(self) -> Sequence[Slot]:
        return self.slots

    @property
    def writes(self) -> Sequence[Slot]:
        return [s for s, b in zip(self.slots, self.full.buffers, strict=True) if b.written]

    @property
    def full(self) -> Kernel:
        """The kernel with its body. A program loaded from disk has it only after `stored.complete`."""
        assert isinstance(self.kernel, Kernel), f"{self.kernel.symbol} is known by name only"
        return self.kernel


@dataclass(eq=False)
class Call(Step):
    """Call a library routine by name with slots and integer parameters.

    The slots in `written` are results or scratch memory. With `tiles`, the call is split into that many tiles that run
    in parallel. The routine "host" is a Python function, called as `host(*operands, out=results)`.
    """

    routine: str
    slots: tuple[Slot, ...]
    written: tuple[Slot, ...]
    parameters: tuple[int, ...] = ()
    tiles: int = 0
    host: Callable[..., Any] | None = None
    types: tuple[tuple[Any, ...], ...] = ()  # host only: (shape, dtype) of each slot
    results: int = 0  # host only: number of results, which are the last slots
    # Host only: counters of the enclosing loops, whose values are passed as `iterations`; None to omit that argument.
    counters: tuple[FrameRegister, ...] | None = None
    label: str = ""

    @property
    def reads(self) -> Sequence[Slot]:
        return self.slots

    @property
    def writes(self) -> Sequence[Slot]:
        return self.written

    @property
    def ordered_with(self) -> str:
        """Name of the state besides slots that the routine changes, or "".

        Calls with the same name keep their order.
        """
        if self.routine == "host":
            return "Python"
        return "tapes" if self.routine in TAPE_ROUTINES else ""


@dataclass(eq=False)
class Copy(Step):
    """Copy the first `size` bytes of `source` to `target`."""

    target: Slot
    source: Slot
    size: int
    label: str = "copy"

    @property
    def reads(self) -> Sequence[Slot]:
        return (self.source,)

    @property
    def writes(self) -> Sequence[Slot]:
        return (self.target,)


@dataclass(eq=False)
class Fill(Step):
    """Fill `target` with zeros."""

    target: Slot
    label: str = "zeros"

    @property
    def writes(self) -> Sequence[Slot]:
        return (self.target,)


@dataclass(eq=False)
class SetAddress(Step):
    """Point `target` at `base` + counter * stride, for example at the slice of an array for the current iteration.

    A slice that is not `written` is only read. A slice that is `written` is overwritten as a whole before any read.
    """

    target: Slot
    base: Slot
    counter: FrameRegister
    stride: int
    written: bool = False
    label: str = "point"

    @property
    def reads(self) -> Sequence[Slot]:
        return (self.base,)

    @property
    def slices(self) -> Sequence[tuple[Slot, Slot]]:
        return ((self.target, self.base),)


@dataclass(eq=False)
class Count(Step):
    """Write a counter to memory, as an int32."""

    target: Slot
    counter: FrameRegister
    label: str = "count"

    @property
    def writes(self) -> Sequence[Slot]:
        return (self.target,)


@dataclass(eq=False)
class Loop(Step):
    """Run the body for `counter` from 0 to `count` (an integer, or a slot with an int32), or in reverse."""

    counter: FrameRegister
    bound: FrameRegister
    count: int | Slot
    reverse: bool
    body: list[Step]
    token: object  # the owner of the slots that live in the body
    label: str = "loop"

    @property
    def reads(self) -> Sequence[Slot]:
        return (self.count,) if isinstance(self.count, Slot) else ()

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return (self.body,)


@dataclass(eq=False)
class While(Step):
    """Run the body as long as `predicate` (a bool) holds after `condition` ran. `counter` is the index of the
    iteration, or None if no step reads it.
    """

    condition: list[Step]
    predicate: Slot
    test: FrameRegister
    body: list[Step]
    token: object
    counter: FrameRegister | None = None
    label: str = "while"

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return (self.condition, self.body)


@dataclass(eq=False)
class Branch(Step):
    """Run one of several blocks. The index is clamped to them; its dtype is `dtype`."""

    index: Slot
    dtype: np.dtype[Any]
    choice: FrameRegister
    branches: list[list[Step]]
    label: str = "branch"

    @property
    def reads(self) -> Sequence[Slot]:
        return (self.index,)

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return self.branches


@dataclass(eq=False)
class Communicate(Step):
    """A collective step: wait for all devices of the group, then compute the results from the operands of all of them.

    `equation` is the collective with its parameters, `index` its position in the program. A started collective
    synchronises twice: the device passes the `Start` when all devices of its process have reached it, and the `Wait`
    when the results are available.
    """

    equation: Equation
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    index: int
    label: str = ""

    @property
    def reads(self) -> Sequence[Slot]:
        return self.operands

    @property
    def writes(self) -> Sequence[Slot]:
        return self.results


class Event:
    """Links a `Start` with its `Wait`. `step` is the started step."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Step | None = None


@dataclass(eq=False)
class Start(Step):
    """Begin a step (a launch, a call, a copy or a collective) without waiting for its end.

    It completes at the `Wait` for its event, later in the same block. Until then no step may access its writes or write
    its reads. An event is started once.
    """

    step: Step
    event: Event
    label: str = ""

    def __post_init__(self) -> None:
        self.label = self.label or self.step.label
        self.line, self.origin = self.step.line, self.step.origin
        if self.event.step is None:
            self.event.step = self.step

    @property
    def reads(self) -> Sequence[Slot]:
        return self.step.reads

    @property
    def writes(self) -> Sequence[Slot]:
        return self.step.writes

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return ([self.step],)


@dataclass(eq=False)
class Wait(Step):
    """Wait for the step that was started with the event. Reads and writes are those of that step, since its slots stay
    live until here.
    """

    event: Event
    label: str = "wait"

    @property
    def reads(self) -> Sequence[Slot]:
        return () if self.event.step is None else self.event.step.reads

    @property
    def writes(self) -> Sequence[Slot]:
        return () if self.event.step is None else self.event.step.writes


@dataclass
class Program:
    """Steps with their memory.

    `arguments` and `results` have a slot each; `constants` are the values of `constant_slots`. `temporary_bytes` is the
    size of the block of temporaries in the default memory space, `space_bytes` has the sizes for the other spaces.
    """

    name: str
    steps: list[Step]
    arguments: list[Slot]
    results: list[Slot]
    # For each result, the index of the donated argument that it shares memory with, or None.
    aliases: list[int | None]
    constants: list[np.ndarray]
    constant_slots: list[Slot] = field(default_factory=list)
    temporary_bytes: int = 0
    constant_bytes: int = 0
    registers: int = 0
    nanoseconds: float = 0.0  # estimated time of one run on one thread
    schedules: dict[str, str] = field(default_factory=dict)  # schedules of its contractions, by their keys
    space_bytes: dict[str, int] = field(default_factory=dict)
    # For programs on several devices: mesh axes whose indices are passed as the last arguments, an int32 each.
    axes: list[Any] = field(default_factory=list)

    @property
    def uses_threads(self) -> bool:
        """Whether a step is split into tasks for several threads."""
        return any((isinstance(s, Launch) and s.grain) or (isinstance(s, Call) and s.tiles) for s in self.all_steps())

    @property
    def calls_python(self) -> bool:
        """Whether a step calls a Python function."""
        return any(isinstance(step, Call) and step.routine == "host" for step in self.all_steps())

    def takes(self, argument: int) -> bool:
        """Return whether an argument is donated."""
        return self.arguments[argument].donated

    def all_steps(self) -> Iterator[Step]:
        """Iterate over all steps, including those in loops and branches."""
        yield from nested_steps(self.steps)


# Callback that receives steps in order while later ones are still being built (loops and branches with their bodies),
# and for each contraction outside of loops the number of equal ones in the program.
Begin = Callable[[Sequence[Step], Mapping[Equation, int]], None]


def nested_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Iterate over steps in order, each before the steps inside it. A `Start` contains the step that it starts."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from nested_steps(body)
