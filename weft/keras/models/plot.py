"""Drawings of models: as SVG without other programs, as PNG and PDF by `pictures.py`."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from html import escape
from typing import Any

from weft.errors import ArgumentError
from weft.keras.layers.layer import Layer
from weft.keras.models.pictures import write_picture

CHARACTER, LINE, PADDING = 7.2, 16, 8  # sizes of text, in units of the drawing
GAP_ACROSS, GAP_ALONG = 24, 36


@dataclass
class Box:
    """A layer in the drawing: lines of text, which boxes it takes results of, and where it is."""

    lines: list[str]
    sources: list[int]
    level: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * CHARACTER + 2 * PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PADDING


class Drawing:
    """A drawing; notebooks show it. `str` is the text of the SVG."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.text


def plot_model(
    model: Any,
    to_file: str | pathlib.Path | None = "model.svg",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Drawing:
    """Draw the layers of a model.

    Args:
        model: the model; built, for its shapes.
        to_file: a file to write, whose name ends in `.svg`, or in `.png` or `.pdf` where matplotlib or Graphviz is
            installed; None writes none.
        show_shapes: whether to show shapes of inputs and results.
        show_dtype: whether to show the dtype of results.
        show_layer_names: whether to show names of layers.
        rankdir: "TB" from top to bottom, "LR" from left to right.
        expand_nested: whether layers of models inside are drawn in place of the models.
        dpi: the resolution of a PNG.
        show_layer_activations: whether to show activations of layers.
        show_trainable: whether to show if layers are trainable.
        splines: "ortho" or "polyline" draws straight edges, anything else curves.
        **kwargs: none.

    Returns:
        The drawing, which notebooks show.

    Example:
        >>> from weft import keras
        >>> from weft.keras.models.plot import plot_model
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> str(plot_model(model, to_file=None, show_shapes=True)).startswith("<svg")
        True
    """
    if kwargs:
        raise ArgumentError("plot_model does not take these arguments.", received=", ".join(kwargs))
    check_direction(rankdir)
    describe = _describer(show_shapes, show_dtype, show_layer_names, show_layer_activations, show_trainable)
    boxes = _boxes(model, describe, expand_nested)
    across, straight = rankdir == "LR", splines in ("ortho", "polyline")
    _lay_out(boxes, across)
    drawing = Drawing(_svg(boxes, across, straight))
    if to_file is not None and str(to_file).lower().endswith(".svg"):
        pathlib.Path(to_file).write_text(drawing.text, encoding="utf-8")
    elif to_file is not None:
        edges = [(_edge_points(boxes[i], box, across), straight) for box in boxes for i in box.sources]
        size, graph = _size(boxes), _dot_text(model.name, boxes, rankdir, dpi, splines)
        write_picture(to_file, boxes, edges, size, dpi, lambda: graph)
    return drawing


def check_direction(rankdir: str) -> None:
    """Raise an error unless the direction of a drawing is "TB" or "LR"."""
    if rankdir not in ("TB", "LR"):
        raise ArgumentError("`rankdir` must be 'TB' or 'LR'.", received=f"rankdir={rankdir!r}")


class Dot:
    """A graph in the language of Graphviz; `str` and `to_string()` are its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def to_string(self) -> str:
        """Return the text in the DOT language."""
        return self.text

    def write(self, path: str | pathlib.Path) -> None:
        """Write the text to a file."""
        pathlib.Path(path).write_text(self.text, encoding="utf-8")


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Dot:
    """Describe the layers of a model as a graph in the DOT language of Graphviz.

    Args:
        model: the model; built, for its shapes.
        show_shapes: whether to show shapes of inputs and results.
        show_dtype: whether to show the dtype of results.
        show_layer_names: whether to show names of layers.
        rankdir: "TB" from top to bottom, "LR" from left to right.
        expand_nested: whether layers of models inside are there in place of the models.
        dpi: the resolution.
        subgraph: whether it is a cluster, to be put into another graph.
        show_layer_activations: whether to show activations of layers.
        show_trainable: whether to show if layers are trainable.
        splines: how edges are drawn.
        **kwargs: none.

    Returns:
        The graph; its `to_string()` is the text.

    Example:
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2, name="y")], name="m")
        >>> print(keras.utils.model_to_dot(model))
        digraph "m" {
          rankdir=TB; dpi=200; splines=ortho; node [shape=box];
          n0 [label="x (InputLayer)"];
          n1 [label="y (Dense)"];
          n0 -> n1;
        }
    """
    if kwargs:
        raise ArgumentError("model_to_dot does not take these arguments.", received=", ".join(kwargs))
    check_direction(rankdir)
    describe = _describer(show_shapes, show_dtype, show_layer_names, show_layer_activations, show_trainable)
    return Dot(_dot_text(model.name, _boxes(model, describe, expand_nested), rankdir, dpi, splines, subgraph))


def _dot_text(name: str, boxes: list[Box], rankdir: str, dpi: int, splines: str, subgraph: bool = False) -> str:
    """Return boxes as a graph in the language of Graphviz."""
    quoted = lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    kind, name = ("subgraph", f"cluster_{name}") if subgraph else ("digraph", name)
    lines = [f"{kind} {quoted(name)} {{"]
    lines.append(f"  rankdir={rankdir}; dpi={dpi}; splines={splines}; node [shape=box];")
    label = lambda box: "\\n".join(quoted(line)[1:-1] for line in box.lines)
    lines += [f'  n{i} [label="{label(box)}"];' for i, box in enumerate(boxes)]
    lines += [f"  n{source} -> n{i};" for i, box in enumerate(boxes) for source in box.sources]
    return "\n".join([*lines, "}"])


def _describer(shapes: bool, dtype: bool, names: bool, activations: bool, trainable: bool) -> Any:
    """Return a function of a layer and one of its calls that returns the lines of text of its box."""

    def describe(layer: Any, node: Any) -> list[str]:
        kind = type(layer).__name__ if isinstance(layer, Layer) else layer.name
        lines = [f"{layer.name} ({kind})" if names and isinstance(layer, Layer) else kind]
        activation = getattr(layer, "activation", None)
        if activations and activation is not None:
            lines.append(f"activation: {getattr(activation, '__name__', type(activation).__name__)}")
        if shapes and node is not None:
            inputs = ", ".join(str(tensor.shape) for tensor in node.input_tensors)
            lines += [f"in {inputs}"] * bool(inputs)
            lines.append("out " + ", ".join(str(tensor.shape) for tensor in node.output_tensors))
        if dtype and node is not None:
            lines.append(", ".join(sorted({tensor.dtype for tensor in node.output_tensors})))
        if trainable and isinstance(layer, Layer) and layer.weights:
            lines.append("trainable" if layer.trainable else "frozen")
        return lines

    return describe


def _boxes(model: Any, describe: Any, expand: bool) -> list[Box]:
    """Return a box for each call of a layer, sources first."""
    try:
        graph = model.graph
    except AttributeError:
        return [Box(describe(layer, None), []) for layer in model.layers]
    boxes: list[Box] = []
    sources: dict[int, int] = {}  # tensor -> the box that it is a result of
    _add_graph(graph, boxes, sources, describe, expand)
    return boxes


def _add_graph(graph: Any, boxes: list[Box], sources: dict[int, int], describe: Any, expand: bool) -> None:
    for node in graph.nodes:
        if all(id(tensor) in sources for tensor in node.output_tensors):
            continue  # an input of a model inside
        try:
            inner = node.operation.graph if expand else None
        except AttributeError:
            inner = None
        if inner is None:
            taken = [sources[id(tensor)] for tensor in node.input_tensors if id(tensor) in sources]
            for tensor in node.output_tensors:
                sources[id(tensor)] = len(boxes)
            boxes.append(Box(describe(node.operation, node), sorted(set(taken))))
            continue
        inside = {id(own): sources[id(tensor)] for own, tensor in zip(inner.inputs, node.input_tensors, strict=True)}
        _add_graph(inner, boxes, inside, describe, expand)
        for own, tensor in zip(inner.outputs, node.output_tensors, strict=True):
            sources[id(tensor)] = inside[id(own)]


def _lay_out(boxes: list[Box], across: bool) -> None:
    """Set positions: boxes in levels after their sources, within a level near to them."""
    for box in boxes:
        box.level = max((boxes[i].level + 1 for i in box.sources), default=0)
    if boxes and not any(box.sources for box in boxes):
        for i, box in enumerate(boxes):
            box.level = i  # layers without known calls, one below the other
    levels: dict[int, list[Box]] = {}
    for box in boxes:
        levels.setdefault(box.level, []).append(box)
    along = 0.0
    for level in sorted(levels):
        row = levels[level]
        middle = lambda box: sum(_center(boxes[i], across) for i in box.sources) / max(len(box.sources), 1)
        row.sort(key=middle)
        extents = [box.height if across else box.width for box in row]
        start = -(sum(extents) + GAP_ACROSS * (len(row) - 1)) / 2
        for box, extent in zip(row, extents, strict=True):
            box.x, box.y = (along, start) if across else (start, along)
            start += extent + GAP_ACROSS
        along += max(box.width if across else box.height for box in row) + GAP_ALONG
    left, top = min((box.x for box in boxes), default=0), min((box.y for box in boxes), default=0)
    for box in boxes:
        box.x, box.y = box.x - left + PADDING, box.y - top + PADDING


def _center(box: Box, across: bool) -> float:
    return box.y + box.height / 2 if across else box.x + box.width / 2


def _size(boxes: list[Box]) -> tuple[float, float]:
    """Return width and height of a drawing."""
    width = max((box.x + box.width for box in boxes), default=0) + PADDING
    return width, max((box.y + box.height for box in boxes), default=0) + PADDING


def _svg(boxes: list[Box], across: bool, straight: bool) -> str:
    width, height = _size(boxes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 Z"/></marker></defs>',
    ]
    for box in boxes:
        for i in box.sources:
            parts.append(_edge(boxes[i], box, across, straight))
    for box in boxes:
        parts.append(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3" '
            'fill="white" stroke="black"/>'
        )
        for i, line in enumerate(box.lines):
            weight = ' font-weight="bold"' if i == 0 else ""
            parts.append(
                f'<text x="{box.x + PADDING:.1f}" y="{box.y + PADDING + (i + 0.75) * LINE:.1f}"{weight}>'
                f"{escape(line)}</text>"
            )
    return "\n".join([*parts, "</svg>"])


def _edge_points(source: Box, target: Box, across: bool) -> list[tuple[float, float]]:
    """Return both ends of an edge and the two points between them where it bends."""
    if across:
        x0, y0, x1, y1 = source.x + source.width, source.y + source.height / 2, target.x, target.y + target.height / 2
        middle = (x0 + x1) / 2
        return [(x0, y0), (middle, y0), (middle, y1), (x1, y1)]
    x0, y0, x1, y1 = source.x + source.width / 2, source.y + source.height, target.x + target.width / 2, target.y
    middle = (y0 + y1) / 2
    return [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]


def _edge(source: Box, target: Box, across: bool, straight: bool) -> str:
    first, *others = (f"{x:.1f},{y:.1f}" for x, y in _edge_points(source, target, across))
    line = " L".join(["", *others]).lstrip() if straight else "C" + " ".join(others)
    return f'<path d="M{first} {line}" fill="none" stroke="black" marker-end="url(#arrow)"/>'
