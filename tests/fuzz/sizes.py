"""Random programs that are written for any size, for sizes that become symbols by themselves.

A program is a chain of operations that ask arrays for their shapes, in a transformation. All values are small integers,
so that every order of a sum has the same bits, however operations are fused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as onp

import weft
import weft.numpy as np
from weft import lax

Function = Callable[[Any], Any]
# Arrays are cut to this rank and this many elements between operations.
MOST_RANK, MOST_ELEMENTS = 3, 4000


def _length(x: Any) -> Any:
    return x.shape[-1]


def _indices(x: Any) -> Any:
    """Three indices of the first axis that depend on values."""
    return np.abs(x.reshape(-1)[:3]).astype("int32") % x.shape[0]


def _pads(x: Any, low: Any, high: Any) -> list[tuple[Any, Any]]:
    return [(0, 0)] * (x.ndim - 1) + [(low, high)]


def _convolution(x: Any, strides: int, padding: Any, dilation: int) -> Any:
    kernel = np.asarray(onp.arange(6).reshape(2, 1, 3) % 4 - 1).astype(x.dtype)
    rows = x.reshape(-1, 1, _length(x))
    return lax.conv_general_dilated(rows, kernel, (strides,), padding, lhs_dilation=(dilation,))


def _window(x: Any, combine: Any, initial: float, width: int, padding: str) -> Any:
    shape = (1,) * (x.ndim - 1) + (width,)
    return lax.reduce_window(x, np.asarray(initial, x.dtype), combine, shape, (1,) * x.ndim, padding)


OPERATIONS: dict[str, Function] = {
    "add": lambda x: x + x[..., :1],
    "square": lambda x: x * x,
    "scaled": lambda x: x * (_length(x) % 3),
    "max": lambda x: x.max(-1, keepdims=True) - x,
    "sum of rows": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.sum(0),
    "argmax": lambda x: x + x.argmax(-1, keepdims=True).astype(x.dtype),
    "any": lambda x: x * (x > 0).any(0),
    "cumulative sum": lambda x: np.cumsum(x, -1),
    "cumulative maximum": lambda x: lax.cummax(x, 0, reverse=True),
    "associative scan": lambda x: lax.associative_scan(np.add, x),
    "sort": lambda x: np.sort(x, -1),
    "sort columns": lambda x: np.sort(x, 0),
    "argsort": lambda x: np.take_along_axis(x, np.argsort(x, -1), -1),
    "top_k": lambda x: lax.top_k(x, min(2, _length(x)))[0],
    "transpose": lambda x: x.T,
    "reversed": lambda x: x[..., ::-1],
    "roll": lambda x: np.roll(x, _length(x) // 2, -1),
    "first": lambda x: x[:1],
    "without the last": lambda x: np.concatenate([x[..., :-1], x], -1),
    "every other": lambda x: x[..., ::2],
    "every third from the end": lambda x: x[::-3],
    "half": lambda x: x[..., _length(x) // 2 :],
    "middle": lambda x: x[..., _length(x) // 3 : 2 * _length(x) // 3 + 1],
    "zeros around": lambda x: np.pad(x, _pads(x, 1, 2)),
    "edges around": lambda x: np.pad(x, _pads(x, 1, 1), mode="edge"),
    "zeros to a multiple": lambda x: np.pad(x, _pads(x, 0, -_length(x) % 4)),
    "blocks": lambda x: np.pad(x, _pads(x, 0, -_length(x) % 4)).reshape(-1, (_length(x) + 3) // 4, 4).max(-1),
    "reflected": lambda x: np.pad(x, _pads(x, 1, 1), mode="reflect"),
    "as many zeros": lambda x: np.pad(x, _pads(x, 0, _length(x))),
    "interior zeros": lambda x: lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(1, -1, 1)]),
    "flat": lambda x: x.reshape(-1),
    "a column": lambda x: x.reshape(-1, 1),
    "two halves": lambda x: np.concatenate([x, x], -1).reshape(*x.shape[:-1], 2, _length(x)),
    "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2, -1),
    "stack": lambda x: np.stack([x, -x]),
    "outer": lambda x: x[..., None] * x[..., None, :],
    "rows times rows": lambda x: x.reshape(-1, _length(x)) @ x.reshape(-1, _length(x)).T,
    "columns times columns": lambda x: x.reshape(-1, _length(x)).T @ x.reshape(-1, _length(x)),
    "dense": lambda x: x @ (np.arange(_length(x) * 5).reshape(-1, 5) % 3 - 1).astype(x.dtype),
    "twice the rows": lambda x: np.concatenate([x, x]).reshape(-1, _length(x)) @ np.ones((_length(x), 3), x.dtype),
    "lower triangle": lambda x: np.tril(x[..., None, :] + x[..., :, None]),
    "mask": lambda x: np.where(np.arange(_length(x)) < _length(x) // 2, x, -x),
    "index": lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, x.ndim - 1) % 3,
    "gather": lambda x: x[_indices(x)],
    "out of bounds": lambda x: np.take(x, np.array([0, 100]), axis=0, mode="clip"),
    "scatter": lambda x: x.at[_indices(x)].add(1),
    "set": lambda x: x.at[..., -1].set(3),
    "set the middle": lambda x: x.at[..., _length(x) // 2].add(1),
    "the middle": lambda x: lax.dynamic_slice_in_dim(x, x.shape[0] // 2, 1, 0),
    "a size among operands": lambda x: lax.cond(
        x.sum() > 0, lambda y, n: y + (n % 2).astype(y.dtype), lambda y, n: y, x, x.shape[0]
    ),
    "a size that is carried": lambda x: lax.fori_loop(
        0, 2, lambda i, c: (c[0] // 2, c[1] + (c[0] % 2).astype(x.dtype)), (x.shape[0], x)
    )[1],
    "clipped indices": lambda x: x[np.clip(np.arange(3) * 7, 0, x.shape[0] - 1)],
    "every other index": lambda x: x[np.arange(1, x.shape[0], 2)],
    "indices downwards": lambda x: x[np.arange(x.shape[0] - 1, -1, -1)],
    "first that are positive": lambda x: np.nonzero(x.reshape(-1) > 0, size=_length(x))[0].astype(x.dtype),
    "as many segments": lambda x: weft.ops.segment_max(x, np.arange(x.shape[0]) // 2, x.shape[0]),
    "median": lambda x: np.median(x, -1),
    "search": lambda x: np.searchsorted(np.sort(x.reshape(-1)), np.arange(-2, 3).astype(x.dtype)).astype(x.dtype),
    "three factors": lambda x: np.einsum("...i,ij,jk->...k", x, *(np.ones((_length(x), _length(x)), x.dtype),) * 2),
    "custom rule": lambda x: weft.nn.relu6(x) + weft.nn.silu(x * 0),
    "segments": lambda x: weft.ops.segment_sum(x, np.arange(x.shape[0]) % 3, 4),
    "one hot": lambda x: weft.nn.one_hot(np.abs(x).astype("int32"), 5, dtype=x.dtype),
    "dynamic slice": lambda x: lax.dynamic_slice_in_dim(x, _indices(x)[0], min(2, x.shape[0]), 0),
    "dynamic update": lambda x: lax.dynamic_update_slice_in_dim(x, x[:1] * 2, _indices(x)[-1], 0),
    "convolution": lambda x: _convolution(x, 1, "SAME", 1),
    "strided convolution": lambda x: _convolution(x, 2, [(2, 2)], 1),
    "dilated convolution": lambda x: _convolution(x, 1, [(2, 1)], 2),
    "window sums": lambda x: _window(x, lax.add, 0, 3, "SAME"),
    "window maxima": lambda x: _window(x, lax.max, -100, 2, "SAME"),
    "scan": lambda x: lax.scan(lambda c, row: (np.clip(c + row, -4, 4), c - row), np.zeros_like(x[0]), x)[1],
    "loop": lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: np.maximum(c, x[i]) - 1, x[0]),
    "while": lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] - x), (0, x))[1],
    "cond": lambda x: lax.cond(x.sum() > 0, lambda y: y + 1, lambda y: -y, x),
    "map": lambda x: lax.map(lambda row: row - row.max(), x),
    "vmap": lambda x: weft.vmap(lambda row: row * row.sum(), in_axes=-1, out_axes=-1)(x),
    "jit": lambda x: weft.jit(lambda y: y[::-1] + y)(x),
}


def _loss(function: Function) -> Function:
    """Return a linear function of the results."""

    def loss(x: Any) -> Any:
        y = function(x).astype(x.dtype)
        return (y * (np.arange(y.size) % 3 - 1).reshape(y.shape).astype(x.dtype)).sum()

    return loss


TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "none": lambda f: f,
    "grad": lambda f: weft.grad(_loss(f)),
    "grad of checkpoint": lambda f: weft.grad(weft.checkpoint(_loss(f))),
    "jvp": lambda f: lambda x: weft.jvp(_loss(f), (x,), (np.ones_like(x),)),
    "vmap": lambda f: lambda x: weft.vmap(f, in_axes=-1, out_axes=-1)(np.stack([x, -x], -1)),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1],
    "jit": lambda f: weft.jit(f),
}
# Shapes of the argument for a size. Sizes 0 and 1 have programs of their own.
SHAPES: tuple[Callable[[int], tuple[int, ...]], ...] = (
    lambda n: (n,),
    lambda n: (n, 3),
    lambda n: (3, n),
    lambda n: (n, n),
    lambda n: (n, n + 1),
    lambda n: (2, n, 3),
    lambda n: (n, 17),
    lambda n: (2 * n, 5),
)
SIZES = ((5, 7, 33, 2, 16), (4, 3, 2, 8), (9, 10, 1, 6), (16, 17, 64, 5), (2, 3, 70), (31, 32, 33, 65))


def cut(x: Any) -> Any:
    """Small integers in a small array of at least one dimension."""
    x = x if x.ndim else x[None]
    while x.ndim > MOST_RANK or x.size > MOST_ELEMENTS:
        x = x[0]
    return np.clip(x, -3, 3)


class SizedProgram(NamedTuple):
    """Function of one array, and arguments for several sizes."""

    text: str
    function: Function
    arguments: list[Any]


def program(seed: int) -> SizedProgram:
    """Generate the program of a seed."""
    rng = random.Random(seed)
    names = rng.choices(list(OPERATIONS), k=rng.choice((1, 1, 2, 2, 3, 4)))
    around, shape, sizes = rng.choice(["none", *TRANSFORMATIONS]), rng.choice(SHAPES), rng.choice(SIZES)
    floats = ("float32", "float32", "float32", "bfloat16", "float16")
    dtype = rng.choice(floats if "grad" in around or around == "jvp" else (*floats, "int8", "int32"))

    def chain(x: Any) -> Any:
        for name in names:
            x = cut(OPERATIONS[name](x))
        return x

    values = onp.random.default_rng(seed)
    arguments = [np.asarray(values.integers(-3, 4, shape(n))).astype(dtype) for n in sizes]
    return SizedProgram(f"{around} of {names}, {dtype}, {sizes}", TRANSFORMATIONS[around](chain), arguments)
