"""Which elements of an operand a window reads, as indices that are affine in the window's index.

Along one dimension, element r of window o is at index (o * stride + r * rhs_dilation - low) / dilation of the operand,
if that is an integer and an index of the operand. Windows are taken in phases, o = phase + period * q, so that the same
r hit integers for all q. These are the taps: r = first + step * t, at an index that is affine in q and t. So what is
not read is never visited, and nothing is divided for each element.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.dtypes import bool_ as BOOL
from weft.compiler.emit.indices import INT64
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value
from weft.primitives.contraction.convolution_shapes import Window

# A window with this many times more taps than the operand has elements is narrowed.
NARROWED = 4


@dataclass(frozen=True)
class Taps:
    """The taps of the windows `phase + period * q`, q below `windows`, along one dimension of `size` elements.

    There are `count`; tap t of window q is at `base + per_window * q + per_tap * t`, and is the element `first + step *
    t` of its window. `lowest` and `highest` bound the base. With a condition, taps are taken only where it holds, and
    only those whose element is below `elements`.
    """

    size: int
    elements: int
    windows: int
    phase: Index
    period: int
    count: int
    base: Index
    per_window: int
    per_tap: int
    first: Index
    step: int
    lowest: int
    highest: int
    condition: Value | None = None

    def window(self, q: Index) -> Index:
        """Return the index of a window."""
        return q * self.period + self.phase

    def operand_index(self, q: Index, t: Index) -> Index:
        """Return the index of a tap in the operand."""
        return q * self.per_window + t * self.per_tap + self.base

    def element(self, t: Index) -> Index:
        """Return the index of a tap among all elements of its window."""
        return t * self.step + self.first

    def is_valid(self, k: KernelBuilder, q: Index, t: Index) -> Value | None:
        """Return whether a tap is an element of the operand, or None if it always is."""
        low, high = self.lowest, self.highest
        for i, stride, count in ((q, self.per_window, self.windows), (t, self.per_tap, self.count)):
            last = stride * (count - 1)
            low += i.constant * stride if not i.terms else min(0, last)
            high += i.constant * stride if not i.terms else max(0, last)
        checks = [] if self.condition is None else [self.condition]
        if self.condition is not None:
            checks.append(_compare(k, self.element(t), "lt", self.elements))
        if low < 0:
            checks.append(_compare(k, self.operand_index(q, t), "ge", 0))
        if high >= self.size:
            checks.append(_compare(k, self.operand_index(q, t), "lt", self.size))
        return conjunction(k, checks)

    def narrow(self, k: KernelBuilder, q: Index) -> Taps:
        """Narrow the taps of window q to those that can be elements of the operand, if these are few: from the first
        that is not before it, as many as the operand has elements. Return the taps unchanged if that is no gain.
        """
        room = -(-self.size // self.per_tap)
        if self.count < NARROWED * max(room, 1):
            return self

        def compute(op: str, x: Value, constant: int) -> Value:
            return k.compute(op, x, k.constant(constant, INT64))

        before = compute("max", k.position(self.operand_index(q, Index()) * -1), 0)
        skipped = Index.of(compute("div", compute("add", before, self.per_tap - 1), self.per_tap))
        return replace(
            self,
            count=room,
            base=self.base + skipped * self.per_tap,
            first=self.first + skipped * self.step,
            lowest=0,
            highest=self.size,
            condition=k.constant(True, BOOL) if self.condition is None else self.condition,
        )


def _compare(k: KernelBuilder, index: Index, op: str, bound: int) -> Value:
    return k.compute(op, k.position(index), k.constant(bound, INT64))


def conjunction(k: KernelBuilder, checks: list[Value]) -> Value | None:
    """Return the conjunction of conditions, or None for an empty list."""
    result: Value | None = None
    for check in checks:
        result = check if result is None else k.compute("and", result, check)
    return result


def count_phases(window: Window) -> int:
    """Return the number of phases."""
    return window.lhs_dilation // gcd(window.stride, window.lhs_dilation)


def phases(window: Window) -> list[Taps]:
    """Return the taps of each phase of the windows along one dimension."""
    count, dilation = _static(window.count), window.lhs_dilation
    wanted, low = _static(window.window), _static(window.low)
    period = count_phases(window)
    step = dilation // gcd(window.rhs_dilation, dilation)
    result = []
    for phase in range(min(period, count)):
        shift = phase * window.stride - low
        hits = [r for r in range(min(step, wanted)) if (shift + r * window.rhs_dilation) % dilation == 0]
        first = hits[0] if hits else 0
        base = (shift + first * window.rhs_dilation) // dilation
        result.append(
            Taps(
                size=_static(window.size),
                elements=wanted,
                windows=-(-(count - phase) // period),
                phase=Index(phase),
                period=period,
                count=-(-(wanted - first) // step) if hits else 0,
                base=Index(base),
                per_window=period * window.stride // dilation,
                per_tap=step * window.rhs_dilation // dilation,
                first=Index(first),
                step=step,
                lowest=base,
                highest=base,
            )
        )
    return result


def running_phase(k: KernelBuilder, window: Window, phase: Index) -> Taps:
    """Return the taps of a phase whose index is a loop variable, where there are too many phases to unroll."""
    count, dilation, stride = _static(window.count), window.lhs_dilation, window.stride
    wanted, low, rhs_dilation = _static(window.window), _static(window.low), window.rhs_dilation
    period, common = count_phases(window), gcd(rhs_dilation, dilation)
    step = dilation // common

    def compute(op: str, x: Value, constant: int) -> Value:
        return k.compute(op, x, k.constant(constant, INT64))

    # The least r with (phase * stride - low + r * rhs_dilation) % dilation == 0, if there is one. A multiple of the
    # dilation is added so that all dividends are positive.
    above = (period * stride // dilation + 1 + abs(low) // dilation + 1) * dilation
    missing = compute("rem", k.position(Index(low + above) - phase * stride), dilation)
    condition = compute("eq", compute("rem", missing, common), 0)
    inverse = pow(rhs_dilation // common, -1, step) if step > 1 else 0
    first = compute("rem", compute("mul", compute("div", missing, common), inverse), step)
    shifted = k.position(phase * stride + Index.of(first) * rhs_dilation + (above - low))
    base = Index.of(compute("div", shifted, dilation)) - above // dilation
    return Taps(
        size=_static(window.size),
        elements=wanted,
        windows=-(-count // period),
        phase=phase,
        period=period,
        count=-(-wanted // step),
        base=base,
        per_window=period * stride // dilation,
        per_tap=step * rhs_dilation // dilation,
        first=Index.of(first),
        step=step,
        lowest=-(-low // dilation) - 1 if low < 0 else -(low // dilation) - 1,
        highest=((period - 1) * stride - low + (step - 1) * rhs_dilation) // dilation,
        condition=condition,
    )


def transpose(window: Window) -> Window:
    """Return the windows over windows: for each element of the operand, the windows that read it, in their order.
    Element r of such a window is the element `window - 1 - r` of the original window.
    """
    return Window(
        window.count, window.window, window.lhs_dilation, *window.pads_for_lhs(), window.stride, window.rhs_dilation
    )


def _static(size: Any) -> int:
    return int(size)
