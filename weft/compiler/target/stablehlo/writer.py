"""Writer of operations in MLIR's generic form: values with types, regions, constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.compiler.target.stablehlo.types import BOOL, dense, int64_array, tensor_type

Shape = tuple[int, ...]


class Value:
    """Result of an operation: its name in the text, shape and dtype."""

    __slots__ = ("dtype", "name", "shape", "type")

    def __init__(self, name: str, shape: Shape, dtype: Any):
        self.name, self.shape, self.dtype = name, shape, dtype
        self.type = tensor_type(shape, dtype)

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


Region = str


class Block:
    """Region that is being written: its arguments, and its results and text when it ends."""

    def __init__(self, arguments: list[Value]) -> None:
        self.arguments = arguments
        self.results: Sequence[Value] = ()
        self.text: Region = ""


class Writer:
    """Operations of one function, in order. Constants are shared within a region."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 2
        self._count = 0
        self._constants: dict[Any, Value] = {}
        # Functions of the module besides the main one: their text, and their names and result types by key.
        self.functions: list[str] = []
        self._symbols = 0
        self._functions: dict[Any, tuple[str, list[tuple[Shape, Any]]]] = {}

    # -- operations ------------------------------------------------------------------------------------------------

    def new(self, shape: Shape, dtype: Any) -> Value:
        """Return a value with a new name."""
        self._count += 1
        return Value(f"%{self._count}", shape, dtype)

    def argument(self, index: int, shape: Shape, dtype: Any) -> Value:
        """Return an argument of the main function."""
        return Value(f"%arg{index}", shape, dtype)

    def line(self, text: str) -> None:
        """Append a line of text."""
        self._lines.append("  " * self._depth + text)

    def write(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[tuple[Shape, Any]],
        attributes: str = "",
        regions: Sequence[Region] = (),
    ) -> list[Value]:
        """Append an operation of any number of results, which are given by shape and dtype."""
        values = [self.new(shape, dtype) for shape, dtype in results]
        out = ", ".join([v.type for v in values])
        inside = f" ({', '.join(regions)})" if regions else ""
        extra = f" {{{attributes}}}" if attributes else ""
        self.line(
            f"{', '.join([v.name for v in values])}{' = ' if values else ''}"
            f'"{name}"({", ".join([x.name for x in operands])}){inside}{extra} : '
            f"({', '.join([x.type for x in operands])}) -> {out if len(values) == 1 else f'({out})'}"
        )
        return values

    def op(
        self, name: str, operands: Sequence[Value], shape: Shape, dtype: Any, attributes: str = "", *regions: Region
    ) -> Value:
        """Append an operation of StableHLO with one result."""
        return self.write(f"stablehlo.{name}", operands, [(shape, dtype)], attributes, regions)[0]

    def same(self, name: str, *operands: Value) -> Value:
        """Append an operation whose result has the type of the operands."""
        return self.op(name, operands, operands[-1].shape, operands[-1].dtype)

    # -- constants -------------------------------------------------------------------------------------------------

    def constant(self, array: Any) -> Value:
        """Return a constant array."""
        array = np.asarray(array)
        key = (array.shape, array.dtype, array.tobytes()) if array.size <= 16 else None
        found = self._constants.get(key) if key is not None else None
        if found is None:
            found = self.op("constant", (), array.shape, array.dtype, f"value = {dense(array)}")
            if key is not None:
                self._constants[key] = found
        return found

    def scalar(self, value: Any, dtype: Any) -> Value:
        """Return a constant of rank 0, rounded to the dtype."""
        return self.constant(np.asarray(value).astype(dtype))

    def full(self, value: Any, shape: Shape, dtype: Any) -> Value:
        """Return an array of one number."""
        number = np.asarray(value).astype(dtype)
        key = (shape, number.dtype, number.tobytes())
        found = self._constants.get(key)
        if found is None:
            array = np.broadcast_to(number, shape)
            text = dense(array if array.size <= 1 else np.broadcast_to(number, (2,)))
            literal, _, _ = text.rpartition(" : ")
            found = self.op("constant", (), shape, dtype, f"value = {literal} : {tensor_type(shape, number.dtype)}")
            self._constants[key] = found
        return found

    def full_like(self, value: Any, x: Value) -> Value:
        """Return an array of one number in the type of another array."""
        return self.full(value, x.shape, x.dtype)

    # -- operations that several rules use --------------------------------------------------------------------------

    def broadcast(self, x: Value, shape: Shape, dimensions: Sequence[int] = ()) -> Value:
        """Broadcast an array; the operand itself if it has the shape."""
        if x.shape == shape:
            return x
        return self.op("broadcast_in_dim", [x], shape, x.dtype, f"broadcast_dimensions = {int64_array(dimensions)}")

    def convert(self, x: Value, dtype: Any) -> Value:
        """Convert to a dtype, as StableHLO does."""
        return x if x.dtype == dtype else self.op("convert", [x], x.shape, dtype)

    def bitcast(self, x: Value, dtype: Any, shape: Shape | None = None) -> Value:
        """Reinterpret the bits of an array."""
        return self.op("bitcast_convert", [x], x.shape if shape is None else shape, dtype)

    def reshape(self, x: Value, shape: Shape) -> Value:
        """Reshape an array; the operand itself if it has the shape."""
        return x if x.shape == shape else self.op("reshape", [x], shape, x.dtype)

    def compare(self, direction: str, x: Value, y: Value, kind: str = "") -> Value:
        """Compare elements: EQ, NE, LT, LE, GT or GE."""
        total = f", compare_type = #stablehlo<comparison_type {kind}>" if kind else ""
        text = f"comparison_direction = #stablehlo<comparison_direction {direction}>{total}"
        return self.op("compare", [x, y], x.shape, BOOL, text)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Select elements of `yes` where the condition holds, else of `no`."""
        return self.op("select", [self.broadcast(condition, yes.shape), yes, no], yes.shape, yes.dtype)

    def iota(self, shape: Shape, dtype: Any, dimension: int) -> Value:
        """Return indices along a dimension."""
        return self.op("iota", (), shape, dtype, f"iota_dimension = {dimension} : i64")

    def slice(
        self, x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
    ) -> Value:
        """Return a slice of constant bounds."""
        steps = strides or (1,) * len(starts)
        shape = tuple(max(-(-(b - a) // s), 0) for a, b, s in zip(starts, limits, steps, strict=True))
        bounds = (("start_indices", starts), ("limit_indices", limits), ("strides", steps))
        return self.op("slice", [x], shape, x.dtype, ", ".join(f"{n} = {int64_array(v)}" for n, v in bounds))

    # -- functions -------------------------------------------------------------------------------------------------

    def call(
        self, name: str, key: Any, operands: Sequence[Value], build: Callable[[list[Value]], Sequence[Value]]
    ) -> list[Value]:
        """Call a function of the module, which `build` writes at the first call with a key."""
        key = (name, key, tuple(x.type for x in operands))
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._function(name, operands, build)
        symbol, results = found
        return self.write("func.call", operands, results, f"callee = @{symbol}")

    def _function(
        self, name: str, operands: Sequence[Value], build: Callable[[list[Value]], Sequence[Value]]
    ) -> tuple[str, list[tuple[Shape, Any]]]:
        self._symbols += 1
        symbol, depth = f"{name}_{self._symbols}", self._depth
        self._depth = 1
        with self._inside() as lines:
            arguments = [self.new(x.shape, x.dtype) for x in operands]
            results = build(arguments)
            names, types = (", ".join(each) for each in ([r.name for r in results], [r.type for r in results]))
            self.line(f"return {names} : {types}")
        self._depth = depth
        head = f"  func.func private @{symbol}({', '.join(map(repr, arguments))}) -> ({types}) {{"
        self.functions += [head, *lines, "  }"]
        return symbol, [(r.shape, r.dtype) for r in results]

    # -- regions ---------------------------------------------------------------------------------------------------

    def region(self, types: Sequence[tuple[Shape, Any]], build: Callable[[list[Value]], Sequence[Value]]) -> Region:
        """Return the text of a region with arguments of these types; `build` writes it and returns its results."""
        with self.block(types) as block:
            block.results = build(block.arguments)
        return block.text

    @contextmanager
    def block(self, types: Sequence[tuple[Shape, Any]]) -> Iterator[Block]:
        """Write a region: the code of the `with` statement, which sets the results."""
        with self._inside() as lines:
            block = Block([self.new(shape, dtype) for shape, dtype in types])
            yield block
            names, kinds = ([r.name for r in block.results], [r.type for r in block.results])
            self.line(f'"stablehlo.return"({", ".join(names)}) : ({", ".join(kinds)}) -> ()')
        edge = "  " * self._depth
        head = f"{edge}^bb0({', '.join(map(repr, block.arguments))}):\n" if block.arguments else ""
        block.text = "{\n" + head + "\n".join(lines) + f"\n{edge}}}"

    @contextmanager
    def _inside(self) -> Iterator[list[str]]:
        lines, constants = self._lines, self._constants
        self._lines, self._constants = [], {}
        self._depth += 1
        try:
            yield self._lines
        finally:
            self._depth -= 1
            self._lines, self._constants = lines, constants

    def combiner(self, name: str, dtype: Any) -> Region:
        """Return a region that combines two scalars by one operation."""
        return self.region([((), dtype)] * 2, lambda pair: [self.same(name, *pair)])

    @property
    def text(self) -> str:
        """Operations written so far."""
        return "\n".join(self._lines)
