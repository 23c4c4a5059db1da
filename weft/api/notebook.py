"""HTML representations for notebooks: `_repr_html_` of arrays, jaxprs, meshes, shardings and the stages of jitted
functions.

All text is escaped, and nothing is loaded from other places. Showing a value waits for it, as printing does; for an
array with shards in other processes only type and sharding are shown.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.api.stages import Compiled, Lowered, Traced
from weft.api.visualize import grid, pick_color
from weft.base import dtypes
from weft.base.text import bytes_text
from weft.ir.jaxpr import Jaxpr
from weft.runtime.held import HeldArray
from weft.sharding.mesh import AbstractMesh, Mesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding

# Number of elements shown at each end of a dimension.
ENDS = 5
CELL = "border:1px solid #8888;padding:2px 6px;text-align:right;font-family:monospace"
GAP = "…"


def table(rows: Iterable[Sequence[str]], colors: Iterable[Sequence[tuple[int, int, int] | None]] = ()) -> str:
    """Return texts as an HTML table; a cell may have a background color."""
    lines = []
    shades = list(colors)
    for i, row in enumerate(rows):
        cells = []
        for j, text in enumerate(row):
            color = shades[i][j] if shades else None
            shade = "" if color is None else f";background:rgb({color[0]},{color[1]},{color[2]});color:{_ink(color)}"
            cells.append(f'<td style="{CELL}{shade}">{"<br>".join(map(html.escape, text.splitlines()))}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def _ink(color: tuple[int, int, int]) -> str:
    """Return black for light colors and white for dark ones."""
    red, green, blue = color
    return "black" if 299 * red + 587 * green + 114 * blue > 128_000 else "white"


def details(title: str, text: str, is_open: bool = False) -> str:
    """Return text under a title that opens and closes."""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"


def _heading(text: str) -> str:
    return f"<div><code>{html.escape(text)}</code></div>"


# ---------------------------------------------------------------------------------------------------------- arrays


def array_html(x: HeldArray) -> str:
    """Return type and device of an array, a table of its elements, and a picture of its shards if it has several."""
    aval: Any = x.aval
    if x.is_deleted():
        return _heading(f"Array {aval.short()}, deleted")
    sharding = x.sharding
    if isinstance(sharding, SingleDeviceSharding):
        parts, where = "", f"on {sharding.device}"
    else:
        parts, where = _parts(x.shape, sharding), f"split as {_spec(sharding)}"
    title = _heading(f"Array {aval.short()} {where}")
    if not (x.is_fully_addressable or x.is_fully_replicated):
        return title + parts
    return title + _elements(x) + parts


def _elements(x: HeldArray) -> str:
    if isinstance(x.dtype, dtypes.ExtendedDtype) or x.ndim > 2 or not x.size:
        return f"<pre>{html.escape(_short(x))}</pre>"
    values = np.atleast_2d(np.asarray(x))
    rows = [_shown(row) for row in _ends(values)]
    if len(values) > 2 * ENDS:
        rows.insert(ENDS, [GAP] * len(rows[0]))
    return table(rows)


def _ends(values: Any) -> list[Any]:
    """Return the first and the last entries along the first dimension."""
    return [*values] if len(values) <= 2 * ENDS else [*values[:ENDS], *values[-ENDS:]]


def _shown(row: Any) -> list[str]:
    texts = [_element(value) for value in _ends(row)]
    return texts if len(row) <= 2 * ENDS else [*texts[:ENDS], GAP, *texts[ENDS:]]


def _element(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _short(x: HeldArray) -> str:
    """Return the text of an array, with few elements of each dimension."""
    with np.printoptions(threshold=100, edgeitems=2):
        return repr(x)


# ------------------------------------------------------------------------------------------------ meshes, shardings


def _spec(sharding: Sharding) -> str:
    return f"P{tuple(sharding.spec)}" if isinstance(sharding, NamedSharding) else type(sharding).__name__


def _parts(shape: tuple[int, ...], sharding: Sharding) -> str:
    """Return a table of the devices of each shard, or nothing if more than two dimensions are split."""
    if sum(count > 1 for count in sharding.partition_counts(len(shape))) > 2:
        return ""
    cells = grid(shape, sharding).cells
    colors = [[pick_color(i * len(row) + j) for j in range(len(row))] for i, row in enumerate(cells)]
    return table([["\n".join(lines) for lines in row] for row in cells], colors)


def mesh_html(mesh: Mesh | AbstractMesh) -> str:
    """Return the axes of a mesh and a table of its devices; with more than two axes, one for each plane of the last
    two."""
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    title = _heading(", ".join(f"{name}: {size} ({kind.name})" for name, size, kind in axes) or "a mesh without axes")
    if not isinstance(mesh, Mesh):
        return title
    devices = mesh.devices
    if devices.ndim <= 2:
        return title + _devices(np.atleast_2d(devices))
    planes = []
    for index in np.ndindex(*devices.shape[:-2]):
        at = ", ".join(f"{name}={i}" for name, i in zip(mesh.axis_names, index, strict=False))
        planes.append(_heading(at) + _devices(devices[index]))
    return title + "".join(planes)


def _devices(devices: Any) -> str:
    texts = [[f"{device.platform} {device.id}" for device in row] for row in devices]
    colors = [[pick_color(device.process_index) for device in row] for row in devices]
    return table(texts, colors)


def sharding_html(sharding: Sharding) -> str:
    """Return the spec of a sharding, and its mesh."""
    if isinstance(sharding, NamedSharding):
        return _heading(f"NamedSharding {_spec(sharding)}") + mesh_html(sharding.mesh)
    return _heading(repr(sharding))


# ------------------------------------------------------------------------------------------------ jaxprs and stages


def jaxpr_html(jaxpr: Jaxpr) -> str:
    """Return the text of a jaxpr, under its type."""
    arguments = ", ".join(aval.short() for aval in jaxpr.in_avals)
    results = ", ".join(aval.short() for aval in jaxpr.out_avals)
    count = len(jaxpr.eqns)
    return details(f"({arguments}) → ({results}), {count} equation{'s'[: count != 1]}", str(jaxpr), is_open=True)


def traced_html(stage: Traced | Lowered) -> str:
    """Return the jaxpr of a traced function."""
    return jaxpr_html(stage.jaxpr)


def compiled_html(compiled: Compiled) -> str:
    """Return costs, communication, fusions and steps of a compiled program."""
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    kernels = compiled.kernels
    rows = [
        ("operations", f"{cost.get('flops', 0.0):,.0f}"),
        ("bytes read and written", bytes_text(cost.get("bytes accessed", 0.0))),
        ("arguments", bytes_text(memory.argument_size_in_bytes)),
        ("results", bytes_text(memory.output_size_in_bytes)),
        ("temporaries", bytes_text(memory.temp_size_in_bytes)),
        ("machine code", bytes_text(memory.generated_code_size_in_bytes)),
        ("kernels", str(len(kernels))),
    ]
    sent = compiled.communication
    parts = [table(rows), sent._repr_html_() if sent else "", details("jaxpr", str(compiled.jaxpr))]
    parts += [details("fusions", compiled.fusions), details("steps", compiled.as_text())]
    return _heading(f"compiled {compiled._traced.fun_name}") + "".join(parts)


def install() -> None:
    """Set the methods on the classes."""
    methods: dict[type, Any] = {
        HeldArray: array_html,
        Mesh: mesh_html,
        AbstractMesh: mesh_html,
        Sharding: sharding_html,
        Jaxpr: jaxpr_html,
        Traced: traced_html,
        Lowered: traced_html,
        Compiled: compiled_html,
    }
    for cls, method in methods.items():
        setattr(cls, "_repr_html_", method)  # noqa: B010  (only notebooks call it)
