"""The elementwise family: an operation on each element. Typing, batching, sharding and emission follow from the scalar
meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base import dtypes
from weft.base.errors import DtypeMismatchError
from weft.base.source import user_line
from weft.ir.element import Element
from weft.ir.fusing import AT_SAME_INDEX, UNFUSED, Machine, Properties
from weft.ir.primitive import Axis, Primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.families import fail, kind_error
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, move_batch_to_front
from weft.sharding import factors as axis_factors


def _jax_text_of_dtypes(name: str, types: Sequence[ArrayType]) -> str:
    """Return the sentence of JAX for operands of several dtypes."""
    if any(t.dtype == dtypes.float0 for t in types):
        return (
            f"Called {name} with a float0 array. float0s do not support any operations by design because they are not "
            "compatible with non-trivial vector spaces. No implicit dtype conversion is done."
        )
    found = ", ".join(dtypes.name(t.dtype) for t in types)
    return (
        f"lax.{name} requires arguments to have the same dtypes, got {found}. (Tip: jnp.{name} is a similar "
        f"function that "
        "does automatic type promotion on inputs)."
    )


class Elementwise(Primitive):
    """Operation on each element. Operands have one shape, or are scalars; they share a dtype unless the type rule says
    otherwise."""

    pointwise = True
    foldable = True

    # Dtype kinds accepted: b(ool) i(nt) u(nsigned) f(loat) c(omplex) k(ey).
    kinds: ClassVar[str] = "iufc"
    ulp: ClassVar[dict[str, float]] = {"": 0.0}
    # Whether it is compiled to one kernel: a definition may have loops, or be too long for one.
    one_kernel: ClassVar[bool] = True

    def type(self, *types: Any, **params: Any) -> Any:
        first = types[0]
        for other in types[1:]:
            if other is not first:
                return self._infer_mixed_type(types, params)
        return self._result(first.shape, first.dtype, first.weak_type, first, params)

    def _infer_mixed_type(self, types: Sequence[ArrayType], params: dict[str, Any]) -> ArrayType:
        shape, weak = common_shape(self.name, types), all(t.weak_type for t in types)
        first = types[0]
        if any(t.dtype != first.dtype for t in types):
            raise DtypeMismatchError(
                f"{self.name} requires arguments to have the same dtypes.",
                received=" and ".join(t.short() for t in types),
                fix="convert one with .astype, or use the weft.numpy function, which promotes",
                at=user_line(),
                jax=_jax_text_of_dtypes(self.name, types),
            )
        return self._result(shape, first.dtype, weak, None, params)

    def _result(self, shape: Any, dtype: Any, weak: bool, same: ArrayType | None, params: dict[str, Any]) -> ArrayType:
        if dtypes.kind(dtype) not in self.kinds:
            raise kind_error(self.name, dtype, self.kinds)
        out_dtype = self.result_dtype(dtype, **params)
        if out_dtype == dtype and same is not None:
            return same
        return array_type(shape, out_dtype, weak and dtypes.kind(out_dtype) != "b")

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        """Return the dtype of the result from the operands' common dtype."""
        return dtype

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        args, dim = align_batch_dims(axis, args, dims)
        return self(*args, **params), dim

    def factors(self, *types: ArrayType, **params: Any) -> Any:
        return axis_factors.elementwise([t.ndim for t in types])

    def mirror(self, constant: Any) -> str | None:
        """Return the name of the operation with the same bits for exchanged operands if the first one is this constant,
        else None."""
        return None

    def emit(self, builder: Any, *scalars: Any, **params: Any) -> Any:
        """Write the scalar body over an abstract builder; by default the builder implements the operation by name."""
        return getattr(builder, self.name)(*scalars, **params)

    def value_at(self, element: Element, **params: Any) -> Any:
        return self.emit(element.scalars, *element.operands(), **params)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_SAME_INDEX if self.has_body(target.operations) else UNFUSED

    def has_body(self, operations: frozenset[str]) -> bool:
        """Return whether kernels can compute it: it has its own `emit` rule, or is among the `operations` that they
        implement by name. Otherwise `eval` computes it."""
        return type(self).emit is not Elementwise.emit or self.name in operations


class Comparison(Elementwise):
    """Elementwise with a boolean result, which has no derivative."""

    kinds = "biufc"

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        return np.dtype(np.bool_)


def common_shape(name: str, types: Sequence[ArrayType]) -> Any:
    """Return the shape of the operands that are not scalars; raise if there are several."""
    shape: Any = ()
    for t in types:
        if t.shape == shape or not t.shape:
            continue
        if shape:
            shapes = ", ".join(str(u.shape) for u in types)
            raise fail(
                f"{name} got operands of incompatible shapes {shapes}.",
                received=" and ".join(t.short() for t in types),
                fix="shapes must be equal (or scalar); the weft.numpy function broadcasts, or use lax.broadcast_in_dim",
                jax=f"{name} got incompatible shapes for broadcasting: {shapes}.",
            )
        shape = t.shape
    return shape


def align_batch_dims(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[list[Any], int]:
    """Move the batch dimensions of operands to one index, so that an elementwise operation applies to them directly."""
    ranks = [len(x.shape) - (d is not None) if hasattr(x, "shape") else 0 for x, d in zip(args, dims, strict=True)]
    rank = max(ranks)
    dim = next(d for d in dims if d is not None)
    if all((d == dim and r == rank) or (d is None and not r) for d, r in zip(dims, ranks, strict=True)):
        return list(args), dim
    shape: tuple[Any, ...] = ()
    for x, d, r in zip(args, dims, ranks, strict=True):
        if r == rank and rank:
            shape = tuple(s for i, s in enumerate(x.shape) if i != d)
            break
    results = []
    for x, d, r in zip(args, dims, ranks, strict=True):
        if d is None and not r:
            results.append(x)
        elif r == rank:
            results.append(move_batch_to_front(x, d, axis))
        else:  # a batched scalar against full operands
            x = move_axis(x, d, 0)  # type: ignore[arg-type]
            results.append(broadcast_in_dim(x, shape=(axis.size, *shape), broadcast_dimensions=(0,)))
    return results, 0
