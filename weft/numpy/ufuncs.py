"""Universal functions: elementwise functions with methods to reduce, accumulate, combine all pairs and update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.api.vectorize import vmap
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, ImmutableArrayError, NotSupportedError
from weft.base.source import user_line
from weft.base.tracebacks import conceal
from weft.indexing.dimension import product
from weft.numpy import elementwise, extremes, logic, reductions, running
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.manipulation import broadcast_to, ravel
from weft.numpy.util import (
    canonical_dtype,
    canonicalize_axes,
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    ensure_array,
    is_concrete,
)
from weft.numpy.vectorize import vectorize
from weft.trace.array import Array


class ufunc:
    """An elementwise function of `nin` arguments and `nout` results, with the methods of NumPy's ufuncs."""

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ):
        self.__doc__ = func.__doc__
        self.__module__ = getattr(func, "__module__", __name__)
        self.__name__: str = name if name is not None else str(getattr(func, "__name__", "ufunc"))
        self.nin, self.nout, self.nargs, self.identity = nin, nout, nin if nargs is None else nargs, identity
        self._call = call or vectorize(func)
        self._reduce, self._accumulate, self._at, self._reduceat = reduce, accumulate, at, reduceat
        self._is_logical = False  # results are booleans, whatever the operands are

    def __repr__(self) -> str:
        return f"<weft.numpy.ufunc {self.__name__!r}>"

    def __hash__(self) -> int:
        return hash((type(self), self.__name__, self.nin, self.nout, self._call))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and (self.__name__, self.nin, self.nout, self._call) == (
            other.__name__,
            other.nin,
            other.nout,
            other._call,
        )

    def __call__(self, *args: Any, out: Any = None, where: Any = None) -> Any:
        """Apply the function to each element."""
        try:
            check_no_out(self.__name__, out)
            if where is not None:
                raise NotSupportedError(
                    f"{self.__name__}(..., where=) is not supported, since it would leave elements undefined.",
                    fix=f"weft.numpy.where(condition, {self.__name__}(...), otherwise)",
                )
            if len(args) != self.nin:
                raise ArgumentTypeError(f"{self.__name__} takes {self.nin} arguments, got {len(args)}.")
            return self._call(*args)
        except Exception as error:
            conceal(error)
            raise

    def _binary(self, method: str) -> None:
        if self.nin != 2 or self.nout != 1:
            raise ArgumentTypeError(f"{self.__name__}.{method} needs a function of two arguments with one result.")

    def reduce(
        self,
        a: Any,
        axis: int | None = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """Reduce axes with the function."""
        self._binary("reduce")
        check_arraylike(f"{self.__name__}.reduce", a)
        check_no_out(f"{self.__name__}.reduce", out)
        if self.identity is None and where is not None and initial is None:
            raise ArgumentError(
                f"reduction operation {self.__name__!r} does not have an identity, so to use a where mask one has to "
                f"specify 'initial'."
            )
        if self._reduce is not None:
            return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        return self._reduce_by_scan(ensure_array(a), axis, dtype, keepdims, initial, where)

    def _reduce_by_scan(self, a: Array, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        a = a if dtype is None else convert_dtype(a, canonical_dtype(dtype, self.__name__))
        axes = canonicalize_axes(axis, a.ndim, f"{self.__name__}.reduce")
        other_axes = tuple(i for i in range(a.ndim) if i not in axes)
        first = initial if initial is not None else self.identity
        count = product(a.shape[i] for i in axes)

        def in_rows(x: Array) -> Array:
            turned = lax.transpose(x, (*axes, *other_axes))
            return lax.reshape(turned, (count, *turned.shape[len(axes) :]))

        rows = in_rows(a)
        taken = None if where is None else in_rows(broadcast_to(ensure_array(where), a.shape))
        if initial is not None or taken is not None or (not count and first is not None):
            start = full_array(rows.shape[1:], first, self._dtype(rows.dtype))
        elif count:
            start, rows = convert_dtype(rows[0], self._dtype(rows.dtype)), rows[1:]
        else:
            raise ArgumentError(f"zero-size array to reduction operation {self.__name__} which has no identity.")

        def step(carry: Any, row: tuple[Any, Any]) -> tuple[Any, None]:
            value, is_taken = row
            combined = convert_dtype(self(carry, value), carry.dtype)
            return combined if is_taken is None else lax.select(is_taken, combined, carry), None

        out = lax.scan(step, start, (rows, taken))[0]
        return lax.expand_dims(out, axes) if keepdims else out

    def _dtype(self, dtype: Any) -> Any:
        """Return the dtype of results for operands of a dtype."""
        return dtypes.bool_ if self._is_logical else dtype

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        """Accumulate the function along an axis: the reductions up to each element."""
        self._binary("accumulate")
        check_arraylike(f"{self.__name__}.accumulate", a)
        check_no_out(f"{self.__name__}.accumulate", out)
        a = ensure_array(a)
        if a.ndim == 0:
            raise ArgumentError("cannot accumulate on a scalar.")
        dim = canonicalize_axis(axis, a.ndim, f"{self.__name__}.accumulate")
        if self._accumulate is not None:
            return self._accumulate(a, axis=dim, dtype=dtype)
        a = a if dtype is None else convert_dtype(a, canonical_dtype(dtype, self.__name__))
        a = convert_dtype(a, self._dtype(a.dtype))
        if not a.shape[dim]:
            return a
        rows = lax.transpose(a, (dim, *(i for i in range(a.ndim) if i != dim)))

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            result = convert_dtype(self(carry, row), carry.dtype)
            return result, result

        rest = lax.scan(step, rows[0], rows[1:])[1]
        result = lax.concatenate([rows[:1], rest], 0)
        return lax.transpose(result, (*range(1, dim + 1), 0, *range(dim + 1, a.ndim)))

    def outer(self, A: Any, B: Any, /) -> Array:
        """Apply the function to all pairs of elements."""
        self._binary("outer")
        check_arraylike(f"{self.__name__}.outer", A, B)
        first, second = ensure_array(A), ensure_array(B)
        second = lax.expand_dims(second, tuple(range(first.ndim)))
        return self(lax.reshape(first, (*first.shape, *(1,) * (second.ndim - first.ndim))), second)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """Return the array with the elements at some indices replaced by the function of them (and of `b`)."""
        if inplace:
            raise ImmutableArrayError(
                f"Arrays are immutable, so {self.__name__}.at cannot change one in place.",
                fix=f"{self.__name__}.at(a, indices, b, inplace=False), which returns a new array",
                at=user_line(),
            )
        check_arraylike(f"{self.__name__}.at", a)
        a = ensure_array(a)
        if self._at is not None:
            return getattr(a.at[indices], self._at)(b) if isinstance(self._at, str) else self._at(a, indices, b)
        if b is None:
            return a.at[indices].apply(lambda x: convert_dtype(self(x), x.dtype))
        check_arraylike(f"{self.__name__}.at", b)
        return self._sequential_at(convert_dtype(a, self._dtype(a.dtype)), indices, b)

    def _sequential_at(self, a: Array, indices: Any, b: Any) -> Array:
        """Update one element after the other, since an index may occur several times."""
        positions = lax.reshape(lax.iota(dtypes.default_int_dtype(), a.size), a.shape)[indices]
        values = ravel(
            lax.broadcast_in_dim(
                ensure_array(b), positions.shape, tuple(range(positions.ndim - np.ndim(b), positions.ndim))
            )
        )

        def step(flat: Any, pair: tuple[Any, Any]) -> tuple[Any, None]:
            i, value = pair
            return flat.at[i].set(convert_dtype(self(flat[i], value), flat.dtype)), None

        return lax.reshape(lax.scan(step, ravel(a), (ravel(positions), values))[0], a.shape)

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        """Reduce, for each index, the elements from there up to the next index."""
        self._binary("reduceat")
        check_arraylike(f"{self.__name__}.reduceat", a, indices)
        check_no_out(f"{self.__name__}.reduceat", out)
        a = ensure_array(a)
        if self._reduceat is not None:
            return self._reduceat(a, indices, axis=axis, dtype=dtype)
        dim = canonicalize_axis(axis, a.ndim, f"{self.__name__}.reduceat")
        indices = ensure_array(indices)
        if indices.ndim != 1 or dtypes.kind(indices.dtype) not in "iu":
            raise ArgumentTypeError(
                f"{self.__name__}.reduceat takes a vector of integer indices, got {indices.aval.short()}."
            )
        if not indices.shape[0]:
            empty = lax.slice_in_dim(a, 0, 0, axis=dim)
            return empty if dtype is None else convert_dtype(empty, canonical_dtype(dtype, self.__name__))
        if not is_concrete(indices):
            return self._reduceat_by_mask(a, indices, dim, dtype)
        known, length = np.asarray(indices), a.shape[dim]
        if known.min() < 0 or known.max() >= length:
            raise IndexError(
                f"{self.__name__}.reduceat got indices from {known.min()} to {known.max()} for axis {dim} of size "
                f"{length}.  at {user_line()}"
            )
        parts = []
        for start, stop in zip(known.tolist(), [*known[1:].tolist(), length], strict=True):
            part = lax.slice_in_dim(a, start, max(stop, start + 1), axis=dim)
            parts.append(self.reduce(part, axis=dim, dtype=dtype, keepdims=True))
        return lax.concatenate(parts, dim)

    def _reduceat_by_mask(self, a: Array, indices: Array, axis: int, dtype: Any) -> Array:
        """Compute `reduceat` for traced indices: each part reduces the whole axis but skips elements outside of it."""
        after = lax.concatenate([indices[1:], full_array((1,), a.shape[axis], indices.dtype)], 0)
        ends = lax.max(after, lax.add(indices, np.ones((), indices.dtype)))
        if self._reduce is not None and self.identity is not None:
            position = lax.broadcasted_iota(indices.dtype, a.shape, axis)

            def part(start: Any, end: Any) -> Array:
                inside = lax.bitwise_and(lax.ge(position, start), lax.lt(position, end))
                return self.reduce(a, axis=axis, dtype=dtype, where=inside)

            return vmap(part, out_axes=axis)(indices, ends)
        a = a if dtype is None else convert_dtype(a, canonical_dtype(dtype, self.__name__))
        a = convert_dtype(a, self._dtype(a.dtype))
        rows = lax.transpose(a, (axis, *(i for i in range(a.ndim) if i != axis)))

        def scanned(start: Any, end: Any) -> Array:
            def step(carry: Any, row: Any) -> tuple[Any, None]:
                position, value = row
                combined = convert_dtype(self(carry, value), carry.dtype)
                combined = lax.select(lax.eq(position, start), value, combined)
                inside = lax.bitwise_and(lax.ge(position, start), lax.lt(position, end))
                return lax.select(inside, combined, carry), None

            return lax.scan(step, rows[0], (lax.iota(indices.dtype, rows.shape[0]), rows))[0]

        return vmap(scanned, out_axes=axis)(indices, ends)


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Create a universal function from a function of scalars."""
    return ufunc(func, nin, nout, identity=identity)


def _without_initial(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `all` or `any` to the arguments of the other reductions."""

    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        out = reduction(a, axis=axis, keepdims=keepdims, where=where)
        return out if dtype is None else convert_dtype(out, canonical_dtype(dtype, "reduce"))

    return reduce


def _with_dtype(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `max` or `min` to accept a dtype."""

    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        a = ensure_array(a) if dtype is None else convert_dtype(ensure_array(a), canonical_dtype(dtype, "reduce"))
        return reduction(a, axis=axis, keepdims=keepdims, initial=initial, where=where)

    return reduce


def _ufunc(function: Callable[..., Any], nin: int = 2, **options: Any) -> ufunc:
    return ufunc(function, nin, 1, name=function.__name__, call=function, **options)


def _logical_ufunc(function: Callable[..., Any], **options: Any) -> ufunc:
    out = _ufunc(function, **options)
    out._is_logical = True
    return out


def _subtract_at(a: Array, indices: Any, b: Any) -> Array:
    return a.at[indices].add(lax.neg(ensure_array(b)))


add = _ufunc(elementwise.add, identity=0, reduce=reductions.sum, accumulate=running.cumsum, at="add")
multiply = _ufunc(elementwise.multiply, identity=1, reduce=reductions.prod, accumulate=running.cumprod, at="multiply")
subtract = _ufunc(elementwise.subtract, at=_subtract_at)
maximum = _ufunc(extremes.maximum, reduce=_with_dtype(reductions.max), at="max")
minimum = _ufunc(extremes.minimum, reduce=_with_dtype(reductions.min), at="min")
negative = _ufunc(elementwise.negative, 1)
logaddexp = _ufunc(elementwise.logaddexp, identity=-np.inf)
logaddexp2 = _ufunc(elementwise.logaddexp2, identity=-np.inf)
logical_and = _logical_ufunc(logic.logical_and, identity=True, reduce=_without_initial(reductions.all))
logical_or = _logical_ufunc(logic.logical_or, identity=False, reduce=_without_initial(reductions.any))
logical_xor = _logical_ufunc(logic.logical_xor, identity=False)
bitwise_and = _ufunc(logic.bitwise_and, identity=-1)
bitwise_or = _ufunc(logic.bitwise_or, identity=0)
bitwise_xor = _ufunc(logic.bitwise_xor, identity=0)
