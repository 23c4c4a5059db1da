"""Plots of lines, dots and images in panels, written as one SVG file with NumPy only."""

from __future__ import annotations

import base64
import pathlib
import struct
import zlib
from html import escape

import numpy as np

OUT = pathlib.Path(__file__).parent / "out"
SIZE = 300  # of a panel, in pixels
MARGIN = 40
BLUE, RED, GREY, GREEN = "#2b6cb0", "#c53030", "#a0aec0", "#2f855a"


def png(grey: np.ndarray) -> bytes:
    """A matrix with values from 0 (black) to 1 (white) as a PNG file."""
    pixels = np.round(255 * np.clip(grey, 0, 1)).astype(np.uint8)
    # Every row begins with a byte for its filter type: 0, none.
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Panel:
    """A plot over the ranges `x` and `y`; later items are drawn on top of earlier ones."""

    def __init__(self, title: str, x: tuple[float, float] = (0, 1), y: tuple[float, float] = (0, 1)):
        self.title, self.x_range, self.y_range = title, x, y
        self.items: list[str] = []

    def _pixels(self, x, y) -> list[tuple[float, float]]:
        """Pixel coordinates of points; the y axis of SVG points down."""
        (left, right), (bottom, top) = self.x_range, self.y_range
        across = (np.asarray(x, float) - left) / (right - left) * SIZE
        down = (top - np.asarray(y, float)) / (top - bottom) * SIZE
        return list(zip(across, down, strict=True))

    def line(self, x, y, colour: str = BLUE, width: float = 2, opacity: float = 1) -> Panel:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in self._pixels(x, y))
        style = f'fill="none" stroke="{colour}" stroke-width="{width}" opacity="{opacity}"'
        self.items.append(f'<polyline points="{points}" {style}/>')
        return self

    def band(self, x, low, high, colour: str = BLUE) -> Panel:
        """The area between two curves."""
        outline = self._pixels(x, low) + self._pixels(x, high)[::-1]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in outline)
        self.items.append(f'<polygon points="{points}" fill="{colour}" opacity="0.2"/>')
        return self

    def dots(self, x, y, colour: str = BLUE, radius: float = 3) -> Panel:
        for a, b in self._pixels(x, y):
            self.items.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{colour}"/>')
        return self

    def image(self, grey) -> Panel:
        """Draw a matrix with values from 0 to 1 over the whole panel, its first row at the top."""
        data = base64.b64encode(png(np.asarray(grey))).decode()
        style = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
        link = f'href="data:image/png;base64,{data}"'
        self.items.append(f'<image width="{SIZE}" height="{SIZE}" {style} {link}/>')
        return self


def grid(images, columns: int) -> np.ndarray:
    """Images of one size in a grid with `columns` columns, separated by lines."""
    framed = np.pad(np.asarray(images), ((0, 0), (0, 1), (0, 1)), constant_values=0.5)
    count, height, width = framed.shape
    rows = framed.reshape(count // columns, columns, height, width).swapaxes(1, 2)
    return rows.reshape(count // columns * height, columns * width)


def save(name: str, *panels: Panel, columns: int = 3) -> pathlib.Path:
    """Write the panels to examples/out/NAME.svg and print the path."""
    step = SIZE + 2 * MARGIN
    width, height = step * min(columns, len(panels)), step * -(-len(panels) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        # An inner <svg> clips to the panel.
        parts.append(f'<g transform="translate({column * step + MARGIN},{row * step + MARGIN})">')
        parts.append(f'<text y="-10" font-size="14">{escape(panel.title)}</text>')
        parts.append(f'<svg width="{SIZE}" height="{SIZE}">{"".join(panel.items)}</svg>')
        parts.append(f'<rect width="{SIZE}" height="{SIZE}" fill="none" stroke="{GREY}"/></g>')
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.svg"
    path.write_text("\n".join([*parts, "</svg>\n"]))
    print(f"picture: {path}")
    return path
