"""Emission of an ONNX graph from a jaxpr: scopes, constants, sizes and conversions around missing kernels."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError
from weft.export.onnx.graph import ELEMENT_TYPES, TYPE_VERSIONS, Attribute, ElementType, Graph, Node, Shape, Value
from weft.export.onnx.kernels import KERNELS, computing_dtype
from weft.indexing.dimension import Dimension, is_symbolic_shape
from weft.indexing.expression import Expression, Extremum, FloorDivide, Modulo, Symbol
from weft.ir.jaxpr import Equation

BOOL, FLOAT32, INT32, INT64 = (np.dtype(name) for name in ("bool", "float32", "int32", "int64"))
# Slices to the end of a dimension stop at this index.
END = (1 << 63) - 1
# From this version on, the axis of a Fourier transform is an input and no attribute.
TRANSFORM_AXIS_IS_INPUT = 20


class Emitter:
    """Graph under construction. Equal operations on equal values are emitted once; what does not depend on the body of
    a loop or branch may still be inside of it."""

    def __init__(self, name: str, version: int) -> None:
        self.graph = Graph(name)
        self.version = version
        self.sizes: dict[Symbol, Value] = {}
        self.equation: Equation | None = None
        self._graphs = [self.graph]
        self._emitted: list[dict[Any, list[Value]]] = [{}]
        self._constants: dict[Any, Value] = {}
        self._count = self._nodes = 0
        self._taken: set[str] = set()

    # -- names and scopes --------------------------------------------------------------------------------------------

    def new_name(self, wanted: str = "v") -> str:
        """Return a name that no other value has: the one wanted, with a number if it is taken."""
        base = re.sub(r"\W+", "_", wanted).strip("_") or "v"
        name = base
        while name in self._taken or name == "v":
            self._count += 1
            name = f"{base}{'' if base in 'vc' else '_'}{self._count}"
        self._taken.add(name)
        return name

    def input(self, name: str, dtype: np.dtype[Any], shape: Shape) -> Value:
        """Append an input to the graph that is being emitted."""
        self.require(dtype)
        value = Value(self.new_name(name), dtype, shape)
        self._graphs[-1].inputs.append(value)
        return value

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """Emit into a new graph, for the body of a loop or branch."""
        graph = Graph(self.new_name(name))
        self._graphs.append(graph)
        self._emitted.append({})
        try:
            yield graph
        finally:
            self._graphs.pop()
            self._emitted.pop()

    @contextmanager
    def outermost(self) -> Iterator[None]:
        """Emit into the graph of the model: for values that depend on its inputs alone."""
        graphs, emitted = self._graphs, self._emitted
        self._graphs, self._emitted = graphs[:1], emitted[:1]
        try:
            yield
        finally:
            self._graphs, self._emitted = graphs, emitted

    # -- nodes -------------------------------------------------------------------------------------------------------

    def nodes(
        self,
        operation: str,
        inputs: Sequence[Value | None],
        types: Sequence[tuple[Any, Shape]],
        **attributes: Attribute,
    ) -> list[Value]:
        """Append a node with results of the given dtypes and shapes. None stands for an operand that is left out."""
        names = tuple("" if value is None else value.name for value in inputs)
        plain = not any(isinstance(value, Graph) for value in attributes.values())
        key = (operation, names, tuple(sorted(attributes.items()))) if plain else None
        for table in self._emitted if key else ():
            if key in table:
                return table[key]
        results = [Value(self.new_name(), np.dtype(dtype), shape) for dtype, shape in types]
        self._graphs[-1].nodes.append(
            Node(operation, names, tuple(r.name for r in results), attributes, self._node_name(operation))
        )
        if key:
            self._emitted[-1][key] = results
        return results

    def node(
        self, operation: str, inputs: Sequence[Value | None], dtype: Any, shape: Shape, **attributes: Attribute
    ) -> Value:
        """Append a node with one result."""
        return self.nodes(operation, inputs, [(dtype, shape)], **attributes)[0]

    def copy(self, source: Value, target: Value) -> None:
        """Append a node that copies a value under another name."""
        plain = source.dtype.name in KERNELS["Identity"]
        operation, attributes = ("Identity", {}) if plain else ("Cast", {"to": ElementType(source.dtype.name)})
        name = self._node_name(operation)
        self._graphs[-1].nodes.append(Node(operation, (source.name,), (target.name,), attributes, name))

    def give(self, body: Graph, values: Sequence[Value]) -> None:
        """Return values from the body that is being emitted: each is the result of a node of its own in it."""
        for value in values:
            body.outputs.append(Value(self.new_name(), value.dtype, value.shape))
            self.copy(value, body.outputs[-1])

    def append(self, nodes: Sequence[Node]) -> None:
        """Append nodes that were emitted into another graph."""
        self._graphs[-1].nodes.extend(nodes)

    def _node_name(self, operation: str) -> str:
        self._nodes += 1
        stack = self.equation.stack if self.equation is not None else ()
        return "/".join((*(str(part) for part in stack), f"{operation}_{self._nodes}"))

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """Return a constant of the model; equal ones are stored once."""
        array = np.asarray(value) if dtype is None else np.asarray(value).astype(dtype)
        self.require(array.dtype)
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size <= 64 else id(array)
        found = self._constants.get(key)
        if found is None:
            found = Value(self.new_name("c" if array.size <= 64 else "weights"), array.dtype, array.shape, array)
            self._constants[key] = self.graph.constants[found.name] = found
        return found

    def indices(self, values: Sequence[int]) -> Value:
        """Return a constant vector of 64-bit integers."""
        return self.constant(np.asarray(list(values), np.int64))

    # -- sizes -------------------------------------------------------------------------------------------------------

    def dimension(self, size: Dimension) -> Value:
        """Return a size as a vector of one 64-bit integer, computed from the shapes of inputs if it is symbolic."""
        if not isinstance(size, Expression):
            return self.indices([size])
        with self.outermost():
            return self._dimension(size)

    def _dimension(self, size: Expression) -> Value:
        if isinstance(size, Symbol):
            found = self.sizes.get(size)
            if found is None:
                raise self.refuse(f"the symbolic size {size} is not the size of a dimension of an argument")
            return found
        if isinstance(size, Extremum):
            values = [self.dimension(part) for part in size.arguments]
            name = "Min" if size.sign > 0 else "Max"
            return functools.reduce(lambda a, b: self.node(name, [a, b], INT64, (1,)), values)
        if isinstance(size, FloorDivide):  # `Div` cuts towards zero, and the dividend may be negative
            dividend, divisor = self.dimension(size.dividend), self.dimension(size.divisor)
            whole = self._integers("Sub", dividend, self._integers("Mod", dividend, divisor))
            return self._integers("Div", whole, divisor)
        if isinstance(size, Modulo):
            return self._integers("Mod", self.dimension(size.dividend), self.dimension(size.divisor))
        total: Value | None = None
        for monomial, coefficient in size.terms:
            factors = [self.dimension(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self.indices([coefficient]))
            product = functools.reduce(functools.partial(self._integers, "Mul"), factors)
            total = product if total is None else self._integers("Add", total, product)
        assert total is not None
        return total

    def _integers(self, operation: str, x: Value, y: Value) -> Value:
        return self.node(operation, [x, y], INT64, (1,))

    def shape(self, shape: Shape) -> Value:
        """Return a shape as a vector of 64-bit integers."""
        if not any(isinstance(size, Expression) for size in shape):
            return self.indices(shape)  # type: ignore[arg-type]
        with self.outermost():
            parts = [self.dimension(size) for size in shape]
            return parts[0] if len(parts) == 1 else self.node("Concat", parts, INT64, (len(parts),), axis=0)

    # -- operations on elements --------------------------------------------------------------------------------------

    def elementwise(self, operation: str, *operands: Value, dtype: Any = None, **attributes: Attribute) -> Value:
        """Append an operation on elements, whose operands broadcast. The result has the operands' dtype unless it is
        given; operands are converted around dtypes that have no kernels."""
        own = operands[0].dtype
        compute = computing_dtype(operation, own)
        if compute is None:
            raise self.refuse(f"runtimes have no {operation} of {dtypes.name(own)}")
        narrow = [self.cast(x.narrow, compute) for x in operands]
        shape = broadcast([x.shape for x in narrow])
        result = self.node(operation, narrow, compute if dtype is None else dtype, shape, **attributes)
        if dtype is None:
            result = self.cast(result, own)
        return self.expand(result, broadcast([x.shape for x in operands]))

    def cast(self, x: Value, dtype: Any) -> Value:
        """Convert elements: integers wrap around, floats are rounded."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.data is not None and x.data.size <= 64:
            with np.errstate(all="ignore"):
                return self.constant(x.data, dtype)
        self.require(dtype)
        extra = {"saturate": 0} if dtypes.kind(dtype) == "f" and dtype.itemsize == 1 else {}
        narrow = self.node("Cast", [x.narrow], dtype, x.narrow.shape, to=ElementType(dtype.name), **extra)
        return self.expand(narrow, x.shape)

    def require(self, dtype: np.dtype[Any]) -> None:
        """Raise the version of the operator set to the first one that has a dtype; refuse one that none has."""
        if dtype.name not in ELEMENT_TYPES:
            raise self.refuse(f"the format has no {dtypes.name(dtype)}", "convert to another dtype")
        self.version = max(self.version, TYPE_VERSIONS.get(dtype.name, 0))

    def move(
        self, operation: str, x: Value, others: Sequence[Value | None], shape: Shape, **attributes: Attribute
    ) -> Value:
        """Append an operation that moves the elements of its first operand; others are positions."""
        compute = computing_dtype(operation, x.dtype)
        if compute is None:
            raise self.refuse(f"runtimes have no {operation} of {dtypes.name(x.dtype)}")
        result = self.node(operation, [self.cast(x, compute), *others], compute, shape, **attributes)
        return self.cast(result, x.dtype)

    # -- shapes ------------------------------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Shape) -> Value:
        """Return the same elements under another shape."""
        if x.shape == shape:
            return x
        if x.data is not None and not is_symbolic_shape(shape):
            return self.constant(x.data.reshape(shape))
        return self.move("Reshape", x, [self.shape(shape)], shape, allowzero=1)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Reorder axes."""
        if list(permutation) == list(range(x.rank)):
            return x
        if x.data is not None:
            return self.constant(np.array(x.data.transpose(permutation), order="C"))
        shape = tuple(x.shape[p] for p in permutation)
        return self.move("Transpose", x, [], shape, perm=tuple(permutation))

    def expand(self, x: Value, shape: Shape) -> Value:
        """Repeat elements along dimensions of size 1 and new leading ones."""
        if x.shape == shape:
            return x
        full = self.move("Expand", x, [self.shape(shape)], shape)
        return Value(full.name, full.dtype, shape, compact=x)

    def slice_backwards(self, x: Value) -> Value:
        """Reverse the order along the first axis."""
        return self.move("Slice", x, [self.indices([n]) for n in (-1, -END, 0, -1)], x.shape)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """Join values along an axis."""
        if len(values) == 1:
            return values[0]
        size = sum(v.shape[axis] for v in values)
        shape = (*values[0].shape[:axis], size, *values[0].shape[axis + 1 :])
        compute = computing_dtype("Concat", values[0].dtype)
        result = self.node("Concat", [self.cast(v, compute) for v in values], compute, shape, axis=axis)
        return self.cast(result, values[0].dtype)

    def scalar(self, value: Any, like: Value) -> Value:
        """Return a constant of the dtype of another value."""
        return self.constant(np.asarray(value).astype(like.dtype))

    # -- choices -----------------------------------------------------------------------------------------------------

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """Choose between elements by a boolean."""
        if yes.dtype == BOOL:
            first, second = self.elementwise("And", condition, yes), self.elementwise("Not", condition)
            return self.elementwise("Or", first, self.elementwise("And", second, no))
        compute = computing_dtype("Where", yes.dtype)
        assert compute is not None
        narrow = [condition.narrow, *(self.cast(x.narrow, compute) for x in (yes, no))]
        result = self.node("Where", narrow, compute, broadcast([x.shape for x in narrow]))
        return self.expand(self.cast(result, yes.dtype), broadcast([x.shape for x in (condition, yes, no)]))

    def finish(self) -> None:
        """Remove what no result needs, and write operations as the version of the operator set has them."""
        self.graph.drop_dead()
        if self.version >= TRANSFORM_AXIS_IS_INPUT:
            with self.outermost():
                self._move_axes(self.graph)

    def _move_axes(self, graph: Graph) -> None:
        for node in graph.nodes:
            if node.operation == "DFT" and "axis" in node.attributes:
                axis = self.constant(np.int64(node.attributes.pop("axis")))
                self.graph.constants[axis.name] = axis
                node.inputs = (node.inputs[0], "", axis.name)
            for body in node.graphs():
                self._move_axes(body)

    # -- errors ------------------------------------------------------------------------------------------------------

    def refuse(self, why: str, fix: str = "leave it out of the exported function") -> NotSupportedError:
        """Create the error for an equation that has no graph; the caller raises it."""
        source = None if self.equation is None else self.equation.source
        name = "" if self.equation is None else f"`{self.equation.primitive.name}` "
        return NotSupportedError(
            f"{name}cannot be written as ONNX: {why}.", fix=fix, at=None if source is None else source.describe()
        )


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that operands broadcast to: sizes are equal or 1, and shorter shapes lack leading dimensions."""
    rank = max(map(len, shapes))
    result: list[Dimension] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if isinstance(size, Expression) or size != 1:
                result[i] = size
    return tuple(result)
