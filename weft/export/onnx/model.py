"""Models of ONNX: the export of a function, its text and its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.api.jit import jit
from weft.base import tree
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError, NotSupportedError
from weft.base.lazy import lazy
from weft.export.exported import Exported, export
from weft.export.onnx.graph import NEWEST, OLDEST, External, Graph, graph_lines, model_message

if TYPE_CHECKING:
    from weft.export.onnx import write
else:
    write = lazy("weft.export.onnx.write")  # the rules need parts of the compiler

# Constants of a file with data beside it are moved there from this many bytes on.
LEAST_EXTERNAL = 1024
# The format of protocol buffers ends at 2 GB; a part of that is left for names.
MOST_BYTES = 2_000_000_000


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
            "A function must be for one device to become a model of ONNX.",
            received=f"a program for {exported.nr_devices} devices",
            fix="export the function without shardings",
        )
    return OnnxModel(*write.write_model(exported, opset, input_names, output_names))


def ensure_jit(fun: Any) -> Any:
    """Return a jitted function."""
    return fun if hasattr(fun, "trace") else jit(fun)
