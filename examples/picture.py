"""Plots of lines, dots and images in panels, drawn by matplotlib into one SVG file."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

OUT = pathlib.Path(__file__).parent / "out"
WIDTH, HEIGHT = 4.2, 3.8  # of a panel, in inches
TITLE = 42  # characters in a line of a title, which are as wide as a panel
BLUE, RED, GREY, GREEN = "#2b6cb0", "#c53030", "#a0aec0", "#2f855a"


class Panel:
    """Plot; later items are drawn on top of earlier ones.

    `across` and `up` say what the axes are, `x` and `y` are their ranges (found from the data if None), `log` makes
    the second axis logarithmic. Items that have a `label` are named in a legend.
    """

    def __init__(
        self,
        title: str,
        x: tuple[float, float] | None = None,
        y: tuple[float, float] | None = None,
        *,
        across: str = "",
        up: str = "",
        log: bool = False,
    ):
        self.title, self.x_range, self.y_range, self.across, self.up, self.log = title, x, y, across, up, log
        self.items: list[Callable[[Any], object]] = []
        self.has_legend = False

    def line(self, x, y, colour: str = BLUE, width: float = 2, opacity: float = 1, label: str = "") -> Panel:
        x, y = np.asarray(x), np.asarray(y)
        return self._add(lambda axes: axes.plot(x, y, color=colour, lw=width, alpha=opacity, label=label), label)

    def level(self, y: float, colour: str = GREY, label: str = "") -> Panel:
        """Add a horizontal line."""
        return self._add(lambda axes: axes.axhline(y, color=colour, ls="--", lw=1.5, label=label), label)

    def band(self, x, low, high, colour: str = BLUE, label: str = "") -> Panel:
        """Fill the area between two curves."""
        x, low, high = np.asarray(x), np.asarray(low), np.asarray(high)
        fill = {"color": colour, "alpha": 0.2, "lw": 0, "label": label}
        return self._add(lambda axes: axes.fill_between(x, low, high, **fill), label)

    def dots(self, x, y, colour: str = BLUE, radius: float = 3, label: str = "") -> Panel:
        x, y = np.asarray(x), np.asarray(y)
        return self._add(lambda axes: axes.scatter(x, y, s=radius**2, color=colour, label=label, zorder=3), label)

    def image(self, grey) -> Panel:
        """Draw a matrix with values from 0 (black) to 1 (white) over the whole panel, its first row at the top."""
        grey = np.asarray(grey)
        extent = None if self.x_range is None or self.y_range is None else (*self.x_range, *self.y_range)
        style = {"cmap": "gray", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "nearest"}
        return self._add(lambda axes: axes.imshow(grey, extent=extent, **style), "")

    def _add(self, item: Callable[[Any], object], label: str) -> Panel:
        self.items.append(item)
        self.has_legend |= bool(label)
        return self

    def draw(self, axes: Any) -> None:
        """Draw everything on axes of matplotlib."""
        for item in self.items:
            item(axes)
        axes.set_title("\n".join(textwrap.wrap(self.title, TITLE)), fontsize=10)
        axes.set_xlabel(self.across, fontsize=9)
        axes.set_ylabel(self.up, fontsize=9)
        axes.tick_params(labelsize=8)
        if not self.across and not self.up:
            axes.set_xticks([])
            axes.set_yticks([])
        if self.log:
            axes.set_yscale("log")
        if self.x_range is not None:
            axes.set_xlim(*self.x_range)
        if self.y_range is not None:
            axes.set_ylim(*self.y_range)
        if self.has_legend:
            axes.legend(fontsize=8, framealpha=0.8)


def grid(images, columns: int) -> np.ndarray:
    """Arrange images of one size in a grid with `columns` columns, separated by lines."""
    framed = np.pad(np.asarray(images), ((0, 0), (0, 1), (0, 1)), constant_values=0.5)
    count, height, width = framed.shape
    rows = framed.reshape(count // columns, columns, height, width).swapaxes(1, 2)
    return rows.reshape(count // columns * height, columns * width)


def figure(*panels: Panel, columns: int = 3) -> Any:
    """Draw the panels in rows, as a figure of matplotlib."""
    from matplotlib.figure import Figure  # a second of imports, which scripts without a picture do not need

    across, down = min(columns, len(panels)), -(-len(panels) // columns)
    whole = Figure(figsize=(WIDTH * across, HEIGHT * down), layout="constrained")
    cells = whole.subplots(down, across, squeeze=False).ravel()
    for panel, axes in zip(panels, cells, strict=False):
        panel.draw(axes)
    for axes in cells[len(panels) :]:
        axes.set_axis_off()
    return whole


def save(name: str, *panels: Panel, columns: int = 3) -> pathlib.Path | None:
    """Write the panels to examples/out/NAME.svg and print the path; without matplotlib, say what to install."""
    try:
        whole = figure(*panels, columns=columns)
    except ImportError:
        print("no picture: it needs matplotlib, pip install 'weft-jit[examples]'")
        return None
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.svg"
    whole.savefig(path, metadata={"Date": None})
    print(f"picture: {path}")
    return path
