"""Calls back into Python: `pure_callback`, `io_callback`, `debug_callback`, and the effects that keep them from being
removed or reordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import conversion, dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import JaxRuntimeError, MissingRuleError, WeftError
from weft.ir.context import current_line
from weft.ir.fusing import CALLS_BACK, Machine, Properties
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, No, Params, Primitive, lookup, primitive
from weft.ir.types import ArrayType, Type, get_aval
from weft.ir.zeros import Zero
from weft.primitives.collectives import all_gather, axis_index, own_slices, without_unit
from weft.primitives.control.cond import refuse_ordered_effects
from weft.primitives.control.tape import zeros
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.concatenate import stack_values
from weft.primitives.movement.shape import leading_one, move_batch_to_front, squeeze
from weft.primitives.movement.slicing import slice as slice_primitive
from weft.sharding.factors import AxisFactors
from weft.trace.closed import stage_subjaxpr


@dataclass(frozen=True)
class Effect:
    """Side effect of an operation. Ordered effects happen in the order of their equations."""

    kind: str
    ordered: bool = False

    def __repr__(self) -> str:
        return f"{'Ordered' if self.ordered else ''}{self.kind}"


@dataclass(frozen=True, repr=False)
class DebugEffect(Effect):
    """Effect of showing something."""

    kind: str = "Debug"


@dataclass(frozen=True, repr=False)
class OrderedDebugEffect(Effect):
    """Effect of showing something in the order of the equations."""

    kind: str = "Debug"
    ordered: bool = True


IO = Effect("IO")
ORDERED_IO = Effect("IO", ordered=True)
DEBUG = DebugEffect()
ORDERED_DEBUG = OrderedDebugEffect()

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def take_first_device(x: Any, sizes: Mapping[Any, int]) -> Any:
    """Return the value of the first device along all axes."""
    for axis, size in sizes.items():
        gathered = all_gather(x, axis_name=axis, axis_size=size, all_gather_dimension=0, tiled=False)
        x = without_unit(own_slices(gathered, 0, size)[0], 0)
    return x


class Callback(Primitive):
    """Call of a Python function on NumPy arrays. `callback` takes and returns flat lists."""

    multiple_results = True

    def type(self, *types: Type, result_types: tuple[ArrayType, ...], **params: Any) -> list[Type]:
        return list(result_types)

    def eval(
        self, *arrays: Any, callback: Callable[..., Sequence[Any]], result_types: tuple[ArrayType, ...], **params: Any
    ) -> list[Any]:
        try:
            results = callback(*arrays)
        except WeftError:
            raise
        except Exception as error:
            name = getattr(callback, "__name__", "the function")
            what = f"{self.name}: `{name}` raised {type(error).__name__}: {error}"
            raise JaxRuntimeError(
                what, received=", ".join(map(describe_operand, arrays)) or None, at=current_line()
            ) from error
        return check_results(results, result_types, self.name)

    factors = No("a Python function sees whole arrays")

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Call the function once, on the first device of a mesh, and send its results to the others."""
        if not parts.sizes:  # each device has a call of its own, inside of shard_map
            result: Sequence[Any] = self(*args, **params)
            return result
        position: Any = None
        for axis in parts.sizes:
            own = axis_index(axis_name=axis)
            position = own if position is None else add(position, own)
        is_first = convert_element_type(eq(position, np.int32(0)), new_dtype=np.dtype(np.int32), weak_type=False)
        types = [get_aval(a) for a in args]
        called = stage_subjaxpr(lambda *a: list(self(*a, **params)), types, name=self.name, inherits_line=True)
        skipped = stage_subjaxpr(lambda *a: [zeros(t) for t in params["result_types"]], types, name=self.name)
        outs = lookup("cond")(is_first, *args, branches=(skipped, called))
        return [take_first_device(x, parts.sizes) for x in outs]

    def batch_params(self, params: Params, grown: Sequence[bool]) -> Params:
        """Return the parameters of a call whose results, and whose operands marked in `grown`, have one more dimension
        in front."""
        return params

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return CALLS_BACK

    def samples(self) -> Any:
        return iter(())  # carries a Python function; the callback tests cover it


def describe_operand(array: Any) -> str:
    """Format an operand of a callback: its value if it is small, else its type."""
    return str(array) if np.size(array) <= 4 else f"{array.dtype}{list(array.shape)}"


def check_results(results: Sequence[Any], types: Sequence[ArrayType], name: str) -> list[np.ndarray]:
    """Check the results of a callback against the declared types, and convert them to their dtypes."""
    arrays = [np.asarray(r) for r in results]
    if len(arrays) != len(types):
        raise JaxRuntimeError(
            f"{name}: the function must return {len(types)} arrays, got {len(arrays)}.", at=current_line()
        )
    out = []
    for array, aval in zip(arrays, types, strict=True):
        wanted = dtypes.storage(aval.dtype)
        if array.shape != aval.shape or dtypes.canonicalize_dtype(array.dtype) != wanted:
            raise JaxRuntimeError(
                f"{name}: the function must return arrays of the types in result_shape_dtypes.",
                received=f"{array.dtype}{list(array.shape)} for {aval.short()}",
                fix="make result_shape_dtypes agree with what the function returns",
                at=current_line(),
            )
        out.append(conversion.convert(array, wanted) if array.dtype != wanted else array.astype(wanted))
    return out


@primitive
class pure_callback(Callback):
    """Function without side effects: it may be called any number of times, or not at all if its results are not
    used."""

    jvp = No("a Python function has no derivative of its own; wrap it in custom_jvp or custom_vjp")

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        return bind_batch(self, axis, args, dims, **params)


def bind_batch(
    operation: Callback, axis: Axis, args: Any, dims: Any, *, result_types: Any, vmap_method: str | None, **params: Any
) -> tuple[Any, Any]:
    """Bind a call of a function over a batch, by the `vmap_method` of the user."""
    count = len(result_types)
    params["vmap_method"] = vmap_method
    if vmap_method is None:
        raise MissingRuleError(
            f"{operation.name} has no batch rule without a vmap_method: what the function does to a batch is unknown.",
            fix=f"pass vmap_method, one of {', '.join(map(repr, VMAP_METHODS))}",
            at=current_line(),
        )
    if vmap_method in ("sequential", "sequential_unrolled"):
        rows = [operation(*row, result_types=result_types, **params) for row in split_rows(axis, args, dims)]
        return stack_rows(rows, result_types), [0] * count
    batched_types = tuple(t.with_dimension(0, axis.size) for t in result_types)
    if vmap_method == "expand_dims":
        args = [
            leading_one(a) if d is None else move_batch_to_front(a, d, axis) for a, d in zip(args, dims, strict=True)
        ]
    elif vmap_method == "broadcast_all":
        args = [move_batch_to_front(a, d, axis) for a, d in zip(args, dims, strict=True)]
    else:
        args = [a if d is None else move_batch_to_front(a, d, axis) for a, d in zip(args, dims, strict=True)]
    grown = [vmap_method in ("expand_dims", "broadcast_all") or d is not None for d in dims]
    return operation(*args, result_types=batched_types, **operation.batch_params(params, grown)), [0] * count


class EffectfulCallback(Callback):
    """Runs exactly once, at its position; under vmap once per element, in order of the batch."""

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset([self.ordered_effect if params["ordered"] else self.effect])

    effect: Effect
    ordered_effect: Effect
    ordered_over_batch = True  # whether an order is promised that a batch does not have

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        if self.ordered_over_batch:
            refuse_ordered_effects(self.effects((), params))
        rows = [self(*row, **params) for row in split_rows(axis, args, dims)]
        return stack_rows(rows, params["result_types"]), [0] * len(params["result_types"])


@primitive
class io_callback(EffectfulCallback):
    """Function with side effects, whose results are used."""

    effect, ordered_effect = IO, ORDERED_IO
    jvp = No(
        "its effects would happen twice; wrap it in custom_jvp or custom_vjp, or take it out of what is differentiated"
    )


@primitive
class debug_callback(EffectfulCallback):
    """Function called for its output; differentiation applies it to the primal values."""

    effect, ordered_effect = DEBUG, ORDERED_DEBUG
    ordered_over_batch = False  # it is called for one element after the other

    def factors(self, *types: Any, partitioned: bool = False, **params: Any) -> AxisFactors:
        """With `partitioned` operands stay split, each in its own way, and every device calls the function."""
        if partitioned:
            return self.explicit_factors(*types)
        return AxisFactors(tuple((None,) * t.ndim for t in types), (), reason="a Python function sees whole arrays")

    def explicit_factors(self, *types: Any, **params: Any) -> AxisFactors:
        """Operands may be split in any way, since there is no result whose type depends on it."""
        # Partitioning keeps a factor that no result has only if its parts are combined; nothing is, without results.
        names = [tuple(f"d{i}_{k}" for k in range(t.ndim)) for i, t in enumerate(types)]
        return AxisFactors(tuple(names), (), combine={name: "sum" for group in names for name in group})

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        rest = {name: value for name, value in params.items() if name != "partitioned"}
        return self(*args, **rest) if params.get("partitioned") else super().bind_local(parts, args, rest)

    def jvp(self, tangents: Any, out: Any, *args: Any, **params: Any) -> list[Any]:
        return [Zero.of(o.aval) for o in out]


def split_rows(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> list[list[Any]]:
    """Return the operands of each element of a batch."""
    operands = [a if d is None else move_batch_to_front(a, d, axis) for a, d in zip(args, dims, strict=True)]
    return [[a if d is None else row(a, i) for a, d in zip(operands, dims, strict=True)] for i in range(axis.size)]


def row(x: Any, i: int) -> Any:
    shape = x.shape
    part = slice_primitive(
        x, start_indices=(i, *[0] * (len(shape) - 1)), limit_indices=(i + 1, *shape[1:]), strides=None
    )
    return squeeze(part, dimensions=(0,))


def stack_rows(rows: Sequence[Sequence[Any]], result_types: Sequence[ArrayType]) -> list[Any]:
    """Stack each result of all rows into one array."""
    return [stack_values([r[k] for r in rows], aval) for k, aval in enumerate(result_types)]
