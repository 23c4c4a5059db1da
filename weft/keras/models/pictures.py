"""Drawings of models as files other than SVG: by matplotlib, or by Graphviz where that is installed."""

from __future__ import annotations

import importlib
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft.errors import ArgumentError, NotSupportedError

ENDINGS = (".pdf", ".png")
# A unit of a drawing is a pixel at 96 of them an inch; text of 12 units has 9 points.
UNITS_AN_INCH, POINTS = 96, 9


class Box(Protocol):
    """A rectangle with lines of text, in units of the drawing from its upper left corner."""

    lines: list[str]
    x: float
    y: float

    @property
    def width(self) -> float: ...

    @property
    def height(self) -> float: ...


Edge = tuple[Sequence[tuple[float, float]], bool]
"""Four points, and whether they are joined by lines instead of a curve."""


def write_picture(
    file: str | pathlib.Path,
    boxes: Sequence[Box],
    edges: Sequence[Edge],
    size: tuple[float, float],
    dpi: int,
    dot_text: Callable[[], str],
) -> None:
    """Write a drawing to a file whose name ends in one of `ENDINGS`.

    Args:
        file: the file. It is replaced when the picture is complete.
        boxes: the boxes.
        edges: the arrows between them.
        size: width and height in units.
        dpi: resolution of a PNG.
        dot_text: a function that returns the graph in Graphviz's language, called if matplotlib is not installed.
    """
    path = pathlib.Path(file)
    if path.suffix.lower() not in ENDINGS:
        known = ", ".join((".svg", *ENDINGS))
        raise ArgumentError(f"Drawings must be files that end in {known}.", received=f"to_file={str(file)!r}")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".plot") as folder:
        target = pathlib.Path(folder) / path.name
        try:
            figures: Any = importlib.import_module("matplotlib.figure")
        except ImportError:
            _write_by_graphviz(target, dot_text())
        else:
            _write_by_matplotlib(figures, target, boxes, edges, size, dpi)
        target.replace(path)


def _write_by_graphviz(target: pathlib.Path, text: str) -> None:
    program = shutil.which("dot")
    if program is None:
        raise NotSupportedError(
            f"A drawing as {target.suffix} needs matplotlib or Graphviz, and neither is installed.",
            fix=("pip install matplotlib", "install Graphviz, whose program is `dot`", "to_file='model.svg'"),
        )
    command = [program, f"-T{target.suffix[1:].lower()}", "-o", str(target)]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise NotSupportedError(f"Graphviz cannot draw the model, and got: {done.stderr.strip()}")


def _write_by_matplotlib(
    figures: Any,
    target: pathlib.Path,
    boxes: Sequence[Box],
    edges: Sequence[Edge],
    size: tuple[float, float],
    dpi: int,
) -> None:
    patches: Any = importlib.import_module("matplotlib.patches")
    paths: Any = importlib.import_module("matplotlib.path")
    figure = figures.Figure(figsize=tuple(max(extent, 1.0) / UNITS_AN_INCH for extent in size))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, max(size[0], 1.0)), ylim=(max(size[1], 1.0), 0))
    axes.set_axis_off()
    codes = paths.Path
    for points, straight in edges:
        kinds = [codes.MOVETO, *[codes.LINETO if straight else codes.CURVE4] * 3]
        line = codes(list(points), kinds)
        axes.add_patch(patches.FancyArrowPatch(path=line, arrowstyle="-|>", mutation_scale=9, color="black", lw=0.75))
    for box in boxes:
        corner = (box.x, box.y)
        axes.add_patch(patches.Rectangle(corner, box.width, box.height, facecolor="white", edgecolor="black", lw=0.75))
        step = box.height / (len(box.lines) + 1)
        for i, text in enumerate(box.lines):
            axes.text(
                box.x + box.width / 2,
                box.y + (i + 1) * step,
                text,
                ha="center",
                va="center",
                family="monospace",
                size=POINTS,
                weight="bold" if i == 0 else "normal",
                parse_math=False,
            )
    figure.savefig(target, dpi=dpi)
