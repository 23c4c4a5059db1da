"""Programs: steps that read and write slots. A slot is a piece of memory; what steps do is in order.

A `Slot` is where a value lives. Arguments, results and constants come from outside; temporaries share one block of
memory, by their lifetimes; a pointed slot is wherever a register points at that time, such as the slice of an array
that a loop is at. A `FrameRegister` holds an integer: a loop counter, or an address. Every slot is in one of the
target's memory spaces, and each space has a block of temporaries of its own.

Steps run one after the other, but for those that a `Start` begins: they are over when the `Wait` for their event is. A
program that many devices run has steps at which they `Communicate`.
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
# A handle of a tape: the address of its entries and how many of them it has.
TAPE_BYTES = 16
# Routines that work on the tapes of a run.
TAPE_ROUTINES = ("weft_tape_read", "weft_tape_write", "weft_tape_length")
# The memory space in which kernels and routines find their operands.
DEFAULT_SPACE = "device"
# Iterations of a loop whose count is not known before it runs, where costs are estimated.
ESTIMATED_ITERATIONS = 100


def bytes_of(aval: Any) -> Any:
    """How much memory a value takes: an integer, or an expression if its sizes are symbolic."""
    if isinstance(aval, TapeType):
        return TAPE_BYTES
    count = math.prod(aval.shape)
    return (count if isinstance(count, Expression) else int(count)) * dtypes.storage(aval.dtype).itemsize


class Kind(Enum):
    """Where a slot is."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    POINTED = "pointed"


@dataclass(eq=False)
class FrameRegister:
    """An integer of the call frame, which steps set and read; it gets its index there when memory is planned."""

    name: str
    index: int = -1


class Slot:
    """A piece of memory of `size` bytes. `index` says which argument, result or constant; `offset` is where in its
    block a temporary or a constant is, once memory is planned; `owner` is the loop in whose body it lives; `space` is
    one of the target's memory spaces; its address is a multiple of `alignment`."""

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
    """One action of a program. `reads` and `writes` are the slots that it touches, `bodies` what it contains."""

    label: str = ""
    line: Location | None = None  # the user's line
    origin: Equation | None = None  # the equation of the fused jaxpr that it is for

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
        """Slots that are from now on slices of others: pairs (slice, what it is a slice of)."""
        return ()


@dataclass(eq=False)
class Launch(Step):
    """Run a kernel over slots, one for each of its buffers. `grain` > 0: over threads, so many iterations at a time. Of
    a kernel with symbolic sizes, `sizes` are their values, which its last slot has, `count` the iterations of its loop
    over threads, and `nanoseconds` what it is estimated to take."""

    kernel: Kernel | NamedKernel
    slots: tuple[Slot, ...]
    grain: int = 0
    label: str = ""
    sizes: tuple[int, ...] = ()
    count: int | None = None
    nanoseconds: float | None = None

    @property
    def iterations(self) -> int:
        """How many iterations the kernel's loop over threads has, or 1."""
        count = self.kernel.count if self.count is None else self.count
        assert isinstance(count, int)
        return count

    @property
    def concrete(self) -> Kernel:
        """The kernel at the sizes of this launch; it has no buffer for them."""
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
        """The kernel itself, which a program from disk has only after it was completed."""
        assert isinstance(self.kernel, Kernel), f"{self.kernel.symbol} is known by name only"
        return self.kernel


@dataclass(eq=False)
class Call(Step):
    """Call a routine of a library by name with slots (those in `written` are results or scratch) and integer
    parameters; with `tiles`, over so many tiles in parallel. The routine "host" is a Python function, `host(*operands,
    out=results)`."""

    routine: str
    slots: tuple[Slot, ...]
    written: tuple[Slot, ...]
    parameters: tuple[int, ...] = ()
    tiles: int = 0
    host: Callable[..., Any] | None = None
    types: tuple[tuple[Any, ...], ...] = ()  # for the host: (shape, dtype) of each slot
    results: int = 0  # for the host: how many of the last slots are results
    # For the host, if it wants them: the counters of the loops around, whose values it gets as `iterations`.
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
        """What besides slots it touches, if anything: calls that touch the same stay in their order."""
        if self.routine == "host":
            return "Python"
        return "tapes" if self.routine in TAPE_ROUTINES else ""


@dataclass(eq=False)
class Copy(Step):
    """The first `size` bytes of `source` to `target`."""

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
    """Zeros in `target`."""

    target: Slot
    label: str = "zeros"

    @property
    def writes(self) -> Sequence[Slot]:
        return (self.target,)


@dataclass(eq=False)
class SetAddress(Step):
    """`target` is from now on at `base` + counter * stride: the slice of an array that a loop is at. A slice that is
    not `written` is only read; one that is, is written as a whole before anybody reads it."""

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
    """The body for `counter` from 0 to `count` (an integer, or a slot with an int32), or backwards."""

    counter: FrameRegister
    bound: FrameRegister
    count: int | Slot
    reverse: bool
    body: list[Step]
    token: object  # what slots of the body have as their owner
    label: str = "loop"

    @property
    def reads(self) -> Sequence[Slot]:
        return (self.count,) if isinstance(self.count, Slot) else ()

    @property
    def bodies(self) -> Sequence[list[Step]]:
        return (self.body,)


@dataclass(eq=False)
class While(Step):
    """The body as long as `predicate` (a bool) holds after `condition` ran. `counter`, where somebody reads it, is the
    index of the iteration."""

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
    """One of several blocks, by an index that is clamped; its dtype is `dtype`."""

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
    """A collective: the device stops here, and goes on when all devices of its group have stopped here and the results
    of all of them are computed from the operands of all of them. `equation` has the collective and its parameters;
    `index` is its index in the program. One that is started stops the device twice: it goes on from the `Start` when
    all devices of its process have stopped there, and from the `Wait` when the results are there."""

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
    """What a `Start` and its `Wait` have in common: `step` is what was started."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Step | None = None


@dataclass(eq=False)
class Start(Step):
    """Begin a step (a launch, a call, a copy or a collective) and go on. It is over at the `Wait` for its event, later
    in the same block; until then nobody touches what it writes, nor writes what it reads. An event is started once."""

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
    """Go on when what was started with the event is over. Its slots are those of that step: they are needed until
    now."""

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
    """Steps with their memory. `arguments` and `results` have a slot each; `constants` is the block that constant slots
    are in. `temporary_bytes` is the block of temporaries in the default memory space, `space_bytes` has those of other
    spaces."""

    name: str
    steps: list[Step]
    arguments: list[Slot]
    results: list[Slot]
    # For each result, the donated argument whose memory it is, or None.
    aliases: list[int | None]
    constants: list[np.ndarray]
    constant_slots: list[Slot] = field(default_factory=list)
    temporary_bytes: int = 0
    constant_bytes: int = 0
    registers: int = 0
    nanoseconds: float = 0.0  # of one run on one thread, roughly
    schedules: dict[str, str] = field(default_factory=dict)  # those of its contractions, by their keys
    space_bytes: dict[str, int] = field(default_factory=dict)
    # Of a program that many devices run: the mesh axes whose indices are its last arguments, an int32 each.
    axes: list[Any] = field(default_factory=list)

    @property
    def uses_threads(self) -> bool:
        """Whether a step is shared among threads."""
        return any((isinstance(s, Launch) and s.grain) or (isinstance(s, Call) and s.tiles) for s in self.all_steps())

    @property
    def calls_python(self) -> bool:
        """Whether a step calls a function of Python."""
        return any(isinstance(step, Call) and step.routine == "host" for step in self.all_steps())

    def takes(self, argument: int) -> bool:
        """Whether the memory of an argument is taken over."""
        return self.arguments[argument].donated

    def all_steps(self) -> Iterator[Step]:
        """Every step, also those in loops and branches."""
        yield from nested_steps(self.steps)


# What is told of the steps of a program while the next ones are built, in order, loops and branches with their bodies;
# and for each contraction outside of loops how many equal ones the program has.
Begin = Callable[[Sequence[Step], Mapping[Equation, int]], None]


def nested_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps in order, each before those that it contains; what is started is contained in its `Start`."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from nested_steps(body)
