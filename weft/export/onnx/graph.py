"""Graphs of ONNX: values, nodes, constants, and their encoding and text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError
from weft.base.protobuf import Message
from weft.indexing.dimension import Dimension
from weft.indexing.expression import Expression

Shape = tuple[Dimension, ...]

# Numbers of element types in the format, and their names in its text.
ELEMENT_TYPES: dict[str, tuple[int, str]] = {
    "float32": (1, "float"), "uint8": (2, "uint8"), "int8": (3, "int8"), "uint16": (4, "uint16"), "int16": (5, "int16"),
    "int32": (6, "int32"), "int64": (7, "int64"), "bool": (9, "bool"), "float16": (10, "float16"),
    "float64": (11, "double"), "uint32": (12, "uint32"), "uint64": (13, "uint64"), "bfloat16": (16, "bfloat16"),
    "float8_e4m3fn": (17, "float8e4m3fn"), "float8_e4m3fnuz": (18, "float8e4m3fnuz"),
    "float8_e5m2": (19, "float8e5m2"), "float8_e5m2fnuz": (20, "float8e5m2fnuz"), "uint4": (21, "uint4"),
    "int4": (22, "int4"),
}  # fmt: skip
# The first version of the operator set that has an element type, if it is later than the first that is written.
TYPE_VERSIONS = {"float8_e4m3fn": 19, "float8_e4m3fnuz": 19, "float8_e5m2": 19, "float8_e5m2fnuz": 19}
TYPE_VERSIONS |= {"uint4": 21, "int4": 21}
# By the version of the operator set: the version of the format that introduced it.
FORMAT_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10}
OLDEST, NEWEST = min(FORMAT_VERSIONS), max(FORMAT_VERSIONS)
# Constants of at most this many elements are written out in the text.
MOST_IN_TEXT = 8


@dataclass(frozen=True, eq=False)
class Value:
    """Tensor in a graph: its name, dtype and shape.

    `data` has the elements of a constant. `compact` is a value with size 1 where this one repeats elements: operations
    that broadcast use it, and the repetition is dropped if all of them do.
    """

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    data: np.ndarray | None = None
    compact: Value | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def narrow(self) -> Value:
        """The value before repetition."""
        return self if self.compact is None else self.compact


class ElementType(str):
    """Name of a dtype, as an attribute: its number in the format."""

    __slots__ = ()


Attribute = Any


@dataclass(eq=False)
class Node:
    """Operation of a graph. Attributes are integers, floats, strings, sequences of integers, and graphs."""

    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]
    name: str = ""

    def graphs(self) -> list[Graph]:
        """Return the graphs among the attributes."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]


@dataclass(eq=False)
class Graph:
    """Nodes in order of execution. Bodies of loops and branches read the values of graphs around them."""

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Value] = field(default_factory=dict)

    def reads(self) -> set[str]:
        """Return the names that nodes, bodies and outputs read."""
        found = {value.name for value in self.outputs}
        for node in self.nodes:
            found.update(node.inputs)
            for body in node.graphs():
                found |= body.reads()
        return found

    def drop_dead(self) -> None:
        """Remove nodes and constants that no output needs, in bodies too."""
        for node in self.nodes:
            for body in node.graphs():
                body.drop_dead()
        needed = {value.name for value in self.outputs}
        live: list[Node] = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.outputs):
                live.append(node)
                needed.update(node.inputs)
                for body in node.graphs():
                    needed |= body.reads()
        self.nodes = live[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in needed}

    def operations(self) -> set[str]:
        """Return the names of all operations, in bodies too."""
        return {n.operation for n in self.nodes}.union(*(g.operations() for n in self.nodes for g in n.graphs()))


def element_type(dtype: np.dtype[Any]) -> tuple[int, str]:
    """Return the number and the name of a dtype in the format; raise an error if it has none."""
    found = ELEMENT_TYPES.get(dtype.name)
    if found is None:
        raise NotSupportedError(
            "An array of an ONNX graph must have a dtype of the format.",
            received=dtypes.name(dtype),
            fix=f"convert it to one of {', '.join(ELEMENT_TYPES)}",
        )
    return found


# ------------------------------------------------------------------------------------------------------- the encoding


def pack(array: np.ndarray) -> bytes:
    """Return the elements of an array as the format stores them: in little endian, two of four bits in a byte."""
    array = np.ascontiguousarray(array)
    if array.dtype.name in ("int4", "uint4"):
        nibbles = array.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
        pairs = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8)).reshape(-1, 2)
        return (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8).tobytes()
    return array.astype(array.dtype.newbyteorder("<")).tobytes() if array.dtype.kind in "iuf" else array.tobytes()


@dataclass
class External:
    """File beside a model that holds its large constants: its name, its contents so far, and the least size."""

    location: str
    least: int
    contents: bytearray = field(default_factory=bytearray)
    alignment: int = 4096

    def place(self, data: bytes) -> tuple[int, int]:
        """Append data at an aligned position; return its offset and length."""
        self.contents += b"\0" * (-len(self.contents) % self.alignment)
        offset = len(self.contents)
        self.contents += data
        return offset, len(data)


def tensor_message(value: Value, external: External | None = None) -> Message:
    """Encode a constant, with its elements in the file of `external` if it is large."""
    assert value.data is not None
    data = pack(value.data)
    message = Message().integers(1, value.data.shape).integer(2, element_type(value.dtype)[0]).text(8, value.name)
    if external is None or len(data) < external.least:
        return message.data(9, data)
    offset, length = external.place(data)
    entries = {"location": external.location, "offset": str(offset), "length": str(length)}
    return message.messages(13, (Message().text(1, k).text(2, v) for k, v in entries.items())).integer(14, 1)


def value_message(value: Value) -> Message:
    """Encode the name and the type of an input or output. Symbolic sizes are parameters of the type, by their text."""
    sizes = [
        Message().text(2, str(size)) if isinstance(size, Expression) else Message().integer(1, size)
        for size in value.shape
    ]
    tensor = Message().integer(1, element_type(value.dtype)[0]).message(2, Message().messages(1, sizes))
    return Message().text(1, value.name).message(2, Message().message(1, tensor))


def attribute_message(name: str, value: Attribute, external: External | None) -> Message:
    """Encode an attribute of a node."""
    message = Message().text(1, name)
    if isinstance(value, Graph):
        return message.message(6, graph_message(value, external)).integer(20, 5)
    if isinstance(value, ElementType):
        return message.integer(3, ELEMENT_TYPES[value][0]).integer(20, 2)
    if isinstance(value, str):
        return message.data(4, value.encode()).integer(20, 3)
    if isinstance(value, float):
        return message.real(2, value).integer(20, 1)
    if isinstance(value, Sequence):
        for item in value:
            message.integer(8, item)
        return message.integer(20, 7)
    return message.integer(3, int(value)).integer(20, 2)


def node_message(node: Node, external: External | None) -> Message:
    """Encode a node."""
    message = Message()
    for field_number, names in ((1, node.inputs), (2, node.outputs)):
        for name in names:
            message.data(field_number, name.encode())
    message.text(3, node.name).text(4, node.operation)
    return message.messages(5, (attribute_message(k, v, external) for k, v in node.attributes.items()))


def graph_message(graph: Graph, external: External | None = None) -> Message:
    """Encode a graph."""
    message = Message().messages(1, (node_message(node, external) for node in graph.nodes)).text(2, graph.name)
    message.messages(5, (tensor_message(value, external) for value in graph.constants.values()))
    message.messages(11, map(value_message, graph.inputs))
    return message.messages(12, map(value_message, graph.outputs))


def model_message(graph: Graph, version: int, producer: tuple[str, str], external: External | None = None) -> Message:
    """Encode a model: a graph, the version of its operator set, and the name and version of its producer."""
    message = Message().integer(1, FORMAT_VERSIONS[version]).text(2, producer[0]).text(3, producer[1])
    return message.message(7, graph_message(graph, external)).message(8, Message().data(1, b"").integer(2, version))


# ----------------------------------------------------------------------------------------------------------- the text


def type_text(value: Value) -> str:
    """Return the type of a value as text, such as `float[b,3]`."""
    return f"{element_type(value.dtype)[1]}[{','.join(str(size).replace(' ', '') for size in value.shape)}]"


def constant_text(value: Value) -> str:
    """Return a constant as text; large ones by their type alone."""
    assert value.data is not None
    if value.data.size > MOST_IN_TEXT:
        return f"{type_text(value)} {value.name} = ..."
    items = ", ".join(str(item) for item in value.data.reshape(-1).tolist())
    return f"{type_text(value)} {value.name} = {{{items}}}"


def graph_lines(graph: Graph) -> Iterable[str]:
    """Yield the lines of a graph."""
    inputs, outputs = (
        ", ".join(f"{type_text(v)} {v.name}" for v in values) for values in (graph.inputs, graph.outputs)
    )
    yield f"{graph.name} ({inputs}) => ({outputs}) {{"
    yield from (f"  {constant_text(value)}" for value in graph.constants.values())
    for node in graph.nodes:
        plain = {k: v for k, v in node.attributes.items() if not isinstance(v, Graph)}
        attributes = ", ".join(f"{k}={list(v) if isinstance(v, tuple) else v}" for k, v in plain.items())
        yield (
            f"  {', '.join(node.outputs)} = {node.operation}{f' <{attributes}>' if plain else ''}"
            f"({', '.join(node.inputs)})"
        )
        for name, body in node.attributes.items():
            if isinstance(body, Graph):
                first, *rest = graph_lines(body)
                yield f"    {name} = {first}"
                yield from (f"    {line}" for line in rest)
    yield "}"
