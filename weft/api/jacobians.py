"""`jacfwd`, `jacrev`, `hessian`: full derivatives of a function, from its derivatives along a basis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.differentiate import argument_indices, check_gradient_inputs, hold_others, jvp
from weft.api.flat import check_callable, get_name, wraps
from weft.api.vectorize import vmap
from weft.api.vjp import vjp
from weft.base import dtypes, tree
from weft.base.errors import ArgumentTypeError, NotSupportedError
from weft.base.tracebacks import boundary
from weft.indexing.expression import Expression
from weft.ir.context import EVALUATION
from weft.ir.types import get_aval
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import move_axis, reshape
from weft.primitives.movement.slicing import slice as slice_primitive


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Compute the Jacobian of `fun` column by column in forward mode: efficient for few arguments and many results.

    Args:
        fun: a function of arrays.
        argnums: the position of the argument, or a tuple of positions.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        holomorphic: whether `fun` is holomorphic, so that complex arguments have complex derivatives.

    Returns:
        A function of the arguments of `fun`. For each leaf of the result and of the argument, an array with the axes of
        the first, then those of the second.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.jacfwd(lambda x: x**2)(wnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_callable(fun, "jacfwd")
    indices = argument_indices(argnums, "jacfwd")

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = hold_others(fun, indices, args, kwargs, "jacfwd")
        check_gradient_inputs(fun, indices, args, holomorphic, False, "jacfwd")
        if not holomorphic:
            check_real(fun, chosen, "arguments", "jacfwd")
        if has_aux:

            def push(*tangents: Any) -> Any:
                return jvp(partial, chosen, tangents, has_aux=True)[1:]

            columns, auxiliary = vmap(push, out_axes=(-1, None))(*basis(chosen))
        else:
            columns, auxiliary = vmap(lambda *t: jvp(partial, chosen, t)[1], out_axes=-1)(*basis(chosen)), None
        if holomorphic:
            check_complex(fun, columns)
        jacobian = tree.map(lambda y: split_columns(y, chosen if not isinstance(argnums, int) else chosen[0]), columns)
        return (jacobian, auxiliary) if has_aux else jacobian

    return function


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Compute the Jacobian of `fun` row by row in reverse mode: efficient for many arguments and few results.

    Args:
        fun: a function of arrays.
        argnums: the position of the argument, or a tuple of positions.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        holomorphic: whether `fun` is holomorphic, so that complex arguments have complex derivatives.
        allow_int: whether integer arguments are accepted; their derivatives have the dtype `float0`.

    Returns:
        A function of the arguments of `fun`. For each leaf of the result and of the argument, an array with the axes of
        the first, then those of the second.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.jacrev(lambda x: x**2)(wnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_callable(fun, "jacrev")
    indices = argument_indices(argnums, "jacrev")

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = hold_others(fun, indices, args, kwargs, "jacrev")
        check_gradient_inputs(fun, indices, args, holomorphic, allow_int, "jacrev")
        value, pullback, *auxiliary = vjp(partial, *chosen, has_aux=has_aux)
        if holomorphic:
            check_complex(fun, value)
        else:
            check_real(fun, value, "results", "jacrev")
        rows = vmap(pullback)(basis((value,))[0])
        rows = rows[0] if isinstance(argnums, int) else rows
        leaves, treedef = tree.flatten(rows)
        parts = [split_rows(leaf, value) for leaf in leaves]
        # From a tree of arguments, each with a tree of results, to results over arguments.
        jacobian = tree.transpose(treedef, tree.structure(value), tree.unflatten(treedef, parts))
        return (jacobian, auxiliary[0]) if has_aux else jacobian

    return function


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Compute the matrix of second derivatives of a scalar function, forward over reverse.

    Args:
        fun: a function of arrays.
        argnums: the position of the argument, or a tuple of positions.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        holomorphic: whether `fun` is holomorphic, so that complex arguments have complex derivatives.

    Returns:
        A function of the arguments of `fun`. For each pair of leaves of the argument, an array with the axes of both.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.hessian(lambda x: (x**3).sum())(wnp.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    return jacfwd(
        jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic),
        argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
    )


def check_complex(fun: Callable[..., Any], value: Any) -> None:
    """Raise unless all leaves are complex."""
    for leaf in tree.leaves(value):
        if dtypes.kind(get_aval(leaf).dtype) != "c":  # type: ignore[attr-defined]
            what = f"holomorphic=True needs {get_name(fun)} to return complex arrays."
            raise ArgumentTypeError(what, received=get_aval(leaf).short())


def check_real(fun: Callable[..., Any], value: Any, word: str, transformation: str) -> None:
    """Raise unless all leaves are real floats."""
    for path, leaf in tree.leaves_with_path(value):
        if dtypes.kind(get_aval(leaf).dtype) != "f":  # type: ignore[attr-defined]
            what = f"{transformation} of {get_name(fun)} needs real floating-point {word}."
            received = f"{get_aval(leaf).short()} at {tree.keystr(path) or 'the result'}"
            fix = "for a holomorphic function pass holomorphic=True; for others use jvp or vjp directly"
            side = "inputs (input" if word == "arguments" else "outputs (output"
            jax = (
                f"{transformation} requires real-valued {side} dtype that is a sub-dtype of np.floating), but got "
                f"{dtypes.name(get_aval(leaf).dtype)}."  # type: ignore[attr-defined]
            )
            raise ArgumentTypeError(what, received=received, fix=fix, jax=jax)


def basis(value: Any) -> Any:
    """Return the standard basis of a tree of arrays, stacked along a new first axis of every leaf."""
    leaves, treedef = tree.flatten(value)
    avals: list[Any] = [get_aval(leaf) for leaf in leaves]
    sizes = [math.prod(a.shape) for a in avals]
    total, start, blocks = sum(sizes), 0, []
    for aval, size in zip(avals, sizes, strict=True):
        if isinstance(total, Expression):
            blocks.append(symbolic_block(aval, start, size, total))
            start += size
            continue
        block = np.zeros((total, size), dtypes.storage(aval.dtype if aval.tangent() == aval else dtypes.float0))
        if aval.tangent() == aval:
            block[np.arange(start, start + size), np.arange(size)] = 1
        block.flags.writeable = False  # no other reference exists, so it need not be copied
        blocks.append(EVALUATION.lift(block.reshape((total, *aval.shape))))
        start += size
    return tree.unflatten(treedef, blocks)


def symbolic_block(aval: Any, start: Any, size: Any, total: Any) -> Any:
    """Compute the rows of the standard basis for one leaf with symbolic sizes, by operations of the program."""
    if aval.tangent() != aval:
        raise NotSupportedError(
            "A Jacobian of integers needs sizes that are numbers.", received=aval.short(), fix="argnums of floats"
        )
    rows, columns = (iota(dtype=np.dtype(np.int32), shape=(total, size), dimension=i) for i in range(2))
    ones = convert_element_type(eq(rows, add(columns, int32_size(start))), new_dtype=aval.dtype, weak_type=False)
    return reshape(ones, new_sizes=(total, *aval.shape), dimensions=None)


def int32_size(size: Any) -> Any:
    """Return a size as an int32 value of the program."""
    return convert_element_type(size, new_dtype=np.dtype(np.int32), weak_type=False)


def split_columns(y: Any, arguments: Any) -> Any:
    """Split the last axis of `y` over the leaves of the arguments; return a tree of arrays of shape `y.shape[:-1] +
    leaf.shape`."""
    leaves, treedef = tree.flatten(arguments)
    parts, start = [], 0
    lead = y.shape[:-1]
    for leaf in leaves:
        shape = get_aval(leaf).shape  # type: ignore[attr-defined]
        size = math.prod(shape)
        part = slice_primitive(
            y, start_indices=(*[0] * len(lead), start), limit_indices=(*lead, start + size), strides=None
        )
        parts.append(reshape(part, new_sizes=(*lead, *shape), dimensions=None))
        start += size
    return tree.unflatten(treedef, parts)


def split_rows(x: Any, results: Any) -> Any:
    """Split the first axis of `x` over the leaves of the results; return a tree of arrays of shape `leaf.shape +
    x.shape[1:]`."""
    parts = split_columns(move_axis(x, 0, len(x.shape) - 1), results)
    rest = len(x.shape) - 1

    def result_first(part: Any) -> Any:
        own = len(part.shape) - rest
        for _ in range(own):
            part = move_axis(part, len(part.shape) - 1, 0)
        return part

    return tree.map(result_first, parts)
