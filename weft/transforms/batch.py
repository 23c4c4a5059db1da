"""Vectorisation: replace every operation by its batched version, by its primitive's batch rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.source import Location, user_location
from weft.ir.context import Trace, active, bind_axis, context, push_names, with_aval
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, named_axes, subjaxprs
from weft.ir.nans import checks_for_nans
from weft.ir.primitive import Axis, Primitive
from weft.ir.types import ArrayType, TapeType, Type, get_aval
from weft.primitives.control.check import MappedAxis
from weft.primitives.control.tape import batch_value
from weft.primitives.movement.shape import move_axis
from weft.primitives.movement.sharding_constraint import split_as
from weft.trace.closed import stage_subjaxpr
from weft.trace.tracer import Tracer, type_text
from weft.transforms.jvp import as_list


class BatchTracer(Tracer):
    """Value with a batch dimension that the traced function does not see."""

    __slots__ = ("dim", "value")

    def __init__(self, trace: BatchTrace, value: Any, dim: int):
        self._trace = trace
        self.value = value
        self.dim = dim
        self.aval = unbatch_type(get_aval(value), dim)

    def _text(self, aval: Any, depth: int) -> str:
        return f"VmapTracer(aval={type_text(aval)}, batched={type_text(get_aval(self.value).as_seen(depth + 1))})"


class BatchTrace(Trace):
    """Trace that applies batch rules to operations on batched values; the parent trace processes all others."""

    __slots__ = ("at", "axis", "name", "parent")
    maps = True

    def __init__(self, parent: Trace, axis: Axis, name: str = "vmap", at: Location | None = None):
        self.parent = parent
        self.axis = axis
        self.name = name
        self.at = at

    def describe(self) -> str:
        label = f" named {self.axis.name!r}" if self.axis.name is not None else ""
        at = f", called at {self.at.describe()}" if self.at is not None else ""
        return f"one element of {self.axis.size} in {self.name}{label}{at}"

    def split(self, value: Any) -> tuple[Any, int | None]:
        if type(value) is BatchTracer and value._trace is self:
            return value.value, value.dim
        return with_aval(value), None

    def join(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        pairs = [self.split(a) for a in args]
        values, dims = [v for v, _ in pairs], [d for _, d in pairs]
        collective = self.axis.name is not None and self.axis.name in communication_axes(primitive, params)
        if not collective and all(d is None for d in dims):
            return self.parent.process(primitive, args, params)
        before, context.trace = context.trace, self.parent
        source = context.source
        context.source = source or user_location()  # found once for all the operations of a rule
        try:
            outs, out_dims = apply_batch_rule(primitive, self.axis, values, dims, params, collective)
        finally:
            context.trace, context.source = before, source
        return [self.join(v, d) for v, d in zip(outs, out_dims, strict=True)]


def communication_axes(primitive: Primitive, params: dict[str, Any]) -> tuple[Any, ...]:
    """Return the named axes that an operation or its sub-jaxprs communicate over."""
    if not primitive.higher_order:
        return primitive.named_axes(params)
    bound = primitive.bound_axes(params)  # type: ignore[attr-defined]
    return tuple(name for inner in subjaxprs(params) for name in named_axes(inner) if name not in bound)


def apply_batch_rule(
    primitive: Primitive,
    axis: Axis,
    values: Sequence[Any],
    dims: Sequence[int | None],
    params: dict[str, Any],
    collective: bool,
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """Apply one operation to batched operands under the active trace; return the results and their batch dimensions."""
    if collective and not primitive.higher_order:
        out, dim = primitive.batch_collective(axis, values, dims, **params)  # type: ignore[attr-defined]
    elif isinstance(primitive, HigherOrder):
        return primitive.batch_through(batch_jaxpr, axis, values, dims, **params)
    elif hasattr(primitive, "decompose") and type(primitive).batch is Primitive.batch:
        return batch_flat(lambda *a: as_list(primitive.decompose(*a, **params)), axis, values, dims)
    else:
        out, dim = primitive.batch(axis, values, dims, **params)
    return (out, dim) if primitive.multiple_results else ([out], [dim])


def unbatch_type(aval: Type, dim: int) -> Type:
    """Return the type of one element of a batch."""
    if isinstance(aval, TapeType):
        return TapeType(unbatch_type(aval.element, dim))
    assert isinstance(aval, ArrayType)
    return aval.without_dimension(dim)


def batch_type(aval: Type, axis: Axis) -> Type:
    """Return the type with the batch axis as its first dimension."""
    if isinstance(aval, TapeType):
        return TapeType(batch_type(aval.element, axis))
    assert isinstance(aval, ArrayType)
    batched: Type = axis.insert_into(aval)
    return batched


def batch_flat(
    function: Callable[..., Sequence[Any]],
    axis: Axis,
    values: Sequence[Any],
    dims: Sequence[int | None],
    name: str = "vmap",
    at: Location | None = None,
    is_named: bool = True,
) -> tuple[list[Any], list[int | None]]:
    """Apply a flat function to batched arguments; return the results and their batch dimensions. New equations are
    marked with the name of the mapped axis, unless the surrounding code has marked them."""
    trace = BatchTrace(context.trace, axis, name, at)
    pairs = [(with_aval(v), d) for v, d in zip(values, dims, strict=True)]
    if checks_for_nans():  # then errors read the lane from the leading dimensions
        pairs = [(move_axis(v, d, 0), 0) if d and isinstance(get_aval(v), ArrayType) else (v, d) for v, d in pairs]
    arguments = [trace.join(v, d) for v, d in pairs]
    with active(trace), push_names(*([MappedAxis.of(name, axis.size)] if is_named else [])):
        if axis.name is None:
            results = function(*arguments)
        else:
            with bind_axis(axis.name, axis.size):
                results = function(*arguments)
    pairs = [trace.split(r) for r in results]
    return [v for v, _ in pairs], [d for _, d in pairs]


def batch_jaxpr(
    jaxpr: Jaxpr, axis: Axis, batched: Sequence[bool], instantiated: bool | Sequence[bool] = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Batch a jaxpr along dimension 0 of the arguments marked in `batched`; return it and which results are batched.
    Results marked in `instantiated` always are."""
    force = (instantiated,) * len(jaxpr.outvars) if isinstance(instantiated, bool) else tuple(instantiated)
    key = ("batch", axis, tuple(batched), force)
    return jaxpr.memoize(key, lambda: _batch_jaxpr(jaxpr, axis, tuple(batched), force))


def _batch_jaxpr(
    jaxpr: Jaxpr, axis: Axis, batched: tuple[bool, ...], force: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    types = [batch_type(v.aval, axis) if b else v.aval for v, b in zip(jaxpr.invars, batched, strict=True)]
    batched_out: list[bool] = []

    def function(*flat: Any) -> list[Any]:
        dims = [0 if b else None for b in batched]
        outs, out_dims = batch_flat(lambda *a: replay(jaxpr, *a), axis, flat, dims, is_named=False)
        batched_out.extend(d is not None or f for d, f in zip(out_dims, force, strict=True))
        found = [batch_value(v, d, axis) if b else v for v, d, b in zip(outs, out_dims, batched_out, strict=True)]
        # What all elements have alike is split as the mapped dimensions of others are: branches return the same types.
        alike = [b and d is None for d, b in zip(out_dims, batched_out, strict=True)]
        return [
            split_as(v, batch_type(o.aval, axis)) if a else v
            for v, o, a in zip(found, jaxpr.outvars, alike, strict=True)
        ]

    result = stage_subjaxpr(function, types, name=jaxpr.name)
    return result, tuple(batched_out)
