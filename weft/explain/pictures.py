"""Pictures of an explanation, as SVG: the roofline, and memory over time."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 40


class Axis:
    """From values to coordinates in a picture."""

    def __init__(self, low: float, high: float, start: float, stop: float, logarithmic: bool = False) -> None:
        self.low, self.high, self.start, self.stop, self.logarithmic = low, high, start, stop, logarithmic

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(max(n, 1e-300)) for n in (value, low, high))
        fraction = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + min(max(fraction, 0.0), 1.0) * (self.stop - self.start), 2)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        return [self.low + (self.high - self.low) * part / 4 for part in range(5)]


def roofline(data: dict[str, Any]) -> str:
    """Draw work per second over work per byte: the machine's limits as lines, a point for each step that computes."""
    limits = data["limits"]
    points = []
    for step in data["steps"]:
        accessed = step["read"] + step["written"]
        if step["seconds"] and step["work"] and accessed:
            points.append((step, step["work"] / accessed, step["work"] / step["seconds"]))
    peak, rates = limits["flops"], dict.fromkeys(rate for _, rate in reversed(limits["bandwidths"]))
    ridge = peak / min(rates)
    xs = [*(x for _, x, _ in points), ridge, peak / max(rates)]
    ys = [*(y for _, _, y in points), peak, limits["call_flops"] or peak]
    x = Axis(min(xs) / 4, max(xs) * 4, LEFT, WIDTH - RIGHT, True)
    y = Axis(min(min(ys) / 4, peak / 1000), max(ys) * 2, HEIGHT - BOTTOM, TOP, True)
    parts = [_frame(x, y, "work for each byte moved", lambda n: f"{n:g}", lambda n: _si(n, "op/s"))]
    names = {limits["bandwidths"][0][1]: "cache", limits["bandwidths"][-1][1]: "memory"}
    for rate in rates:
        corner = peak / rate
        kind = names.get(rate, "")
        title = f"{kind or 'cache'}: {_si(rate, 'B/s')}"
        parts.append(_line(x(x.low), y(x.low * rate), x(corner), y(peak), "roof" if kind else "roof faint", title))
    parts.append(_line(x(ridge / 1e6), y(peak), x(x.high), y(peak), "roof", f"peak: {_si(peak, 'flop/s')}"))
    if limits["call_flops"]:
        height = y(limits["call_flops"])
        title = f"peak of libraries: {_si(limits['call_flops'], 'flop/s')}"
        parts.append(_line(x(x.low), height, x(x.high), height, "roof faint", title))
    for step, intensity, rate in points:
        title = f"{step['name']}: {_si(rate, 'op/s')}, {100 * step['share']:.0f}% of the limit"
        parts.append(
            f'<circle class="item" data-id="{step["id"]}" cx="{x(intensity)}" cy="{y(rate)}" r="6">'
            f"<title>{html.escape(title)}</title></circle>"
        )
    return _svg("roofline", parts)


def memory(data: dict[str, Any]) -> str:
    """Draw temporaries as boxes (lifetime, position in the block), and live bytes as a line."""
    about = data["memory"]
    top = max(about["temporaries"], 1)
    x = Axis(1, about["end"] + 1, LEFT, WIDTH - RIGHT)
    y = Axis(0, top, HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, "steps", lambda n: f"{n:.0f}", lambda n: _si(n, "B"))]
    for slot in about["slots"]:
        left, right = x(slot["first"]), x(slot["last"] + 1)
        upper, lower = y(slot["offset"] + slot["size"]), y(slot["offset"])
        title = f"{_si(slot['size'], 'B')} at {slot['offset']}, steps {slot['first']} to {slot['last']}"
        parts.append(
            f'<rect class="item slot" data-id="{slot["id"]}" x="{left}" y="{upper}" width="{max(right - left, 1):.2f}" '
            f'height="{max(lower - upper, 0.5):.2f}"><title>{html.escape(title)}</title></rect>'
        )
    corners = [f"{x(n)},{y(live)} {x(n + 1)},{y(live)}" for n, live in enumerate(about["live"], 1)]
    parts.append(f'<polyline class="live" points="{" ".join(corners)}"/>')
    return _svg("memory", parts)


def _svg(name: str, parts: Sequence[str]) -> str:
    return f'<svg id="{name}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, title: str) -> str:
    name = html.escape(title)
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"><title>{name}</title></line>'


def _frame(x: Axis, y: Axis, label: str, show_x: Any, show_y: Any) -> str:
    """Draw axes with their ticks."""
    bottom = HEIGHT - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>']
    for tick in x.ticks():
        parts.append(f'<text class="tick" x="{x(tick)}" y="{bottom + 16}" text-anchor="middle">{show_x(tick)}</text>')
    for tick in y.ticks():
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{show_y(tick)}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{label}</text>')
    return "".join(parts)


def _si(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
