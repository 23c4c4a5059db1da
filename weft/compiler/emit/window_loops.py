"""Loops over windows, and over the elements of a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.compiler.emit.window_taps import Taps, all_of, period_of, phases, running_phase
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kind, Value
from weft.ops.convolution_shapes import Window

# Phases are written out if there are at most so many of all dimensions together, taps if a window has at most so many;
# else they are loops.
PHASES, TAPS = 16, 32
# The taps of the last dimension are written out, in any case, up to so many.
LAST_TAPS = 8


class At:
    """A window that is visited: its taps along each dimension, and its number q among those of its phase."""

    def __init__(self, taps: Sequence[Taps], numbers: Sequence[Index]) -> None:
        self.taps = tuple(taps)
        self.numbers = tuple(numbers)

    @property
    def index(self) -> tuple[Index, ...]:
        """The number of the window along each dimension."""
        return tuple(taps.window(q) for taps, q in zip(self.taps, self.numbers, strict=True))

    @property
    def count(self) -> int:
        """How many taps there are (at most)."""
        return prod(taps.count for taps in self.taps)

    @property
    def running(self) -> bool:
        """Whether a phase is known only when the kernel runs."""
        return any(taps.condition is not None for taps in self.taps)

    def place(self, tap: Sequence[Index]) -> tuple[Index, ...]:
        """Where a tap is in the operand."""
        rows = zip(self.taps, self.numbers, tap, strict=True)
        return tuple(taps.place(q, t) for taps, q, t in rows)

    def taken(self, k: KernelBuilder, tap: Sequence[Index]) -> Value | None:
        """Whether a tap is an element of the operand; None if it always is."""
        rows = zip(self.taps, self.numbers, tap, strict=True)
        checks = [taps.taken(k, q, t) for taps, q, t in rows]
        return all_of(k, [check for check in checks if check is not None])

    def elements(self, tap: Sequence[Index]) -> list[Index]:
        """The number of a tap in the window along each dimension."""
        return [taps.element(t) for taps, t in zip(self.taps, tap, strict=True)]


def visit(k: KernelBuilder, windows: Sequence[Window], width: int, body: Callable[[At], None]) -> None:
    """Visit every window: lanes along the last dimension that has several, threads over the first."""
    counts = [int(w.count) for w in windows]  # type: ignore[arg-type]
    if 0 in counts:
        return
    lanes = max((axis for axis, count in enumerate(counts) if count > 1), default=-1)
    written = prod(map(period_of, windows)) <= PHASES

    def next_axis(axis: int, taps: tuple[Taps, ...], numbers: tuple[Index, ...], outermost: bool) -> None:
        if axis == len(windows):
            body(At([phase.narrowed(k, q) for phase, q in zip(taps, numbers, strict=True)], numbers))
            return
        window, period = windows[axis], period_of(windows[axis])
        first = Kind.THREADS if outermost else Kind.SERIAL

        def inner(phase: Taps, q: Index, outermost: bool) -> None:
            next_axis(axis + 1, (*taps, phase), (*numbers, q), outermost)

        if period > 1 and not written:
            if axis == lanes:
                with k.loop(min(period, counts[axis]), kind=first) as number:
                    phase = running_phase(k, window, Index.of(k.position(number)))
                    room = k.position(Index(counts[axis] + period - 1) - number)
                    limit = Index.of(k.compute("div", room, k.constant(period, room.dtype)))
                    with k.loop(phase.windows, kind=Kind.LANES, width=width, limit=limit) as q:
                        inner(phase, Index.of(q), False)
                return
            with k.loop(-(-counts[axis] // period), kind=first) as q:
                with k.loop(period, limit=Index(counts[axis]) - q * period) as number:
                    inner(running_phase(k, window, Index.of(number)), Index.of(q), False)
            return
        all_phases = phases(window)
        if axis == lanes:
            for phase in all_phases:
                with k.loop(phase.windows, kind=Kind.LANES, width=width) as q:
                    inner(phase, Index.of(q), False)
        elif all_phases[0].windows == 1:
            for phase in all_phases:
                inner(phase, Index(), outermost and len(all_phases) == 1)
        else:
            with k.loop(all_phases[0].windows, kind=first) as q:
                for phase in all_phases:
                    if phase.windows == all_phases[0].windows:
                        inner(phase, Index.of(q), False)
                        continue
                    number = k.position(Index.of(q))
                    with k.when(k.compute("lt", number, k.constant(phase.windows, number.dtype))):
                        inner(phase, Index.of(q), False)

    next_axis(0, (), (), True)


def fold_taps(
    k: KernelBuilder,
    at: At,
    start: Sequence[Value],
    step: Callable[[Sequence[Value], Sequence[Index]], Sequence[Value]],
) -> Sequence[Value]:
    """Go through the taps of a window in order, from `start`; `step` gives what the next tap starts from."""
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


def _last_wide(at: At) -> int:
    return max((axis for axis, taps in enumerate(at.taps) if taps.count > 1), default=-1)
