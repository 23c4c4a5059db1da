"""Conversions: between dtypes, of bits, and from a variable to a constant of differentiation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.ranges import Range
from weft.ir.element import Element
from weft.ir.flow import OperandRanges
from weft.ir.fusing import AT_OTHER_INDEX, AT_SAME_INDEX, Machine, Properties
from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.ir.zeros import Zero
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.scalar import bfloat16
from weft.primitives.families import fail
from weft.primitives.movement.shape import move_axis, ramp
from weft.sharding.factors import AxisFactors


def convert_values(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert numbers to another dtype: complex to real drops the imaginary part, float to integer saturates at the
    limits (nan becomes 0), integers wrap."""
    source, target = dtypes.kind(x.dtype), dtypes.kind(dtype)
    if source == "c" and target != "c":
        x, source = x.real, "f"
    if source == "f" and target in "iu":
        limits = dtypes.iinfo(dtype)
        wide = x if x.dtype == dtypes.float64 else x.astype(np.float64)
        low, high = int(limits.min), int(limits.max)
        # float64 cannot represent the greatest 64-bit integers, so values out of range are handled separately.
        inside = (wide > float(low) - 1) & (wide < float(high))
        whole = np.where(inside, wide, 0).astype(np.uint64 if dtype == dtypes.uint64 else np.int64)
        whole = np.where(wide >= float(high), np.array(high, whole.dtype), whole)
        return np.where(wide <= float(low), np.array(low, whole.dtype), whole).astype(dtype)
    if source in "iu" and x.dtype.kind == "V":  # types below a byte convert to each other by way of one
        x = x.astype(np.int8 if source == "i" else np.uint8)
    return x.astype(dtype)


# Those with infinities, nans and both zeros.
_PLAIN_FLOATS = frozenset({dtypes.bfloat16, np.dtype(np.float16), dtypes.float32, dtypes.float64})


@functools.lru_cache(maxsize=1024)
def holds_all(narrow: Any, wide: Any) -> bool:
    """Return whether a dtype can represent every value of another one, with the sign of zeros."""
    first, second = dtypes.kind(narrow), dtypes.kind(wide)
    if narrow == wide or first == "b":
        return True
    if second == "c":
        part = dtypes.to_real_dtype(wide)
        return holds_all(dtypes.to_real_dtype(narrow) if first == "c" else narrow, part)
    if first in "iu":
        bits = dtypes.itemsize_bits(narrow) - (first == "i")
        if second == "f":
            limits = ml_dtypes.finfo(wide)
            return bits <= limits.nmant + 1 and bits <= limits.maxexp
        return (
            second in "iu" and (first == "u" or second == "i") and bits <= dtypes.itemsize_bits(wide) - (second == "i")
        )
    if first == "f" and second == "f":
        if narrow not in _PLAIN_FLOATS or wide not in _PLAIN_FLOATS:
            return False
        a, b = ml_dtypes.finfo(narrow), ml_dtypes.finfo(wide)
        return a.nmant <= b.nmant and a.maxexp <= b.maxexp and a.minexp >= b.minexp
    return False


@primitive
class convert_element_type(Elementwise):
    """Same numbers in another dtype."""

    kinds = "biufc"
    introduces = ("inf",)
    keeps_nan = "all"

    def type(self, x: ArrayType, *, new_dtype: Any, weak_type: bool = False) -> ArrayType:
        if x.dtype != new_dtype and "k" in (dtypes.kind(x.dtype), dtypes.kind(new_dtype)):
            raise ArgumentTypeError(
                f"An array of {dtypes.name(x.dtype)} cannot become {dtypes.name(new_dtype)}; the "
                "numbers of a random key are read with weft.random.key_data."
            )
        return array_type(x.shape, new_dtype, weak_type)

    def linear_operands(self, types: Sequence[Any], params: Params) -> Sequence[int]:
        """Conversions between floating-point dtypes are linear up to rounding; sums of integers wrap around in their
        dtype."""
        return [0] if {dtypes.kind(types[0].dtype), dtypes.kind(params["new_dtype"])} <= {"f", "c"} else []

    def eval(self, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Any:
        return convert_values(np.asarray(x), dtypes.storage(new_dtype))

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Any:
        if type(tangents[0]) is Zero or dtypes.kind(new_dtype) not in "fc":
            return Zero.of(out.aval)
        return convert_element_type(tangents[0], new_dtype=new_dtype, weak_type=weak_type)

    def transpose(self, cotangent: Any, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Sequence[Any]:
        aval = x.aval
        return [convert_element_type(cotangent, new_dtype=aval.dtype, weak_type=aval.weak_type)]

    def emit(self, builder: Any, x: Any, *, new_dtype: Any, weak_type: bool = False) -> Any:
        return builder.convert(x, new_dtype)

    def bounds(self, operands: OperandRanges, *, new_dtype: Any, weak_type: bool = False) -> Range:
        return operands(0)

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        source = operands[0].aval.dtype
        # To a shorter float, small negative numbers become -0.0.
        return dtypes.kind(source) in "biu" or (holds_all(source, params["new_dtype"]) and known(operands[0]))

    def samples(self) -> Any:
        def to(name: Any) -> dict[str, Any]:
            return {"new_dtype": np.dtype(name), "weak_type": False}

        edges = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf, -np.inf], np.float32)
        yield Sample(ramp(3), differentiable=False, **to(np.float16))
        yield Sample(ramp(3), differentiable=False, **to(bfloat16))
        yield Sample(ramp(3), **to(np.complex64))
        yield Sample(ramp(3, dtype=np.complex64) * (1 + 2j), **to(np.float32))
        yield Sample(ramp(), **to(np.float32))
        for name in (np.int32, np.uint32, np.int8, np.bool_):
            yield Sample(edges, differentiable=False, **to(name))
        yield Sample(np.array([300, -129, 0], np.int32), **to(np.int8))
        # What is widened has the sign that it had.
        yield Sample(np.array([0, 127, 128, 255], np.uint8), **to(np.int32))
        yield Sample(np.array([0, 127, -128, -1], np.int8), **to(np.uint32))
        yield Sample(ramp(3, dtype=np.int32), **to(np.float32))
        yield Sample(np.array([True, False]), **to(np.float32))


@primitive
class stop_gradient(Elementwise):
    """Same numbers, treated as constants by differentiation."""

    kinds = "fc"
    zero_derivative = True
    identity = True
    weight = 0

    @staticmethod
    def eval(x: Any) -> Any:
        return x

    def emit(self, builder: Any, x: Any) -> Any:
        return x

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), differentiable=False)
        yield Sample(ramp(), differentiable=False)
        yield Sample(ramp(2, dtype=np.complex64), differentiable=False)


@primitive
class bitcast_convert_type(Primitive):
    """Same bits read as another dtype. A narrower one adds a last dimension, a wider one takes the last away."""

    zero_derivative = True
    introduces = ()
    weight = 0

    def type(self, x: ArrayType, *, new_dtype: Any) -> ArrayType:
        if x.dtype == new_dtype:
            return x.strong()
        if any(dtypes.kind(d) not in "iuf" for d in (x.dtype, new_dtype)):
            raise ArgumentTypeError(
                f"bitcast_convert_type cannot read {x.short()} as {dtypes.name(new_dtype)}; it "
                "works between integers and floats."
            )
        old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(new_dtype)
        if old == new:
            return array_type(x.shape, new_dtype)
        if old > new:
            return array_type((*x.shape, old // new), new_dtype)
        if not x.shape or x.shape[-1] != new // old:
            raise fail(
                f"bitcast_convert_type reads {new // old} elements of {dtypes.name(x.dtype)} as one of "
                f"{dtypes.name(new_dtype)}, so the last dimension must be {new // old}; the shape is {x.shape}.",
                fix="reshape so that the last dimension holds the elements of one wider number",
            )
        return array_type(x.shape[:-1], new_dtype)

    @staticmethod
    def eval(x: Any, *, new_dtype: Any) -> Any:
        x = np.asarray(x)
        old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(new_dtype)
        if old == new and old >= 8:
            return x.view(new_dtype)
        if 0 in x.shape:
            shape = x.shape if old == new else ((*x.shape, old // new) if old > new else x.shape[:-1])
            return np.zeros(shape, new_dtype)
        contiguous = np.ascontiguousarray(x).reshape(*x.shape, 1)
        if old < 8 and dtypes.kind(x.dtype) != "f":  # one element a byte, in its low bits
            contiguous = contiguous.astype(np.int8)
        bits = np.unpackbits(contiguous.view(np.uint8), axis=-1, bitorder="little")[..., :old]
        if new > old:
            bits = bits.reshape(*x.shape[:-1], new)
        elif new < old:
            bits = bits.reshape(*x.shape, old // new, new)
        packed = np.packbits(bits, axis=-1, bitorder="little")
        if new < 8:
            small = packed[..., 0]
            return small.view(new_dtype) if dtypes.kind(new_dtype) == "f" else small.astype(np.int8).astype(new_dtype)
        return packed.view(new_dtype)[..., 0]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, new_dtype: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        assert dim is not None
        return bitcast_convert_type(move_axis(x, dim, 0), new_dtype=new_dtype), 0

    def factors(self, x: ArrayType, *, new_dtype: Any) -> AxisFactors:
        result = self.type(x, new_dtype=new_dtype)
        names = tuple(f"d{i}" for i in range(max(x.ndim, result.ndim)))
        if x.ndim < result.ndim:
            return AxisFactors((names[: x.ndim],), ((*names[: x.ndim], None),))
        if x.ndim > result.ndim:
            return AxisFactors(((*names[: result.ndim], None),), (names[: result.ndim],))
        return AxisFactors((names,), (names,))

    def value_at(self, element: Element, *, new_dtype: Any) -> Any:
        """Compute an element of equal width, a piece of a wider one, or one from several narrower ones."""
        dtype = dtypes.storage(new_dtype)
        old, new = dtypes.itemsize_bits(element.types[0].dtype), dtypes.itemsize_bits(dtype)
        if old == new:
            return element.scalars.bitcast(element.operand(0), dtype)
        if old > new:
            *index, last = element.index
            return element.piece(element.operand(0, index), last, dtype)
        return element.concatenate([element.operand(0, (*element.index, i)) for i in range(new // old)], dtype)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        same = equation.invars[0].aval.shape == equation.outvars[0].aval.shape
        return AT_SAME_INDEX if same else AT_OTHER_INDEX

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), new_dtype=np.dtype(np.int32), differentiable=False)
        yield Sample(ramp(3), new_dtype=np.dtype(np.uint8), differentiable=False)
        yield Sample(np.arange(12, dtype=np.uint8).reshape(3, 4), new_dtype=np.dtype(np.float32), differentiable=False)
        yield Sample(ramp(), new_dtype=bfloat16, differentiable=False)
        yield Sample(ramp(2, 3, dtype=bfloat16), new_dtype=np.dtype(np.uint16), differentiable=False)
        yield Sample(np.array([0x9F, 3], np.uint8), new_dtype=dtypes.as_dtype("int4"), differentiable=False)
