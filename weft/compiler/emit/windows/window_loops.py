"""Loops over windows, and over the taps of a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.compiler.emit.windows.window_taps import Taps, conjunction, count_phases, phases, running_phase
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.primitives.contraction.convolution_shapes import Window

# Most phases (of all dimensions together) and taps (of a window) that are unrolled; more are loops.
PHASES, TAPS = 16, 32
# The taps of the last dimension are always unrolled up to this many.
LAST_TAPS = 8


class WindowVisit:
    """Visited window: its taps along each dimension, and its index q in its phase."""

    def __init__(self, taps: Sequence[Taps], phase_indices: Sequence[Index]) -> None:
        self.taps = tuple(taps)
        self.phase_indices = tuple(phase_indices)

    @property
    def index(self) -> tuple[Index, ...]:
        """The index of the window along each dimension."""
        return tuple(taps.window(q) for taps, q in zip(self.taps, self.phase_indices, strict=True))

    @property
    def count(self) -> int:
        """How many taps there are (at most)."""
        return prod(taps.count for taps in self.taps)

    @property
    def running(self) -> bool:
        """Whether a phase is known only when the kernel runs."""
        return any(taps.condition is not None for taps in self.taps)

    def operand_index(self, tap: Sequence[Index]) -> tuple[Index, ...]:
        """Return the index of a tap in the operand."""
        rows = zip(self.taps, self.phase_indices, tap, strict=True)
        return tuple(taps.operand_index(q, t) for taps, q, t in rows)

    def is_valid(self, k: KernelBuilder, tap: Sequence[Index]) -> Value | None:
        """Return whether a tap is an element of the operand, or None if it always is."""
        rows = zip(self.taps, self.phase_indices, tap, strict=True)
        checks = [taps.is_valid(k, q, t) for taps, q, t in rows]
        return conjunction(k, [check for check in checks if check is not None])

    def elements(self, tap: Sequence[Index]) -> list[Index]:
        """Return the index of a tap in the window along each dimension."""
        return [taps.element(t) for taps, t in zip(self.taps, tap, strict=True)]


def visit(k: KernelBuilder, windows: Sequence[Window], width: int, body: Callable[[WindowVisit], None]) -> None:
    """Visit every window: lanes along the last dimension that has several, threads over the first."""
    counts = [int(w.count) for w in windows]
    if 0 not in counts:
        _Visit(k, windows, counts, width, body).dimension((), (), True)


class _Visit:
    """Nested loops over windows. Where windows differ in phase along a dimension, the phases are unrolled if there
    are few in all, else they are a loop."""

    def __init__(
        self,
        k: KernelBuilder,
        windows: Sequence[Window],
        counts: Sequence[int],
        width: int,
        body: Callable[[WindowVisit], None],
    ) -> None:
        self.k, self.windows, self.counts, self.width, self.body = k, windows, counts, width, body
        self.lanes = max((axis for axis, count in enumerate(counts) if count > 1), default=-1)
        self.written = prod(map(count_phases, windows)) <= PHASES

    def dimension(self, taps: tuple[Taps, ...], indices: tuple[Index, ...], outermost: bool) -> None:
        """Emit the loops over the next dimension; `taps` and `indices` are those of the enclosing dimensions."""
        axis = len(taps)
        if axis == len(self.windows):
            self.body(WindowVisit([phase.narrow(self.k, q) for phase, q in zip(taps, indices, strict=True)], indices))
            return

        def inner(phase: Taps, q: Index, outermost: bool = False) -> None:
            self.dimension((*taps, phase), (*indices, q), outermost)

        if count_phases(self.windows[axis]) > 1 and not self.written:
            self.loops_of_phases(axis, outermost, inner)
        else:
            self.phases_one_by_one(axis, outermost, inner)

    def loops_of_phases(self, axis: int, outermost: bool, inner: Callable[[Taps, Index], None]) -> None:
        """Write phases as a loop: outside the loop over lanes along this axis, whose lanes then share one phase;
        along other axes inside the loop over windows."""
        k, window, count, period = self.k, self.windows[axis], self.counts[axis], count_phases(self.windows[axis])
        first = LoopKind.THREADS if outermost else LoopKind.SERIAL
        if axis == self.lanes:
            with k.loop(min(period, count), kind=first) as variable:
                phase = running_phase(k, window, Index.of(k.position(variable)))
                room = k.position(Index(count + period - 1) - variable)
                limit = Index.of(k.compute("div", room, k.constant(period, room.dtype)))
                with k.loop(phase.windows, kind=LoopKind.LANES, width=self.width, limit=limit) as q:
                    inner(phase, Index.of(q))
            return
        with k.loop(-(-count // period), kind=first) as q:
            with k.loop(period, limit=Index(count) - q * period) as variable:
                inner(running_phase(k, window, Index.of(variable)), Index.of(q))

    def phases_one_by_one(self, axis: int, outermost: bool, inner: Callable[..., None]) -> None:
        """Write phases unrolled: each with its own loop over lanes, or all in the body of one loop."""
        k, all_phases = self.k, phases(self.windows[axis])
        if axis == self.lanes:
            for phase in all_phases:
                with k.loop(phase.windows, kind=LoopKind.LANES, width=self.width) as q:
                    inner(phase, Index.of(q))
            return
        if all_phases[0].windows == 1:
            for phase in all_phases:
                inner(phase, Index(), outermost and len(all_phases) == 1)
            return
        with k.loop(all_phases[0].windows, kind=LoopKind.THREADS if outermost else LoopKind.SERIAL) as q:
            for phase in all_phases:
                if phase.windows == all_phases[0].windows:
                    inner(phase, Index.of(q))
                    continue
                position = k.position(Index.of(q))
                with k.when(k.compute("lt", position, k.constant(phase.windows, position.dtype))):
                    inner(phase, Index.of(q))


def reduce_taps(
    k: KernelBuilder,
    at: WindowVisit,
    start: Sequence[Value],
    step: Callable[[Sequence[Value], Sequence[Index]], Sequence[Value]],
) -> Sequence[Value]:
    """Visit the taps of a window in order, starting from `start`; `step` returns the values for the next tap."""
    written = at.count <= TAPS

    def inner(axis: int, now: Sequence[Value], tap: tuple[Index, ...]) -> Sequence[Value]:
        if axis == len(at.taps):
            return step(now, tap)
        count = at.taps[axis].count
        if written or count == 1 or (axis == _last_wide(at) and count <= LAST_TAPS):
            for t in range(count):
                now = inner(axis + 1, now, (*tap, Index(t)))
            return now
        with k.loop(count, carries=now) as (variable, inside):
            results = k.carry(*inner(axis + 1, inside, (*tap, Index.of(variable))))
        return results

    return inner(0, tuple(start), ())


def _last_wide(at: WindowVisit) -> int:
    return max((axis for axis, taps in enumerate(at.taps) if taps.count > 1), default=-1)
