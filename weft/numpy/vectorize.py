"""Functions of small arrays made to broadcast: `vectorize` and `apply_along_axis`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft import lax
from weft.api.flat import wraps
from weft.api.vectorize import vmap
from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.tracebacks import boundary
from weft.numpy.creation import asarray
from weft.numpy.manipulation import expand_dims, moveaxis
from weft.numpy.util import broadcast_shape, canonicalize_axis, check_arraylike, ensure_array
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

_DIMENSION = r"\w+"
_CORE = rf"\((?:{_DIMENSION}(?:,{_DIMENSION})*,?)?\)"
_SIGNATURE = re.compile(rf"^{_CORE}(?:,{_CORE})*->{_CORE}(?:,{_CORE})*$")

CoreDimensions = tuple[str, ...]


def parse_signature(signature: str) -> tuple[list[CoreDimensions], list[CoreDimensions]]:
    """Parse the names of the core dimensions of arguments and results, from a text such as "(m,n),(n)->(m)"."""
    plain = re.sub(r"\s+", "", signature)
    if not _SIGNATURE.match(plain):
        raise ArgumentError(f"not a valid gufunc signature: {signature!r}.")
    sides = []
    for side in plain.split("->"):
        groups = re.findall(_CORE, side)
        sides.append([tuple(re.findall(_DIMENSION, group)) for group in groups])
    return sides[0], sides[1]


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """Make a function that broadcasts over leading axes of its arguments, by `vmap`.

    `signature`, such as "(n),(n)->()", names the axes that `pyfunc` itself handles; without it, `pyfunc` takes scalars.
    Arguments in `excluded`, by position or name, are passed unchanged.

    Args:
        pyfunc: a function of arrays of fixed rank.
        excluded: positions or names of arguments to pass unchanged.
        signature: the axes of arguments and results.

    Returns:
        A function of arrays of any rank.

    >>> import weft.numpy as wnp
    >>> length = wnp.vectorize(wnp.linalg.norm, signature="(n)->()")
    >>> length(wnp.array([[3.0, 4.0], [6.0, 8.0]]))
    Array([ 5., 10.], dtype=float32)
    """
    for entry in excluded:
        if not isinstance(entry, (int, str)):
            raise ArgumentTypeError(f"excluded must have positions and names of arguments, got {entry!r}.")
    core = None if signature is None else parse_signature(signature)

    @wraps(pyfunc)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fixed = {i for i in range(len(args)) if i in excluded or args[i] is None}
        named = [k for k in kwargs if k not in excluded]
        array_args = [i for i in range(len(args)) if i not in fixed]
        values = [asarray(args[i]) for i in array_args] + [asarray(kwargs[k]) for k in named]

        def apply(*arrays: Any) -> Any:
            positional = list(args)
            for position, array in zip(array_args, arrays, strict=False):
                positional[position] = array
            keywords = {**kwargs, **dict(zip(named, arrays[len(array_args) :], strict=True))}
            return pyfunc(*positional, **keywords)

        inputs, outputs = core if core is not None else ([()] * len(values), None)
        if len(inputs) != len(values):
            raise ArgumentTypeError(
                f"wrong number of positional arguments: expected {len(inputs)} by the signature {signature!r}, "
                f"got {len(values)}."
            )
        return _broadcast_map(apply, values, inputs, outputs)

    return boundary(wrapped)


def _broadcast_map(
    function: Callable[..., Any],
    values: Sequence[Array],
    inputs: Sequence[CoreDimensions],
    outputs: Sequence[CoreDimensions] | None,
) -> Any:
    sizes: dict[str, Any] = {}
    batches = []
    for index, (value, names) in enumerate(zip(values, inputs, strict=True)):
        if value.ndim < len(names):
            raise ArgumentError(
                f"input with shape {value.shape} at position {index} has too few dimensions for the core dimensions "
                f"({','.join(names)})."
            )
        split = value.ndim - len(names)
        batches.append(value.shape[:split])
        for name, size in zip(names, value.shape[split:], strict=True):
            _agree(sizes, name, size, f"argument {index}")
    batch = broadcast_shape("vectorize", *batches) if batches else ()
    check_and_call = _check_results(function, outputs, sizes)
    flattened: list[list[int | None]] = []
    squeezed = []
    for value, own in zip(values, batches, strict=True):
        padded = (1,) * (len(batch) - len(own)) + tuple(own)
        flattened.append([0 if size != 1 else None for size in padded])
        squeezed.append(lax.squeeze(value, tuple(i for i, size in enumerate(own) if size == 1)))
    skipped = []
    for axis in reversed(range(len(batch))):
        axes = tuple(entry[axis] for entry in flattened)
        if all(a is None for a in axes):
            skipped.append(axis)
        else:
            check_and_call = vmap(check_and_call, in_axes=axes)
    out = check_and_call(*squeezed)
    return tree.map(lambda x: expand_dims(x, tuple(sorted(skipped))) if skipped else x, out)


def _agree(sizes: dict[str, Any], name: str, size: Any, where: str) -> None:
    expected = int(name) if name.isdigit() else sizes.setdefault(name, size)
    if expected != size:
        raise ArgumentError(f"inconsistent size for core dimension {name!r}: {size} in {where}, not {expected}.")


def _check_results(
    function: Callable[..., Any], outputs: Sequence[CoreDimensions] | None, sizes: dict[str, Any]
) -> Callable[..., Any]:
    """Wrap a function to check that its results have the core dimensions that the signature names."""

    def check_and_call(*arrays: Any) -> Any:
        out = function(*arrays)
        results = out if isinstance(out, tuple) else (out,)
        arrays_out = [asarray(r) for r in results]
        if outputs is None:
            for result in arrays_out:
                if result.ndim:
                    raise ArgumentError(
                        f"vectorized function returned an array of shape {result.shape} where a scalar is expected; "
                        f"give a signature."
                    )
        else:
            if len(outputs) != len(results):
                raise ArgumentTypeError(f"expected {len(outputs)} results by the signature, got {len(results)}.")
            found = dict(sizes)
            for i, (result, names) in enumerate(zip(arrays_out, outputs, strict=True)):
                if result.ndim != len(names):
                    raise ArgumentError(
                        f"result {i} has shape {result.shape}, but the signature names the core dimensions "
                        f"({','.join(names)})."
                    )
                for name, size in zip(names, result.shape, strict=True):
                    _agree(found, name, size, f"result {i}")
        return tuple(arrays_out) if isinstance(out, tuple) else arrays_out[0]

    return check_and_call


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    """Apply `func1d` to every vector along an axis; the axes of its result replace that axis.

    Args:
        func1d: a function of a vector.
        axis: the axis of the vectors.
        arr: an array.
        *args, **kwargs: passed on to `func1d`.

    Returns:
        An array, or a tree of them.

    >>> import weft.numpy as wnp
    >>> wnp.apply_along_axis(wnp.sum, 0, wnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    check_arraylike("apply_along_axis", arr)
    a = ensure_array(arr)
    dim = canonicalize_axis(axis, a.ndim, "apply_along_axis")

    def map_element(x: Any) -> Any:
        return func1d(x, *args, **kwargs)

    for _ in range(a.ndim - 1):
        map_element = vmap(map_element)
    out = map_element(moveaxis(a, dim, -1))

    def back(x: Array) -> Array:
        lead, added = a.ndim - 1, x.ndim - (a.ndim - 1)
        return moveaxis(x, tuple(range(lead, lead + added)), tuple(range(dim, dim + added)))

    return tree.map(back, out)


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Array:
    """Apply `func(a, axis)` for several axes in sequence; axes that it removes are restored with size 1."""
    check_arraylike("apply_over_axes", a)
    out = ensure_array(a)
    for axis in (axes,) if isinstance(axes, int) else axes:
        dim = canonicalize_axis(axis, out.ndim, "apply_over_axes")
        result = ensure_array(func(out, dim))
        if result.ndim == out.ndim - 1:
            result = expand_dims(result, dim)
        if result.ndim != out.ndim:
            raise ArgumentError(f"function is not returning an array of the correct shape: {result.shape}.")
        out = result
    return out
