"""Plan of the graph of a program: the loops that are unrolled, and the loops and branches that are conditional nodes,
so that the host never waits.

Parameters of the nodes of a graph are fixed. So the slices of arrays that an iteration of a counted loop works on are
copied to memory of the node and back, by the kernel that counts its iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from weft.base.dataclass import dataclass
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
    Communicate,
    Count,
    Loop,
    SetAddress,
    Slot,
    Start,
    Step,
    Wait,
    While,
    nested_steps,
)
from weft.compiler.target.cuda.library.calls import NOT_RECORDED
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.compiler.target.cuda.node_code import THREADS, Advances, Chooses, Holds, SliceCopy

# Most steps of a graph, and of a counted loop that is unrolled in it.
MOST_STEPS = LONGEST = 6000
# Most iterations of a counted loop in the body of its node, and most steps of such a body: each run of a body costs as
# much as some kernels.
TOGETHER, STEPS_TOGETHER = 8, 64
# Most bytes of slices that an iteration copies: it takes microseconds, in which the host starts some kernels.
MOST_COPIED = 8 << 20
# Most blocks of the kernel that copies them.
MOST_BLOCKS = 1024
# First version of the driver that supports a kind of node.
NODES = {"while": 12040, "switch": 12080}
# Alignment of the memory of nodes.
ALIGNMENT = 256


def known_nodes(version: int) -> frozenset[str]:
    """Return the kinds of conditional nodes that a version of the driver supports."""
    return frozenset(kind for kind, first in NODES.items() if version >= first)


@dataclass(frozen=True)
class Decision:
    """`while` loop or branch that is a node."""

    code: Holds | Chooses


@dataclass(frozen=True)
class Counted:
    """Counted loop that is a node, whose body has `together` iterations.

    Its memory is at offsets in that of all nodes: two words for counting, and a copy of each of its slices.
    """

    code: Advances
    together: int
    state: int
    slices: tuple[SetAddress, ...]
    copies: tuple[int, ...]
    counts: tuple[Count, ...]


Node: TypeAlias = Decision | Counted


@dataclass(frozen=True)
class GraphPlan:
    """Graph of some steps: the number of its nodes, the loops and branches that are conditional nodes, and the bytes of
    memory that these need."""

    steps: int
    nodes: Mapping[Step, Node]
    memory: int


class _NotRecorded(Exception):
    """Signal that a step must be started by the host."""


def graph_plan(
    steps: Sequence[Step],
    loops: Mapping[Step, LoopCode],
    kinds: Collection[str],
    alignment_of: Callable[[Slot], int],
) -> GraphPlan | None:
    """Plan the graph of steps with conditional nodes of these kinds; return None if a step must be started by the host.

    Counted loops are unrolled, unless there would be too many steps; those of `loops` are one kernel.
    """
    longest = LONGEST
    while longest:
        planner = _Planner(loops, kinds, alignment_of, longest)
        try:
            total, memory = planner.steps(steps, 0)
        except _NotRecorded:
            return None
        if total <= MOST_STEPS:
            return GraphPlan(total, planner.nodes, memory)
        longest = longest // 4 if kinds else 0
    return None


def is_unrolled(
    steps: Sequence[Step], loops: Mapping[Step, LoopCode], with_collectives: bool = False, least: int = 1
) -> bool:
    """Return whether steps are a graph of at least `least` steps in which all counted loops are unrolled.

    It may contain collectives if one GPU runs alone, so that no other has to start them at the same time.
    """
    try:
        total, _ = _Planner(loops, (), with_collectives=with_collectives).steps(steps, 0)
    except _NotRecorded:
        return False
    return least <= total <= MOST_STEPS


def steps_outside(steps: Sequence[Step], loops: Container[Step]) -> Iterator[Step]:
    """Yield all steps except those inside of loops that are one kernel."""
    for step in steps:
        yield step
        if step not in loops:
            for body in step.bodies:
                yield from steps_outside(body, loops)


class _Planner:
    """Planner that counts the steps of a graph and finds its conditional nodes. Loops of more than `longest` steps are
    not unrolled if they can be nodes."""

    def __init__(
        self,
        loops: Mapping[Step, LoopCode],
        kinds: Collection[str],
        alignment_of: Callable[[Slot], int] | None = None,
        longest: int = 0,
        with_collectives: bool = False,
    ) -> None:
        self.loops, self.kinds, self.alignment_of = loops, kinds, alignment_of
        self.longest, self.with_collectives = longest, with_collectives
        self.nodes: dict[Step, Node] = {}

    def steps(self, steps: Sequence[Step], offset: int) -> tuple[int, int]:
        """Return the number of steps of a block in the graph, and the end of its nodes' memory, which begins at
        `offset`.
        """
        total, end = 0, offset
        for step in steps:
            found, last = self.step(step, offset)
            total, end = total + found, max(end, last)
        return total, end

    def step(self, step: Any, offset: int) -> tuple[int, int]:
        match step:
            case _ if step in self.loops:
                return 1, offset
            case Start():
                return self.step(step.step, offset)
            case Communicate() if not self.with_collectives:
                raise _NotRecorded
            case Call() if step.routine == "host" or step.routine in NOT_RECORDED or step.routine in TAPE_ROUTINES:
                raise _NotRecorded
            case Loop():
                return self.counted_loop(step, offset)
            case While():
                return self.while_loop(step, offset)
            case Branch():
                return self.branch(step, offset)
            case SetAddress() | Wait():
                return 0, offset
        return 1, offset

    def branch(self, step: Branch, offset: int) -> tuple[int, int]:
        code = Chooses(-step.dtype.itemsize if step.dtype.kind == "i" else step.dtype.itemsize, len(step.branches))
        self.node(step, Decision(code))
        found = [self.steps(branch, offset) for branch in step.branches]
        return 2 + sum(total for total, _ in found), max(end for _, end in found)

    def while_loop(self, step: While, offset: int) -> tuple[int, int]:
        self.node(step, Decision(Holds()))
        if step.counter is not None and any(self.reads(inner, step.counter) for inner in self.inside(step)):
            raise _NotRecorded
        (condition, first), (body, second) = self.steps(step.condition, offset), self.steps(step.body, offset)
        return 3 + 2 * condition + body, max(first, second)

    def node(self, step: Step, node: Node) -> None:
        """Make a step a conditional node; raise if that is impossible."""
        if node.code.kind not in self.kinds or any(isinstance(inner, Communicate) for inner in nested_steps([step])):
            raise _NotRecorded
        self.nodes[step] = node

    def inside(self, step: Step) -> Iterator[Step]:
        """Yield the steps in a loop."""
        for body in step.bodies:
            yield from steps_outside(body, self.loops)

    def reads(self, step: Step, counter: Any) -> bool:
        """Return whether a step itself reads a counter."""
        if step in self.loops:
            return counter.index in self.loops[step].counters
        return isinstance(step, SetAddress | Count) and step.counter is counter

    def counted_loop(self, step: Loop, offset: int) -> tuple[int, int]:
        inside, end = self.steps(step.body, offset)
        length = step.count if isinstance(step.count, int) else None
        if length is not None and (length * inside <= self.longest or not self.kinds):
            return length * inside, end
        most = min(STEPS_TOGETHER, self.longest) // max(inside, 1)
        together = 1 if length is None else max(1, min(TOGETHER, most))
        try:
            node, last = self.make_counted_node(step, together, end)
            self.node(step, node)
        except _NotRecorded:
            if length is None or length * inside > MOST_STEPS:
                raise
            return length * inside, end
        alone = 0 if length is None else length % together
        return 3 + (alone + together) * (inside + 1), last

    def make_counted_node(self, step: Loop, together: int, offset: int) -> tuple[Counted, int]:
        """Return the node of a counted loop, whose memory begins at `offset`, and the end of that memory."""
        if Advances.kind not in self.kinds:
            raise _NotRecorded
        inside = list(self.inside(step))
        readers = [inner for inner in inside if self.reads(inner, step.counter)]
        slices = [inner for inner in readers if isinstance(inner, SetAddress)]
        # The kernel writes the index if the body would do so first.
        counts = [inner for inner in _leading(step.body) if isinstance(inner, Count) and inner in readers]
        moving = {inner.target for inner in inside if isinstance(inner, SetAddress)}
        if len(slices) + len(counts) < len(readers) or any(each.base in moving for each in slices):
            raise _NotRecorded
        if sum(each.target.size for each in slices) > MOST_COPIED:
            raise _NotRecorded
        widths = [self.width(each) for each in slices]
        elements = sum(each.target.size // width for each, width in zip(slices, widths, strict=True))
        code = Advances(
            tuple(SliceCopy(each.written, width) for each, width in zip(slices, widths, strict=True)),
            len(counts),
            isinstance(step.count, Slot),
            step.reverse,
            min(1 << (max(-(-elements // THREADS), 1) - 1).bit_length(), MOST_BLOCKS),
        )
        copies, end = [], offset + ALIGNMENT
        for each in slices:
            copies.append(end)
            end += -(-each.target.size // ALIGNMENT) * ALIGNMENT
        return Counted(code, together, offset, tuple(slices), tuple(copies), tuple(counts)), end

    def width(self, step: SetAddress) -> int:
        """Return the size of the words in which a slice is copied."""
        assert self.alignment_of is not None
        return math.gcd(16, self.alignment_of(step.base), step.stride, step.target.size)


def _leading(body: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps of a body before the first one that does work."""
    for step in body:
        if not isinstance(step, SetAddress | Count):
            return
        yield step
