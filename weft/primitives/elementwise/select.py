"""Choice among values: select_n and clamp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError, DtypeMismatchError
from weft.base.source import user_line
from weft.indexing.ranges import Range
from weft.ir.flow import BOTH, OperandRanges, dtype_range, union
from weft.ir.kinds import Select
from weft.ir.primitive import Axis, Params, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.bitwise import and_, or_
from weft.primitives.elementwise.compare import gt, lt
from weft.primitives.elementwise.elementwise import Elementwise, align_batch_dims, common_shape
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.elementwise.scalar import bfloat16, constant_like, round_result
from weft.primitives.families import fail
from weft.primitives.movement.shape import broadcast_in_dim, ramp
from weft.primitives.reduction.reduce import unbroadcast


@primitive
class select_n(Elementwise, Select):
    """Element of the case with index `which`, a boolean or an integer; a scalar `which` chooses a whole case."""

    kinds = "biufck"
    introduces = ()

    def type(self, which: ArrayType, *cases: ArrayType) -> ArrayType:
        kind = dtypes.kind(which.dtype)
        if kind not in "biu" or not cases or (kind == "b" and len(cases) > 2):
            raise ArgumentTypeError(
                f"select_n got {len(cases)} cases and {which.short()} to select by; a boolean must select "
                "between two cases, an integer (int32) among any number."
            )
        first = cases[0]
        if any(c is not first for c in cases):
            if any(c.dtype != first.dtype for c in cases):
                raise DtypeMismatchError(
                    "select_n needs cases of one dtype.",
                    received=", ".join(c.short() for c in cases),
                    fix="convert them with .astype, or use weft.numpy.where, which promotes",
                    at=user_line(),
                )
            return array_type(common_shape("select_n", (*cases, which)), first.dtype, all(c.weak_type for c in cases))
        if which.shape and which.shape != first.shape:
            if first.shape:
                raise fail(
                    f"select_n got `which` of shape {which.shape} for cases of shape {first.shape}.",
                    fix="`which` must be a scalar or have the shape of the cases",
                )
            return first.plain_of_shape(which.shape)
        return first

    @staticmethod
    def eval(which: Any, *cases: Any) -> Any:
        shape = np.broadcast_shapes(np.shape(which), *map(np.shape, cases))
        chosen = np.broadcast_to(cases[0], shape)
        # An integer outside of the range chooses the nearest case.
        for i, case in enumerate(cases[1:], 1):
            chosen = np.where(np.asarray(which).astype(np.int64) >= i, case, chosen)
        return chosen

    def jvp(self, tangents: Sequence[Any], out: Any, which: Any, *cases: Any) -> Any:
        case_tangents = tangents[1:]
        if all(type(t) is Zero for t in case_tangents):
            return Zero.of(out.aval)
        filled = [constant_like(c, 0) if type(t) is Zero else t for t, c in zip(case_tangents, cases, strict=True)]
        return broadcast_to_type(select_n(which, *filled), out.aval)

    def transpose(self, cotangent: Any, which: Any, *cases: Any) -> Sequence[Any]:
        results: list[Any] = [None]
        for position, case in enumerate(cases):
            if not is_linear(case):
                results.append(None)
                continue
            results.append(unbroadcast(self.mask_case(which, position, len(cases), cotangent), case.aval))
        return results

    def mask_case(self, which: Any, position: int, count: int, value: Any) -> Any:
        """Return `value` where the case at `position` of `count` is selected, zero elsewhere."""
        zero = constant_like(value, 0)
        return select_n(which, *(value if i == position else zero for i in range(count)))

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        if dims[0] is None and not np.ndim(args[0]):
            cases, dim = align_batch_dims(axis, args[1:], dims[1:])
            return select_n(args[0], *cases), dim
        args, dim = align_batch_dims(axis, args, dims)
        return select_n(*args), dim

    def emit(self, builder: Any, which: Any, *cases: Any) -> Any:
        return builder.select_n(which, *cases)

    def bounds(self, operands: OperandRanges) -> Range:
        cases = range(1, len(operands.types))
        if len(cases) == 2 and dtype_range(operands.types[0]) is BOTH:
            return union([operands.where(case, 0, holds) for case, holds in zip(cases, (False, True), strict=True)])
        return union([operands(case) for case in cases])

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        return all(map(known, operands[1:]))

    def samples(self) -> Any:
        mask = np.array([[True, False], [False, True], [True, True]])
        yield Sample(mask, ramp(3, 2), ramp(3, 2)[::-1].copy())
        yield Sample(np.array(True), ramp(3), ramp(3)[::-1].copy())
        yield Sample(np.array([0, 2, 1, 2], np.int32), ramp(4), ramp(4) * 2, ramp(4) * 3)
        yield Sample(np.array(1, np.int32), ramp(2), ramp(2) * 2, ramp(2) * 3)
        yield Sample(mask, ramp(3, 2), ramp(1)[0:1].reshape(()))
        yield Sample(mask[0], ramp(2, dtype=np.int32), ramp(2, dtype=np.int32) * 2)
        yield Sample(mask[0], mask[1], mask[2])
        yield Sample(mask[0], ramp(2, dtype=np.complex64), ramp(2, dtype=np.complex64) * 1j)
        yield Sample(mask[0], ramp(2, dtype=bfloat16), ramp(2, dtype=bfloat16), differentiable=False)
        yield Sample(np.array(False), ramp(0, 2), ramp(0, 2))


def where(mask: Any, x: Any, y: Any) -> Any:
    """Return `x` where the mask is true, else `y`; scalars are broadcast."""
    return select_n(mask, y, x)


def broadcast_to_type(x: Any, aval: ArrayType) -> Any:
    """Broadcast `x` to the shape of `aval` if it is a scalar."""
    if np.shape(x) == aval.shape:
        return x
    return broadcast_in_dim(x, shape=aval.shape, broadcast_dimensions=())


@primitive
class clamp(Elementwise):
    """Each element brought within [low, high]; the bounds are scalars or have the shape of the operand."""

    kinds = "biufc"
    introduces = ()

    @round_result
    def eval(low: Any, x: Any, high: Any) -> Any:
        return minimum(maximum(low, x), high)

    def exact(self, types: Sequence[Any], params: Any) -> bool:
        """Floats are inexact for the same reason as those of `max` and `min`."""
        return dtypes.kind(types[0].dtype) != "f"

    def jvp(self, tangents: Sequence[Any], out: Any, low: Any, x: Any, high: Any) -> Any:
        if all(type(t) is Zero for t in tangents):
            return Zero.of(out.aval)
        total: Any = None
        # Where the lower bound is above the upper one, the result is the upper one.
        masks = (
            lambda: and_(gt(low, x), lt(low, high)),
            lambda: and_(gt(x, low), lt(x, high)),
            lambda: or_(lt(high, x), lt(high, low)),
        )
        for tangent, mask in zip(tangents, masks, strict=True):
            if type(tangent) is not Zero:
                total = where(mask(), tangent, constant_like(tangent, 0) if total is None else total)
        return broadcast_to_type(total, out.aval)

    def emit(self, builder: Any, low: Any, x: Any, high: Any) -> Any:
        return builder.min(builder.max(low, x), high)

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(1).maximum(operands(0)).minimum(operands(2))

    def samples(self) -> Any:
        yield Sample(np.float32(-1), ramp(3, 2), np.float32(1.0))
        yield Sample(np.float32(-1), np.float32(0.5), np.float32(1.0))
        yield Sample(ramp(4) - 0.5, ramp(4)[::-1].copy(), ramp(4) + 0.5)
        yield Sample(np.float32(2), np.array([0.3, 1.6, 3.1], np.float32), np.float32(1.2))  # the upper one holds
        yield Sample(np.int32(-1), ramp(4, dtype=np.int32), np.int32(1))
        yield Sample(np.float32(0), np.array([np.nan, 2, -2], np.float32), np.float32(1), differentiable=False)
