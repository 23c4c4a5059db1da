"""Special functions by the text that kernels compute them with: LLVM instructions as operations on whole tensors.

`compiler/target/math` writes functions over an abstract LLVM function, one lane at a time or several. `TensorFunction`
has the same instructions and appends nodes of a graph instead, where a lane is a tensor. Integers are signed, booleans
are i1; bits of floats are read by arithmetic (`rules/random.py`), since older operator sets cannot.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.lanes import Lane, Lanes
from weft.compiler.target.llvm import Type, Value as LlvmValue, double, float_, i1, i32, i64, ptr
from weft.compiler.target.llvm.function import Region
from weft.compiler.target.math import inverse, trigonometric
from weft.compiler.target.math.term import Term
from weft.export.onnx.emitter import BOOL, FLOAT32, INT32, INT64, Emitter, broadcast
from weft.export.onnx.graph import Graph, Shape, Value
from weft.export.onnx.rules.elementwise import compare, convert, shift
from weft.export.onnx.rules.functions import SINGLE, write_atan2, write_single
from weft.export.onnx.rules.random import bits_of_floats, floats_of_bits
from weft.export.onnx.table import Parts, parts_rule, rule
from weft.ir.jaxpr import Equation

FLOAT64 = np.dtype(np.float64)
TYPES = {FLOAT64: double, FLOAT32: float_, BOOL: i1, INT32: i32, INT64: i64}
DTYPES = {type: dtype for dtype, type in TYPES.items()}
SPECIAL = (
    "bessel_i0e", "bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "igamma", "igamma_derivative", "igamma_grad_a",
    "igammac", "lgamma", "polygamma", "random_gamma_grad", "regularized_incomplete_beta", "zeta",
)  # fmt: skip
COMPLEX = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "complex", "conj", "cos", "cosh", "div",
    "exp", "exp2", "expm1", "imag", "integer_pow", "log", "log1p", "logistic", "max", "min", "mul", "neg", "pow",
    "real", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
)  # fmt: skip
ORDERED = {"olt": "Less", "ole": "LessOrEqual", "ogt": "Greater", "oge": "GreaterOrEqual", "oeq": "Equal"}
SIGNED = {"slt": "Less", "sle": "LessOrEqual", "sgt": "Greater", "sge": "GreaterOrEqual", "eq": "Equal"}


class Tensor(LlvmValue):
    """LlvmValue whose lanes are the elements of a tensor."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Value) -> None:
        super().__init__(tensor.name, TYPES[tensor.dtype])
        self.tensor = tensor


class Room(LlvmValue):
    """Memory of one value."""

    __slots__ = ("value",)

    def __init__(self, value: LlvmValue | None = None) -> None:
        super().__init__("room", ptr)
        self.value = value


class Place(LlvmValue):
    """Element of a table of constants, or its first one."""

    __slots__ = ("index", "values")

    def __init__(self, values: np.ndarray, index: LlvmValue | int = 0) -> None:
        super().__init__("place", ptr)
        self.values = values
        self.index = index


class TensorFunction:
    """Instructions of LLVM as nodes of a graph. It is its own module, of the helpers and tables of one equation."""

    # An exact multiply-add of float64 would be tens of nodes; without it the last digits are not exact.
    fused = True

    def __init__(self, g: Emitter, shape: Shape, arguments: Sequence[Room] = (), buffer: Any = None) -> None:
        self.g = g
        self.shape = shape
        self.module = self
        self.arguments = list(arguments)
        self.functions: dict[str, Any] = {}
        self._buffer: AbstractContextManager[Graph] | None = buffer
        self._helpers: dict[str, tuple[TensorFunction, Graph]] = {}

    # -- values -----------------------------------------------------------------------------------------------------

    def read(self, value: LlvmValue) -> Value:
        """Return the tensor of a value, or the constant that its text says."""
        if isinstance(value, Tensor):
            return value.tensor
        text, dtype = value.text, DTYPES[value.type]
        if text in ("true", "false"):
            return self.g.constant(np.asarray(text == "true"))
        if text.startswith("0x"):
            return self.g.constant(np.asarray(struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0], dtype))
        return self.g.constant(np.asarray(int(text), dtype))

    def _apply(self, operation: str, *values: LlvmValue, dtype: Any = None) -> Tensor:
        return Tensor(self.g.elementwise(operation, *map(self.read, values), dtype=dtype))

    def _cast(self, a: LlvmValue, type: Type) -> Tensor:
        return Tensor(self.g.cast(self.read(a), DTYPES[type]))

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def fadd(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._apply("Add", a, b)

    def fsub(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._apply("Sub", a, b)

    def fmul(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._apply("Mul", a, b)

    def fdiv(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._apply("Div", a, b)

    def fneg(self, a: LlvmValue) -> Tensor:
        return self._apply("Neg", a)

    def fma(self, a: LlvmValue, b: LlvmValue, c: LlvmValue) -> LlvmValue:
        """Multiply and add; of float32 the product is exact in float64."""
        if a.type is not float_:
            return self.fadd(self.fmul(a, b), c)
        a, b, c = (self._cast(x, double) for x in (a, b, c))
        return self._cast(self.fadd(self.fmul(a, b), c), float_)

    add, sub, mul = fadd, fsub, fmul

    def shl(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._shift(a, b, "LEFT")

    def lshr(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._shift(a, b, "RIGHT")

    def _shift(self, a: LlvmValue, b: LlvmValue, direction: str) -> Tensor:
        value = self.read(a)
        words = np.dtype(np.uint64 if value.dtype == INT64 else np.uint32)
        moved = shift(self.g, self.g.cast(value, words), self.read(b), direction)
        return Tensor(self.g.cast(moved, value.dtype))

    def ashr(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """Shift with copies of the sign: of a negative number, the complement of its shifted complement."""
        negative = self._apply("Less", a, self._zero(a), dtype=BOOL)
        flipped = self.not_(self.lshr(self.not_(a), b))
        return self.select(negative, flipped, self.lshr(a, b))

    def _zero(self, a: LlvmValue) -> Tensor:
        return Tensor(self.g.constant(np.zeros((), DTYPES[a.type])))

    def _logic(self, name: str, *values: LlvmValue) -> Tensor:
        return self._apply(name if values[0].type is i1 else f"Bitwise{name}", *values)

    def and_(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._logic("And", a, b)

    def or_(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._logic("Or", a, b)

    def xor(self, a: LlvmValue, b: LlvmValue) -> Tensor:
        return self._logic("Xor", a, b)

    def not_(self, a: LlvmValue) -> Tensor:
        return self._logic("Not", a)

    # -- comparison and choice -----------------------------------------------------------------------------------------

    def icmp(self, predicate: str, a: LlvmValue, b: LlvmValue) -> Tensor:
        if predicate == "ne":
            return self.not_(self.icmp("eq", a, b))
        if predicate == "ult":  # with the top bits flipped, the order is that of signed integers
            top = Tensor(self.g.constant(np.iinfo(DTYPES[a.type]).min, DTYPES[a.type]))
            a, b, predicate = self.xor(a, top), self.xor(b, top), "slt"
        return Tensor(compare(self.g, SIGNED[predicate], self.read(a), self.read(b)))

    def fcmp(self, predicate: str, a: LlvmValue, b: LlvmValue) -> Tensor:
        if predicate in ("une", "uno"):
            return self.not_(self.fcmp("oeq", a, b))
        return Tensor(compare(self.g, ORDERED[predicate], self.read(a), self.read(b)))

    def select(self, condition: LlvmValue, a: LlvmValue, b: LlvmValue) -> Tensor:
        return Tensor(self.g.where(*map(self.read, (condition, a, b))))

    def reduce(self, operation: str, a: LlvmValue) -> Tensor:
        """Return whether a boolean is true anywhere."""
        value = self.g.cast(self.read(a), INT32)
        flat = self.g.node("ReduceMax", [value], INT32, (), keepdims=0) if value.rank else value
        return Tensor(self.g.cast(flat, BOOL))

    # -- functions -----------------------------------------------------------------------------------------------------

    def sqrt(self, a: LlvmValue) -> Tensor:
        return self._apply("Sqrt", a)

    def fabs(self, a: LlvmValue) -> Tensor:
        return self._apply("Abs", a)

    def floor(self, a: LlvmValue) -> Tensor:
        return self._apply("Floor", a)

    def ceil(self, a: LlvmValue) -> Tensor:
        return self._apply("Ceil", a)

    def roundeven(self, a: LlvmValue) -> Tensor:
        return self._apply("Round", a)

    def ftrunc(self, a: LlvmValue) -> LlvmValue:
        return self.copysign(self.floor(self.fabs(a)), a)

    def copysign(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """Return a magnitude with a sign; the reciprocal of a negative zero is negative."""
        value = self.read(b)
        zero = self.g.scalar(0, value)
        nothing = compare(self.g, "Equal", value, zero)
        sign = self.g.where(nothing, self.g.elementwise("Reciprocal", value), value)
        size = self.fabs(a)
        return self.select(Tensor(compare(self.g, "Less", sign, zero)), self.fneg(size), size)

    # -- conversions ---------------------------------------------------------------------------------------------------

    def bitcast(self, a: LlvmValue, type: Type) -> Tensor:
        value, dtype = self.read(a), DTYPES[type]
        if type.kind == "int":
            return Tensor(self.g.cast(bits_of_floats(self.g, value), dtype))
        words = np.dtype(np.uint64 if value.dtype == INT64 else np.uint32)
        return Tensor(floats_of_bits(self.g, self.g.cast(value, words), dtype))

    def zext(self, a: LlvmValue, type: Type) -> LlvmValue:
        wide = self._cast(a, type)
        if a.type is not i32:
            return wide
        return self.and_(wide, Tensor(self.g.constant(np.int64((1 << 32) - 1))))

    fpext = fptrunc = trunc = sext = sitofp = fptosi = _cast

    # -- control flow --------------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: LlvmValue, *otherwise: LlvmValue, unlikely: bool = False) -> Iterator[Region]:
        """Compute the region in any case: what it gives is right where its condition is false, too."""
        region = Region(otherwise)
        yield region
        region.results = region._yielded or ()

    @contextmanager
    def repeat(self, *carried: LlvmValue) -> Iterator[Region]:
        """Write a loop that runs at least once, over tensors of one shape."""
        g = self.g
        start = [g.expand(self.read(value), broadcast([self.shape, self.read(value).shape])) for value in carried]
        with g.body("step") as body:
            g.input("v", INT64, ())
            g.input("v", BOOL, ())
            region = Region([Tensor(g.input("v", value.dtype, value.shape)) for value in start])
            yield region
            assert region._again is not None and region._yielded is not None
            yielded = [g.expand(self.read(value), start[i].shape) for i, value in enumerate(region._yielded)]
            g.give(body, [self.read(region._again), *yielded])
        found = g.nodes("Loop", [None, None, *start], [(value.dtype, value.shape) for value in start], body=body)
        region.results = tuple(map(Tensor, found))

    # -- memory and helpers --------------------------------------------------------------------------------------------

    def alloca(self, type: Type, count: int = 1, align: int = 64) -> Room:
        return Room()

    def store(self, value: LlvmValue, room: Any, align: int) -> None:
        room.value = value

    def load(self, type: Type, place: Any, align: int) -> LlvmValue:
        """Return the contents of a room, or an element of a table."""
        if isinstance(place, Room):
            assert place.value is not None
            return place.value
        if isinstance(place.index, int):
            return Tensor(self.g.constant(place.values[place.index]))
        index = self.read(place.index)
        last = self.g.constant(np.asarray(len(place.values) - 1, index.dtype))
        inside = self.g.elementwise("Max", self.g.elementwise("Min", index, last), self.g.scalar(0, index))
        return Tensor(self.g.move("Gather", self.g.constant(place.values), [inside], index.shape, axis=0))

    def table(self, name: str, element: Type, values: Sequence[float]) -> Place:
        return Place(np.asarray(values, DTYPES[element]))

    opaque_table = table

    def offset(self, place: Any, element: Type, index: LlvmValue | int) -> Place:
        return Place(place.values, index)

    def function(self, name: str, returns: Type, parameters: Sequence[Any], linkage: str = "") -> TensorFunction:
        """Begin a helper: its nodes are collected until it is called, for parameters that are not known yet."""
        buffer = self.g.body(name)
        graph = buffer.__enter__()
        rooms = [Room(Tensor(Value(self.g.new_name(), FLOAT64, self.shape))) for _ in parameters[:-1]]
        helper = TensorFunction(self.g, self.shape, [*rooms, Room()], buffer)
        self._helpers[name] = helper, graph
        return helper

    def ret(self) -> None:
        """End a helper."""
        assert self._buffer is not None
        self._buffer.__exit__(None, None, None)

    def helper(self, name: str, parameters: Sequence[Any], write: Any) -> str:
        """Return the name of a helper that is replaced here, by that name."""
        return name

    def call(self, name: str, returns: Type, *rooms: Any) -> None:
        """Emit the nodes of a helper, with the contents of rooms as its parameters."""
        if name == trigonometric.QUARTER_TURNS:
            self._reduce_angle(rooms)
            return
        helper, graph = self._helpers[name]
        for room, parameter in zip(rooms[:-1], helper.arguments, strict=False):
            assert isinstance(parameter.value, Tensor)
            self.g.copy(self.g.expand(self.read(room.value), self.shape), parameter.value.tensor)
        self.g.append(graph.nodes)
        rooms[-1].value = helper.arguments[-1].value

    def _reduce_angle(self, rooms: Sequence[Any]) -> None:
        """Reduce large angles, for which compiled code has integers of 128 bits: by the angle of (cos, sin)."""
        angle: Any = rooms[0].value
        sine, cosine = (Term(self, self._apply(name, angle)) for name in ("Sin", "Cos"))  # type: ignore[arg-type]
        reduced = inverse.atan2(sine, cosine)
        quarter = (reduced * (2 / math.pi)).rint()
        values = quarter.to_integer(i64), reduced - quarter * (math.pi / 2), quarter * 0.0
        for room, value in zip(rooms[1:], values, strict=False):
            room.value = value.value


def lane(function: Any, dtype: Any, parts: Parts) -> Lane:
    """Return the lanes of an array."""
    return Lane(dtype, *(Term(function, Tensor(part)) for part in parts))


@parts_rule(*COMPLEX)
def write_complex(g: Emitter, e: Equation, *operands: Parts) -> list[Parts] | None:
    """Write an operation on each element of complex arrays, or one that makes them of real ones."""
    out: Any = e.outvars[0].aval
    if max(map(len, operands)) == 1 and dtypes.kind(out.dtype) != "c":
        return None
    shape = broadcast([part.shape for parts in operands for part in parts])
    function: Any = TensorFunction(g, shape)
    lanes = [lane(function, a.aval.dtype, parts) for a, parts in zip(e.invars, operands, strict=True)]  # type: ignore[attr-defined]
    result = Lanes(function, 1).apply(e.primitive.name, lanes, e.params)
    terms = [result.re] if result.im is None else [result.re, result.im]
    return [tuple(g.expand(function.read(term.value), shape) for term in terms)]


@parts_rule("convert_element_type")
def write_complex_conversion(g: Emitter, e: Equation, x: Parts) -> list[Parts] | None:
    """Convert from and to complex numbers: to real ones the imaginary part is dropped."""
    dtype = e.params["new_dtype"]
    if len(x) == 1 and dtypes.kind(dtype) != "c":
        return None
    if dtypes.kind(dtype) != "c":
        if dtype == BOOL:
            return [(g.elementwise("Or", *(convert(g, part, dtype) for part in x)),)]
        return [(convert(g, x[0], dtype),)]
    real = dtypes.to_real_dtype(dtype)
    first = convert(g, x[0], real)
    return [(first, convert(g, x[1], real) if len(x) > 1 else g.expand(g.scalar(0, first), first.shape))]


@rule(*SPECIAL)
def write_special(g: Emitter, e: Equation, *operands: Value) -> Value:
    """Write a special function of floats; short ones are computed in float32, which has a kernel for one of them."""
    own = operands[0].dtype
    if e.primitive.name == "erf" and own != FLOAT64:
        return g.elementwise("Erf", *operands)
    wide = own if own == FLOAT64 else FLOAT32
    function: Any = TensorFunction(g, broadcast([x.shape for x in operands]))
    lanes = [Lane(wide, Term(function, Tensor(g.cast(x, wide)))) for x in operands]
    result = getattr(Lanes(function, 1), e.primitive.name)(*lanes, **e.params)
    return g.cast(g.expand(function.read(result.re.value), function.shape), own)


@rule(*SINGLE, "atan2")
def write_function(g: Emitter, e: Equation, *operands: Value) -> Value:
    """Write an elementary function: by the kernel for float32, in float64 by the text of compiled code."""
    name = e.primitive.name
    if operands[0].dtype != FLOAT64:
        found = write_atan2(g, e, *operands) if name == "atan2" else write_single(g, e, *operands)
        assert found is not None
        return found
    if name == "tan":
        return g.elementwise("Div", *(g.elementwise(part, *operands) for part in ("Sin", "Cos")))
    return write_special(g, e, *operands)
