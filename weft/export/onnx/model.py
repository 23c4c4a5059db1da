"""Models of ONNX: the export of a function, its text and its files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from weft.api.jit import jit
from weft.base import tree
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError, NotSupportedError
from weft.export.exported import Exported, export
from weft.export.file import is_empty
from weft.export.onnx import lanes, rules
from weft.export.onnx.emitter import INT64, Emitter
from weft.export.onnx.graph import NEWEST, OLDEST, External, Graph, Node, Value, graph_lines, model_message
from weft.export.onnx.lower import emit_jaxpr, part_types
from weft.export.onnx.table import Parts
from weft.indexing.expression import Expression, Symbol, linear_in

# Constants of a file with data beside it are moved there from this many bytes on.
LEAST_EXTERNAL = 1024
# The format of protocol buffers ends at 2 GB; a part of that is left for names.
MOST_BYTES = 2_000_000_000

assert rules.LOADED and lanes.SPECIAL  # importing them fills the tables


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """Model of ONNX: the graph of a function, and the structures of its arguments and results.

    `inputs` and `outputs` are the names of the graph's inputs and outputs, in the order of the leaves of the arguments
    and results. A complex array is two of them, and random keys are one for each word.
    """

    name: str
    graph: Graph
    opset: int
    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(value.name for value in self.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(value.name for value in self.graph.outputs)

    def as_text(self) -> str:
        """Return the graph as text, one node on a line."""
        return "\n".join(graph_lines(self.graph))

    def serialize(self) -> bytes:
        """Serialize the model to the bytes of an `.onnx` file, with its constants."""
        size = sum(value.data.nbytes for value in self.graph.constants.values() if value.data is not None)
        if size > MOST_BYTES:
            raise ArgumentError(
                "A model in one file must have less than 2 GB of constants.",
                received=f"{size} bytes",
                fix="model.save(path, external=True), which writes constants to a second file",
            )
        return self._encode(None)

    def _encode(self, external: External | None) -> bytes:
        return model_message(self.graph, self.opset, PRODUCER, external).encode()

    def save(self, path: Any, *, external: bool = False) -> None:
        """Write the model to a file.

        Args:
            path: the name of the file.
            external: write large constants to a second file of the same name with `.data` appended, which other
                programs can map into memory. A model of more than 2 GB needs this.
        """
        path = os.fspath(path)
        beside = External(f"{os.path.basename(path)}.data", LEAST_EXTERNAL) if external else None
        encoded = self.serialize() if beside is None else self._encode(beside)
        if beside is not None:
            with open(f"{path}.data", "wb") as file:
                file.write(beside.contents)
        with open(path, "wb") as file:
            file.write(encoded)

    def __repr__(self) -> str:
        return f"<ONNX model of {self.name}: {len(self.graph.nodes)} nodes, opset {self.opset}>"


PRODUCER = ("weft", "")


def onnx(
    fun: Any,
    *specs: Any,
    opset: int = OLDEST,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    **keywords: Any,
) -> OnnxModel:
    """Export a function as a model of ONNX, for runtimes such as onnxruntime.

    Sizes may be symbolic (`symbolic_shape`): they are parameters of the model's types, so that one model serves all
    batch sizes. Arrays that the function closes over, such as weights, are constants of the model. Loops, branches and
    random numbers are part of it; callbacks and sharded programs are refused.

    Args:
        fun: a function, a jitted function, or an `Exported`.
        *specs: the arguments, or `ShapeDtypeStruct`s of their types.
        opset: the least version of ONNX's operator set to use; dtypes of 8 bits and less need a later one.
        input_names: names of the inputs; by default those of the arguments.
        output_names: names of the outputs; by default `result`, or their paths in the result.
        **keywords: arguments by keyword.

    Returns:
        The model; `save` writes it to a file, `serialize` returns its bytes.

    >>> import weft, weft.numpy as np
    >>> from weft import export
    >>> batch = weft.ShapeDtypeStruct(export.symbolic_shape("b, 2"), np.float32)
    >>> print(export.onnx(lambda x: x.sum(axis=1), batch).as_text())
    lambda (float[b,2] x) => (float[b] result) {
      int64[1] c = {1}
      result = ReduceSum <keepdims=0>(x, c)
    }
    """
    if not OLDEST <= opset <= NEWEST:
        raise ArgumentError(f"opset must be a version from {OLDEST} to {NEWEST}.", received=repr(opset))
    exported = fun if isinstance(fun, Exported) else export(ensure_jit(fun))(*specs, **keywords)
    if exported.nr_devices > 1:
        raise NotSupportedError(
            "A model of ONNX runs on one device.",
            received=f"a program for {exported.nr_devices} devices",
            fix="export the function without shardings",
        )
    return write_model(exported, opset, input_names, output_names)


def ensure_jit(fun: Any) -> Any:
    """Return a jitted function."""
    return fun if hasattr(fun, "trace") else jit(fun)


def write_model(
    exported: Exported, opset: int, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> OnnxModel:
    """Write an export as a model."""
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
    return OnnxModel(exported.fun_name, g.graph, g.version, exported.in_tree, exported.out_tree)


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
