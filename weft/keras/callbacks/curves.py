"""Curves of the logs as a picture that is written again after each epoch."""

from __future__ import annotations

import html
import math
import os
import time
from collections.abc import Mapping, Sequence

from weft.keras.callbacks.base import Callback, Logs

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 520, 300, 64, 28, 36, 150
Curve = tuple[Sequence[float], Sequence[float]]


class LiveCurves(Callback):
    """Writes curves of losses and metrics to a file that a browser shows: `.html` reloads itself, `.svg` is a picture.

    Args:
        filepath: where to; it is replaced at once, never half written.
        interval: seconds between two files within an epoch.
        logarithmic: whether the axis of losses is logarithmic.

    >>> from weft.keras.callbacks.curves import svg_curves
    >>> svg_curves({"loss": ([0, 1], [2.0, 1.0])}, title="losses")[:4]
    '<svg'
    """

    def __init__(self, filepath: str | os.PathLike[str], interval: float = 2.0, logarithmic: bool = False) -> None:
        super().__init__()
        self.filepath = os.fspath(filepath)
        if not self.filepath.endswith((".html", ".svg")):
            raise ValueError(f"LiveCurves: filepath must end with .html or .svg, received {self.filepath!r}")
        self.interval = interval
        self.logarithmic = logarithmic
        self.curves: dict[str, tuple[list[float], list[float]]] = {}
        self._epoch = 0
        self._written = 0.0

    def get_state(self) -> Logs:
        return {"curves": {name: [list(x), list(y)] for name, (x, y) in self.curves.items()}}

    def set_state(self, state: Logs) -> None:
        self.curves = {name: (list(x), list(y)) for name, (x, y) in state["curves"].items()}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.curves = {}

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        steps = (self.params or {}).get("steps")
        if not logs or not steps or time.monotonic() - self._written < self.interval:
            return
        # Running means of an epoch that is not over: a point between two epochs, dropped when the epoch ends.
        unfinished = {name: (list(x), list(y)) for name, (x, y) in self.curves.items()}
        _add(unfinished, self._epoch + (batch + 1) / steps, logs)
        self._write(unfinished, running=True)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        _add(self.curves, epoch + 1, logs or {})
        self._write(self.curves, running=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._write(self.curves, running=False)

    def picture(self, curves: Mapping[str, Curve] | None = None) -> list[str]:
        """Draw the curves as SVG: one picture of the losses, and one of all other metrics."""
        curves = self.curves if curves is None else curves
        losses = {name: curve for name, curve in curves.items() if name.endswith("loss")}
        others = {name: curve for name, curve in curves.items() if name not in losses}
        pictures = [svg_curves(losses, "losses", self.logarithmic)] if losses else []
        return pictures + ([svg_curves(others, "metrics")] if others else [])

    def _write(self, curves: Mapping[str, Curve], running: bool) -> None:
        self._written = time.monotonic()
        if not self.is_writer:
            return
        pictures = self.picture(curves)
        if self.filepath.endswith(".svg"):
            text = stack_pictures(pictures)
        else:
            name = html.escape(str(getattr(self.model, "name", "training")))
            again = f'<meta http-equiv="refresh" content="{max(1, round(self.interval))}">' if running else ""
            text = (
                f'<!doctype html><html><head><meta charset="utf-8">{again}<title>{name}</title></head>'
                f"<body><h1>{name}</h1>{''.join(pictures)}</body></html>"
            )
        os.makedirs(os.path.dirname(self.filepath) or ".", exist_ok=True)
        beside = f"{self.filepath}.{os.getpid()}.part"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, self.filepath)


def _add(curves: dict[str, tuple[list[float], list[float]]], x: float, logs: Logs) -> None:
    for name, value in logs.items():
        if isinstance(value, float | int):
            xs, ys = curves.setdefault(name, ([], []))
            xs.append(float(x))
            ys.append(float(value))


def stack_pictures(pictures: Sequence[str]) -> str:
    """Stack SVG pictures vertically into one."""
    inner = "".join(picture.replace("<svg ", f'<svg y="{i * HEIGHT}" ', 1) for i, picture in enumerate(pictures))
    size = f'width="{WIDTH}" height="{max(1, len(pictures)) * HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inner}</svg>'


def svg_curves(
    curves: Mapping[str, Curve], title: str = "", logarithmic: bool = False, across_label: str = "epoch"
) -> str:
    """Draw curves over the same axis as SVG.

    Args:
        curves: by name, the horizontal and vertical coordinates. Values that are not finite are left out.
        title: written above.
        logarithmic: whether the vertical axis is logarithmic; values that are not positive are left out then.
        across_label: written below the horizontal axis.

    Returns:
        The text of an `svg` element.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, (xs, ys) in curves.items():
        points = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y) and (y > 0 or not logarithmic)]
        lines[name] = [(x, math.log10(y) if logarithmic else y) for x, y in points]
    every = [point for points in lines.values() for point in points] or [(0.0, 0.0), (1.0, 1.0)]
    x0, x1 = _span([x for x, _ in every])
    y0, y1 = _span([y for _, y in every])

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{LEFT}" y="18" font-weight="bold">{html.escape(title)}</text>'
    ]
    for y in _ticks(y0, y1):
        (left, level), (right, _) = at(x0, y), at(x1, y)
        label = f"{10**y:.3g}" if logarithmic else f"{y:.4g}"
        out.append(
            f'<line x1="{left:.1f}" y1="{level:.1f}" x2="{right:.1f}" y2="{level:.1f}" stroke="#ddd"/>'
            f'<text x="{left - 6:.1f}" y="{level + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for x in _ticks(x0, x1):
        across, level = at(x, y0)
        out.append(f'<text x="{across:.1f}" y="{level + 18:.1f}" text-anchor="middle">{x:.4g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - 4}" text-anchor="middle" fill="#555">{html.escape(across_label)}</text>'
    )
    for i, (name, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        dashes = ' stroke-dasharray="6 3"' if name.startswith("val_") else ""
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(x, y) for x, y in points))
        if len(points) == 1:
            a, b = at(*points[0])
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>')
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>')
        level = TOP + 14 + 18 * i
        across = WIDTH - RIGHT + 12
        out.append(
            f'<line x1="{across}" y1="{level - 4}" x2="{across + 20}" y2="{level - 4}" stroke="{colour}"{dashes}/>'
            f'<text x="{across + 26}" y="{level}">{html.escape(name)}</text>'
        )
    return "".join(out) + "</svg>"


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round values between two."""
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
