"""Graphs of exports: their inputs and outputs, symbolic sizes, and the equations between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft.base import tree
from weft.base.errors import ArgumentError
from weft.export.exported import Exported
from weft.export.file import is_empty
from weft.export.onnx import lanes, rules
from weft.export.onnx.emitter import INT64, Emitter
from weft.export.onnx.graph import Graph, Node, Value
from weft.export.onnx.lower import emit_jaxpr, part_types
from weft.export.onnx.table import Parts
from weft.indexing.expression import Expression, Symbol, linear_in

assert rules.LOADED and lanes.SPECIAL  # importing them fills the tables


def write_model(
    exported: Exported, opset: int, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> tuple[str, Graph, int, tree.PyTreeDef, tree.PyTreeDef]:
    """Write an export as a graph; return what an `OnnxModel` consists of."""
    name = re.sub(r"\W+", "_", exported.fun_name).strip("_") or "f"
    g = Emitter(name, opset)
    present = [i for i, aval in enumerate(exported.in_avals) if not is_empty(aval)]
    paths = [exported.argument_names[i] for i in present]
    arguments = declare_inputs(g, [exported.in_avals[i] for i in present], give_names(paths, input_names, "input"))
    find_sizes(g, [part for parts in arguments for part in parts])
    results = emit_jaxpr(g, exported.jaxpr, arguments)
    outs = [aval for aval in exported.out_avals if not is_empty(aval)]
    names = give_names(result_paths(exported, outs), output_names, "output")
    declare_outputs(g, results, names)
    g.finish()
    return exported.fun_name, g.graph, g.version, exported.in_tree, exported.out_tree


def give_names(paths: Sequence[str], names: Sequence[str] | None, what: str) -> list[str]:
    """Return the names that were given, one for each path, or the paths as identifiers."""
    if names is None:
        return [re.sub(r"\W+", "_", path).strip("_") or what for path in paths]
    if len(names) != len(paths) or len(set(names)) != len(names):
        raise ArgumentError(
            f"{what}_names must be one distinct name for each of the {len(paths)} {what}s.",
            received=repr(list(names)),
            fix=f"names for {', '.join(paths)}",
        )
    return list(names)


def result_paths(exported: Exported, outs: Sequence[Any]) -> list[str]:
    """Return a name for each result: its path in the tree of results."""
    leaves, _ = tree.flatten_with_path(tree.unflatten(exported.out_tree, list(range(len(exported.out_avals)))))
    paths = ["result" + tree.keystr(path) for path, i in leaves if not is_empty(exported.out_avals[i])]
    return paths if len(paths) == len(outs) else [f"result_{i}" for i in range(len(outs))]


def declare_inputs(g: Emitter, avals: Sequence[Any], names: Sequence[str]) -> list[Parts]:
    """Declare an input for each tensor of the arguments."""
    arguments = []
    for aval, name in zip(avals, names, strict=True):
        types = part_types(aval)
        arguments.append(
            tuple(
                g.input(name if len(types) == 1 else f"{name}_{i}", dtype, shape)
                for i, (dtype, shape) in enumerate(types)
            )
        )
    return arguments


def find_sizes(g: Emitter, inputs: Sequence[Value]) -> None:
    """Compute the symbolic sizes from the shapes of inputs: sizes that are a symbol, then those that are linear in
    one."""
    waiting = [
        (value, axis, size) for value in inputs for axis, size in enumerate(value.shape) if isinstance(size, Expression)
    ]
    waiting.sort(key=lambda entry: not isinstance(entry[2], Symbol))
    for value, axis, size in waiting:
        unknown = [symbol for symbol in size.symbols if symbol not in g.sizes]
        if len(unknown) != 1:
            continue
        split = linear_in(size, unknown[0])
        if split is None or not isinstance(split[0], int):
            continue
        found = g.node("Shape", [value], INT64, (1,), start=axis, end=axis + 1)
        if split[1] != 0:
            found = g.node("Sub", [found, g.dimension(split[1])], INT64, (1,))
        if split[0] != 1:
            found = g.node("Div", [found, g.indices([split[0]])], INT64, (1,))
        g.sizes[unknown[0]] = found


def declare_outputs(g: Emitter, results: Sequence[Parts], names: Sequence[str]) -> None:
    """Declare an output for each tensor of the results, each with a name of its own."""
    produced = {name for node in g.graph.nodes for name in node.outputs}
    renamed: dict[str, str] = {}
    for parts, name in zip(results, names, strict=True):
        for i, part in enumerate(parts):
            output = Value(g.new_name(name if len(parts) == 1 else f"{name}_{i}"), part.dtype, part.shape)
            if part.name in produced and part.name not in renamed:
                renamed[part.name] = output.name
            else:
                source = Value(renamed.get(part.name, part.name), part.dtype, part.shape)
                g.copy(source, output)
            g.graph.outputs.append(output)
    rename(g.graph, renamed)


def rename(graph: Graph, names: dict[str, str]) -> None:
    """Rename values in all nodes, in bodies too."""

    def substitute(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in values)

    nodes: list[Node] = []
    for node in graph.nodes:
        node.inputs, node.outputs = substitute(node.inputs), substitute(node.outputs)
        nodes.append(node)
        for body in node.graphs():
            rename(body, names)
