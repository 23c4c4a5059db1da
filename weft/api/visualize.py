"""Pictures of shardings in text: the devices of each shard of an array."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.primitives.control.inspect_sharding import inspect_sharding
from weft.runtime.held import HeldArray
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding, Sharding
from weft.trace.tracer import Tracer

# Height of a cell in lines, unless its text needs more.
HIGHEST = 3


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call a function with the sharding of an array: at once, or when the program is compiled if it is traced."""
    if isinstance(value, Tracer):
        inspect_sharding(value, callback=callback)
        return
    callback(_held(value).sharding)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print how an array is split over devices; in a jitted function when its program is compiled. Further arguments
    are those of `visualize_sharding`."""
    shape = arr.shape if isinstance(arr, Tracer) else _held(arr).shape
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(shape, sharding, **kwargs))


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Callable[[int], tuple[int, int, int]] | None = None,
) -> None:
    """Print the devices of each shard of an array of this shape, with the shapes of shards if they differ.

    The picture has about two characters a column and one line a row of the array, times `scale`, between `min_width`
    and `max_width` wide. Cells have colors in terminals, unless `use_color` is False; `color_map` returns red, green
    and blue (0 to 255) for the index of a cell. Of an array with more than two dimensions at most two may be split.
    """
    if not isinstance(sharding, Sharding):
        raise ArgumentTypeError(
            "visualize_sharding: sharding must be a sharding.", received=described(sharding), fix="x.sharding"
        )
    color = color_map or pick_color if use_color and sys.stdout.isatty() else None
    print(picture(tuple(shape), sharding, scale, min_width, max_width, color))


def _held(value: Any) -> HeldArray:
    """Return an array; raise if it is another value."""
    if not isinstance(value, HeldArray):
        raise ArgumentTypeError(
            "The value must be an array to have a sharding.",
            received=described(value),
            fix="weft.device_put(value, sharding)",
        )
    return value


def part_sizes(size: int, count: int) -> list[int]:
    """Return the sizes of the shards along a dimension: the last ones may be smaller, or empty."""
    part = -(-size // count)
    return [min(part, max(0, size - i * part)) for i in range(count)]


class Grid(NamedTuple):
    """Shards of an array as rows and columns: the lines of each cell, and the dimensions of the array that rows and
    columns are for (None if there is one only)."""

    cells: list[list[list[str]]]
    rows: int | None
    columns: int | None

    @property
    def shown(self) -> list[int]:
        """Dimensions that are shown."""
        return [dimension for dimension in (self.rows, self.columns) if dimension is not None]


def grid(shape: tuple[int, ...], sharding: Sharding) -> Grid:
    """Arrange the shards of an array as rows and columns; at most two dimensions may be split."""
    sharding.check_compatible_aval(shape)
    counts = sharding.partition_counts(len(shape))
    split = [d for d, count in enumerate(counts) if count > 1]
    if len(split) > 2:
        raise ArgumentError(
            "A picture shows at most two split dimensions.",
            received=f"shape {shape} split into {counts} parts",
            fix="visualize_sharding(shape, sharding) with a spec that leaves the other dimensions whole (None)",
        )
    shown = split if len(shape) > 2 else list(range(len(shape)))
    # One dimension is a row; more than one are rows and columns.
    rows, columns = (shown[0], shown[1]) if len(shown) == 2 else (None, shown[0] if shown else None)
    if len(shape) > 2 and len(shown) == 1:
        rows, columns = (shown[0], None) if shown[0] < len(shape) - 1 else (None, shown[0])
    heights = [1] if rows is None else part_sizes(shape[rows], counts[rows])
    widths = [1] if columns is None else part_sizes(shape[columns], counts[columns])
    uneven = len({*heights}) > 1 or len({*widths}) > 1
    devices: dict[tuple[int, int], list[str]] = {}
    for name, parts in zip(_names(sharding), sharding.part_indices(len(shape)), strict=True):
        cell = (0 if rows is None else parts[rows], 0 if columns is None else parts[columns])
        devices.setdefault(cell, []).append(name)
    cells: list[list[list[str]]] = []
    for i, height in enumerate(heights):
        row = []
        for j, width in enumerate(widths):
            lines = [_label(devices.get((i, j), []))]
            if uneven:
                size = {rows: height, columns: width}
                lines.append("x".join(str(size.get(d, n)) for d, n in enumerate(shape)))
            row.append(lines)
        cells.append(row)
    return Grid(cells, rows, columns)


def picture(
    shape: tuple[int, ...],
    sharding: Sharding,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color: Callable[[int], tuple[int, int, int]] | None = None,
) -> str:
    """Return the picture as text."""
    found = grid(shape, sharding)
    cells, rows, columns = found
    total_columns = 0 if columns is None else shape[columns]
    wide = round(max(min_width, min(max_width, 2 * scale * total_columns)) / len(cells[0]))
    cell_width = max(wide, *(len(text) for row in cells for lines in row for text in lines))
    total_rows = 1 if rows is None else shape[rows]
    high = HIGHEST if scale * total_rows >= HIGHEST * len(cells) else 1
    cell_height = max(high, *(len(lines) for row in cells for lines in row))
    text = _draw(cells, cell_width, cell_height, color)
    if len(shape) <= 2:
        return text
    axes = " and ".join(f"dimension {d}" for d in found.shown) or "no dimension"
    return f"{'x'.join(map(str, shape))}, split in {axes}\n{text}"


def _names(sharding: Sharding) -> list[str]:
    """Return the devices by platform and id; by position in a mesh without devices."""
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return [f"device {i}" for i in range(sharding.mesh.size)]
    return [f"{d.platform.upper()} {d.id}" for d in sharding.device_tuple]


def _label(names: Sequence[str]) -> str:
    """Return `CPU 0,1,2` for the devices of one shard."""
    if not names:
        return ""
    platform = names[0].rpartition(" ")[0]
    return f"{platform} {','.join(name.rpartition(' ')[2] for name in names)}"


def _draw(
    cells: list[list[list[str]]], width: int, height: int, color: Callable[[int], tuple[int, int, int]] | None
) -> str:
    """Draw a table of cells with frames."""
    rule = "─" * width
    count = len(cells[0])
    lines = [f"┌{'┬'.join([rule] * count)}┐"]
    for i, row in enumerate(cells):
        if i:
            lines.append(f"├{'┼'.join([rule] * count)}┤")
        for k in range(height):
            parts = []
            for j, texts in enumerate(row):
                first = (height - len(texts)) // 2
                text = (texts[k - first] if first <= k < first + len(texts) else "").center(width)
                parts.append(text if color is None else _add_color(text, color(i * count + j)))
            lines.append(f"│{'│'.join(parts)}│")
    lines.append(f"└{'┴'.join([rule] * count)}┘")
    return "\n".join(lines)


def _add_color(text: str, rgb: tuple[int, int, int]) -> str:
    """Add escape codes for a background color."""
    red, green, blue = rgb
    ink = 30 if 299 * red + 587 * green + 114 * blue > 128_000 else 97  # black on light colors, white on dark ones
    return f"\x1b[{ink};48;2;{red};{green};{blue}m{text}\x1b[0m"


# Colors that are easy to tell apart, by the index of the cell.
PALETTE = (
    (78, 121, 167),
    (242, 142, 43),
    (89, 161, 79),
    (225, 87, 89),
    (118, 183, 178),
    (237, 201, 72),
    (176, 122, 161),
    (156, 117, 95),
)


def pick_color(index: int) -> tuple[int, int, int]:
    """Return the color of a cell."""
    return PALETTE[index % len(PALETTE)]
