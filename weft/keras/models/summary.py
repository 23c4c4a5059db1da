"""Tables of models."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.errors import ArgumentError
from weft.keras.core.config import standardize_dtype
from weft.keras.core.variable import Variable
from weft.keras.layers.layer import Layer

_BITS = {"bool": 8, "bfloat16": 16, "int4": 4, "uint4": 4}


class Row(NamedTuple):
    """A line of the table; `level` is how deep inside of other models the layer is."""

    level: int
    layer: Any
    shape: str
    parameters: str
    connected: str


def total_bytes(variables: list[Variable]) -> float:
    """Return the total size of variables in bytes."""
    total = 0.0
    for variable in variables:
        dtype = standardize_dtype(variable._dtype)
        bits = _BITS.get(dtype) or int(re.sub(r"^\D+", "", dtype.partition("_")[0]) or 32)
        total += variable.size * bits / 8
    return total


def readable_bytes(count: float) -> str:
    """Format a number of bytes with a suitable unit."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1024 or unit == "TB":
            break
        count /= 1024
    return f"{count:.2f} {unit}"


def print_summary(
    model: Any,
    line_length: int | None = None,
    print_fn: Callable[[str], Any] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: tuple[str, str] | None = None,
) -> None:
    """Print the table of a model. See `Model.summary`."""
    rows = list(_rows(model, _list_layers(model), 0, expand_nested))
    if layer_range is not None:
        rows = _in_range(rows, layer_range)
    branches = any("," in row.connected for row in rows) or not _is_chain(model)
    header = ["Layer (type)", "Output Shape", "Param #"]
    header += ["Connected to"] * branches + ["Trai…"] * show_trainable
    lines = []
    for row in rows:
        name = f"{'    ' * row.level}{row.layer.name} ({type(row.layer).__name__})"
        cells = [name, row.shape, row.parameters]
        cells += [row.connected] * branches + [_mark(row.layer)] * show_trainable
        lines.append(cells)
    width = line_length or max(shutil.get_terminal_size((100, 24)).columns, 60)
    text = [f'Model: "{model.name}"', *_table(header, lines, width), *_totals(model)]
    (print if print_fn is None else print_fn)("\n".join(text))


def _rows(model: Any, layers: list[Any], level: int, expand: bool) -> Any:
    for layer in layers:
        yield Row(level, layer, _shape(layer), _parameters(layer), _connections(model, layer))
        if expand and getattr(layer, "layers", None):
            yield from _rows(layer, _list_layers(layer), level + 1, expand)


def _list_layers(model: Any) -> list[Any]:
    """Return the layers of a model, of a functional one with the operations of `ops` between them."""
    return list(getattr(model, "operations", None) or model.layers)


def _shape(layer: Any) -> str:
    """Return the shapes of the layer's results; "?" if they are unknown."""
    nodes = layer._inbound_nodes
    shapes = {str(tensor.shape) for node in nodes for tensor in node.output_tensors}
    if not shapes and hasattr(type(layer), "output_shape"):
        try:
            return str(layer.output_shape)
        except AttributeError:
            return "?"
    if len(shapes) > 1 and all(len(node.output_tensors) == 1 for node in nodes):
        return "multiple"
    if nodes and len(nodes[-1].output_tensors) > 1:
        return "[" + ", ".join(str(tensor.shape) for tensor in nodes[-1].output_tensors) + "]"
    if not shapes and getattr(layer, "built", False):
        return _built_shape(layer)
    return next(iter(shapes), "?")


def _built_shape(layer: Any) -> str:
    """Return the shape of the results of a layer for the shapes that it was built with."""
    compute, built = type(layer).compute_output_shape, getattr(layer, "_build_shapes", None)
    if not built or compute is Layer.compute_output_shape:
        return "?"
    try:
        if set(built) <= set(inspect.signature(compute).parameters):
            return str(layer.compute_output_shape(**built))
        return str(layer.compute_output_shape(*built.values())) if len(built) == 1 else "?"
    except NotImplementedError:
        return "?"


def _parameters(layer: Any) -> str:
    if not isinstance(layer, Layer):
        return "0"
    if not layer.built:
        return "0 (unbuilt)"
    return f"{layer.count_params():,}"


def _connections(model: Any, layer: Any) -> str:
    """List the tensors that a layer takes."""
    try:
        graph = model.graph
    except AttributeError:
        return "-"
    found = []
    for node in layer._inbound_nodes:
        if node not in graph:
            continue
        for tensor in node.input_tensors:
            history = tensor._keras_history
            found.append(f"{history.operation.name}[{history.node_index}][{history.tensor_index}]")
    return ", ".join(found) or "-"


def _is_chain(model: Any) -> bool:
    """Return whether every layer takes the result of the previous one, so that the table can omit connections."""
    try:
        graph = model.graph
    except AttributeError:
        return True
    previous = None
    for node in graph.nodes:
        if previous is not None and [id(tensor) for tensor in node.input_tensors] != previous:
            return False
        previous = [id(tensor) for tensor in node.output_tensors]
    return True


def _mark(layer: Any) -> str:
    return ("Y" if layer.trainable else "N") if getattr(layer, "weights", None) else "-"


def _in_range(rows: list[Row], names: tuple[str, str]) -> list[Row]:
    if len(names) != 2:
        raise ArgumentError("`layer_range` must have the names of two layers.", received=f"layer_range={names!r}")
    first = [i for i, row in enumerate(rows) if re.fullmatch(names[0], row.layer.name)]
    last = [i for i, row in enumerate(rows) if re.fullmatch(names[1], row.layer.name)]
    if not first or not last:
        raise ArgumentError("No layer has such a name.", received=f"layer_range={names!r}")
    start, end = sorted((first[0], last[-1]))
    return rows[start : end + 1]


def _table(header: list[str], lines: list[list[str]], width: int) -> list[str]:
    """Draw a box around cells; columns are as wide as their texts, and cells wider than fits in `width` wrap."""
    widths = [max(len(header[i]), *(len(cells[i]) for cells in lines), 8) for i in range(len(header))]
    while sum(widths) + 3 * len(widths) + 1 > width and max(widths) > 12:
        widths[widths.index(max(widths))] -= 1

    def rule(left: str, middle: str, right: str, line: str) -> str:
        return left + middle.join(line * (size + 2) for size in widths) + right

    def format_row(cells: list[str], edge: str) -> list[str]:
        wrapped = [[cell[i : i + size] for i in range(0, max(len(cell), 1), size)]
                   for cell, size in zip(cells, widths, strict=True)]  # fmt: skip
        height = max(len(part) for part in wrapped)
        return [
            edge
            + edge.join(
                f" {(part[i] if i < len(part) else ''):{'>' if column == 2 else '<'}{size}} "
                for column, (part, size) in enumerate(zip(wrapped, widths, strict=True))
            )
            + edge
            for i in range(height)
        ]

    text = [rule("┏", "┳", "┓", "━"), *format_row(header, "┃"), rule("┡", "╇", "┩", "━")]
    for i, cells in enumerate(lines):
        text += format_row(cells, "│")
        text.append(rule("├", "┼", "┤", "─") if i + 1 < len(lines) else rule("└", "┴", "┘", "─"))
    return text


def _totals(model: Any) -> list[str]:
    def total(what: str, variables: list[Variable]) -> str:
        count = sum(variable.size for variable in variables)
        return f" {what}: {count:,} ({readable_bytes(total_bytes(variables))})"

    optimizer = getattr(model, "optimizer", None)
    slots = list(getattr(optimizer, "variables", ()) or ()) if getattr(optimizer, "built", False) else []
    lines = [
        total("Total params", model.weights + slots),
        total("Trainable params", model.trainable_weights),
        total("Non-trainable params", model.non_trainable_weights),
    ]
    return [*lines, total("Optimizer params", slots)] if slots else lines
