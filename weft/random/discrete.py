"""Random integers, booleans and signs; random choices and permutations."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.api.shardings import takes_out_sharding
from weft.base import conversion, dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.expression import Expression
from weft.indexing.guards import decide
from weft.numpy.util import (
    as_shape,
    broadcast_shape,
    canonicalize_axis,
    cast,
    check_arraylike,
    ensure_array,
    get_dtype,
    get_shape,
)
from weft.random.argument_docs import document
from weft.random.keys import draw_bits, one_key, split_keys
from weft.random.uniform import (
    draw_shape,
    draw_uniform,
    gumbel,
    integer_dtype,
    parameters,
    real_dtype,
    sampler,
    uniform,
)
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array


@takes_out_sharding
def randint(
    key: ArrayLike, shape: Shape, minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = None
) -> Array:
    """Draw integers uniformly distributed over minval <= x < maxval.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        shape: the shape of the result.
        minval, maxval: integers or arrays of them that broadcast to the shape.
        dtype: an integer dtype; int32 by default.

    Returns:
        Integers.

    >>> from weft import random
    >>> random.randint(random.key(0), (5,), 0, 10)
    Array([9, 0, 2, 3, 1], dtype=int32)
    """
    typed, _ = one_key("randint", key)
    found = dtypes.requested_dtype(int if dtype is None else dtype, "randint")
    if dtypes.kind(found) not in "iu":
        raise ArgumentTypeError(
            f"The dtype of randint must be an integer type, got dtype={dtypes.name(found)}.",
            fix="uniform(key, shape, dtype, minval, maxval)   draws floats",
        )
    assert isinstance(found, np.dtype)
    check_arraylike("randint", minval, maxval)
    sizes = draw_shape("randint", as_shape(shape), get_shape(minval), get_shape(maxval))
    limits = dtypes.iinfo(found)
    for bound in (minval, maxval):
        _check_bound(bound, found)
    if found.itemsize < 4:
        # Bounds of narrow types are held in 32 bits, so that the one after the greatest integer is representable.
        low, high = (_bound(b, dtypes.int32, limits.min, limits.max + past) for past, b in enumerate((minval, maxval)))
        drawn = _randint(typed, low, high, np.array(False), shape=sizes, dtype=dtypes.int32)
        return lax.convert_element_type(drawn, found)
    low, high = (_bound(b, found, limits.min, limits.max) for b in (minval, maxval))
    return _randint(typed, low, high, _beyond(maxval, limits.max), shape=sizes, dtype=found)


def _check_bound(bound: Any, dtype: np.dtype[Any]) -> None:
    """Raise an error unless a bound fits the dtype or the default one; one past the greatest integer is allowed."""
    if isinstance(bound, (int, np.integer)) and not isinstance(bound, bool):
        wide = max(dtype, dtypes.default_int_dtype(), key=lambda d: int(dtypes.iinfo(d).max))
        if int(bound) != int(dtypes.iinfo(wide).max) + 1:
            conversion.coerce_value(int(bound), dtypes.default_int_dtype() if bound < 0 else wide)


def _bound(bound: Any, dtype: np.dtype[Any], least: int, greatest: int) -> Any:
    """Convert a bound of `randint` to a dtype, clipped to its range."""
    if isinstance(bound, (int, np.integer)) and not isinstance(bound, bool):
        return np.array(min(max(int(bound), least), greatest), dtype)
    held = dtypes.iinfo(get_dtype(bound)) if dtypes.kind(get_dtype(bound)) in "iu" else None
    if held is not None and least <= held.min and held.max <= greatest:
        return cast(bound, dtype)
    if held is None:
        return cast(bound, dtype)
    low, high = max(least, int(held.min)), min(greatest, int(held.max))
    return cast(wnp.clip(bound, low, high), dtype)


def _beyond(maxval: Any, greatest: int) -> Any:
    """Return whether the upper bound exceeds the greatest integer of the dtype, which is then included."""
    if isinstance(maxval, (int, np.integer)):
        return np.array(int(maxval) > greatest)
    if dtypes.kind(get_dtype(maxval)) in "iu" and int(dtypes.iinfo(get_dtype(maxval)).max) <= greatest:
        return np.array(False)
    return maxval > greatest


@sampler
def _randint(
    key: Array, minval: Any, maxval: Any, beyond: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]
) -> Array:
    width = dtype.itemsize * 8
    unsigned = np.dtype(f"uint{width}")
    higher, lower = (draw_bits(part, shape, unsigned) for part in split_keys(key, 2))
    one = np.array(1, unsigned)
    span = lax.convert_element_type(maxval - minval, unsigned)
    span = wnp.where(maxval <= minval, one, span)  # an empty range yields minval
    span = wnp.where(wnp.logical_and(beyond, maxval > minval), span + one, span)
    # The draw of 2 * width bits, higher * 2**width + lower, modulo the span, without wider numbers.
    multiplier = _remainder(np.array(2 ** (width // 2), unsigned), span)
    multiplier = _remainder(multiplier * multiplier, span)
    offset = _remainder(_remainder(higher, span) * multiplier + _remainder(lower, span), span)
    return minval + lax.convert_element_type(offset, dtype)


def _remainder(x: Any, divisor: Any) -> Any:
    """Compute x modulo the divisor; x itself where the divisor is 0, which means the range of all integers."""
    shape = broadcast_shape("randint", get_shape(x), get_shape(divisor))
    modulus = wnp.broadcast_to(divisor, shape)
    return wnp.where(
        modulus == 0,
        x,
        lax.rem(wnp.broadcast_to(x, shape), wnp.where(modulus == 0, np.array(1, modulus.dtype), modulus)),
    )


@takes_out_sharding
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Shape | None = None, mode: str = "low") -> Array:
    """Draw booleans that are true with probability p. Mode 'high' resolves small probabilities with twice the bits.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        p: the probability, an array or a number.
        shape: the shape of the result; that of `p` by default.
        mode: "low" or "high".

    Returns:
        Booleans.

    >>> from weft import random
    >>> random.bernoulli(random.key(0), 0.5, (4,))
    Array([False, False,  True,  True], dtype=bool)
    """
    typed, _ = one_key("bernoulli", key)
    if mode not in ("low", "high"):
        raise ArgumentError(f"The mode of bernoulli must be 'high' or 'low', got mode={mode!r}.")
    check_arraylike("bernoulli", p)
    found = get_dtype(p)
    if dtypes.kind(found) != "f":
        raise ArgumentTypeError(f"bernoulli needs a probability that is a float, got {dtypes.name(found)}.")
    p = cast(p, found)
    return _bernoulli(typed, p, shape=draw_shape("bernoulli", shape, get_shape(p)), dtype=found, mode=mode)


@functools.partial(sampler, static=("shape", "dtype", "mode"))
def _bernoulli(key: Array, p: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any], mode: str) -> Array:
    if mode == "low":
        return draw_uniform(key, shape, dtype) < p
    pair = draw_uniform(key, (2, *shape), dtype)
    return pair[1] * np.array(dtypes.finfo(dtype).eps, dtype) < p - pair[0]


@takes_out_sharding
@document(
    "An array of -1 and 1.",
    "random.rademacher(random.key(0), (4,)) -> Array([-1, -1,  1,  1], dtype=int32)",
    dtype="the dtype; integers by default.",
)
def rademacher(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw -1 or 1 with equal probability."""
    typed, _ = one_key("rademacher", key)
    return _rademacher(
        typed, shape=as_shape(shape), dtype=dtypes.requested_dtype(int if dtype is None else dtype, "rademacher")
    )


@sampler
def _rademacher(key: Array, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    return draw_rademacher(key, shape, dtype)


def draw_rademacher(key: Array, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    """Draw random signs as numbers of `dtype`."""
    positive = draw_uniform(key, shape, dtypes.default_float_dtype()) < 0.5
    return np.array(2, dtype) * lax.convert_element_type(positive, dtype) - np.array(1, dtype)


@takes_out_sharding
def geometric(key: ArrayLike, p: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None) -> Array:
    """Draw the number of trials of success probability p up to the first success."""
    typed, _ = one_key("geometric", key)
    found = integer_dtype("geometric", dtype)
    (p,) = parameters("geometric", dtypes.default_float_dtype(), p)
    return _geometric(typed, p, shape=draw_shape("geometric", shape, get_shape(p)), dtype=found)


@sampler
def _geometric(key: Array, p: Any, *, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    u = draw_uniform(key, shape, get_dtype(p))
    trials = wnp.floor(lax.log(wnp.where(u == 0, np.array(1, u.dtype), u)) / wnp.log1p(-p)) + np.array(1, u.dtype)
    return lax.convert_element_type(trials, dtype)


# --------------------------------------------------------------------------------------------- choosing and reordering


@takes_out_sharding
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """Permute `x` (or the integers below it) randomly along an axis; `independent` permutes each line separately.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        x: an array, or an integer n for the integers from 0 to n - 1.
        axis: the axis.
        independent: whether each line along the axis is permuted separately.

    Returns:
        An array of the shape of `x`.

    >>> from weft import random
    >>> random.permutation(random.key(0), 5)
    Array([0, 1, 4, 3, 2], dtype=int32)
    """
    typed, _ = one_key("permutation", key)
    check_arraylike("permutation", x)
    if not get_shape(x):
        if dtypes.kind(get_dtype(x)) not in "iu":
            raise ArgumentTypeError(f"permutation needs an integer or an array, got {x!r}.")
        (size,) = as_shape(x, "x")
        return _shuffle(typed, wnp.arange(size), axis=0)
    x = ensure_array(x)
    axis = canonicalize_axis(axis, x.ndim, "permutation")
    if independent or x.ndim == 1:
        return _shuffle(typed, x, axis=axis)
    return wnp.take(x, _shuffle(typed, wnp.arange(x.shape[axis]), axis=0), axis=axis, unique_indices=True)


def _rounds(_: None, shape: tuple[int, ...]) -> int:
    return math.ceil(3 * math.log(max(1, math.prod(shape))) / math.log(2**32 - 1))


@functools.partial(jit, static_argnames=("axis",))
def _shuffle(key: Array, x: Array, *, axis: int) -> Array:
    # Sorting by random words is a random order up to ties. The more words there are, the likelier are ties; this number
    # of rounds keeps the chance of an unfair order negligible.
    for _ in range(decide(_rounds, None, x.shape)):
        key, subkey = split_keys(key, 2)
        _, x = lax.sort((draw_bits(subkey, x.shape, dtypes.uint32), x), dimension=axis, num_keys=1)
    return x


def choice(
    key: ArrayLike,
    a: Any,
    shape: Shape = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Draw elements of `a` along an axis (or integers below it), with or without replacement, with probabilities `p`.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        a: an array, or an integer n for the integers from 0 to n - 1.
        shape: the shape of the draws.
        replace: whether an element can be drawn twice.
        p: a probability for each element; uniform by default.
        axis: the axis of `a` from which slices are drawn.
        mode: "low" or "high", the precision of the noise.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> random.choice(random.key(0), wnp.array([10, 20, 30]), (2,), replace=False)
    Array([10, 20], dtype=int32)
    """
    typed, _ = one_key("choice", key)
    check_arraylike("choice", a)
    shape = as_shape(shape)
    count = math.prod(shape)
    if get_shape(a):
        a = ensure_array(a)
        axis = canonicalize_axis(axis, a.ndim, "choice")
        population = a.shape[axis]
    else:
        (population,) = as_shape(a if isinstance(a, Expression) else int(a), "a")
    if not replace and count > population:
        raise ArgumentError(
            f"choice cannot take {count} samples from {population} without replacement.",
            fix="replace=True, or fewer samples",
        )
    if population <= 0 < count:
        raise ArgumentError(f"choice got nothing to choose from, but needs elements for {count} samples.")
    if p is None:
        return _choose_evenly(typed, a, population, shape, replace, axis)
    indices = _choose_indices(typed, p, population, shape, replace, mode)
    return wnp.take(a, indices, axis=axis) if get_shape(a) else indices


def _choose_evenly(key: Array, a: Any, population: int, shape: tuple[int, ...], replace: bool, axis: int) -> Array:
    if replace:
        indices = randint(key, shape, 0, population)
        return wnp.take(a, indices, axis=axis) if get_shape(a) else indices
    taken = lax.slice_in_dim(permutation(key, a, axis), 0, math.prod(shape), axis=axis if get_shape(a) else 0)
    if not get_shape(a):
        return wnp.reshape(taken, shape)
    return wnp.reshape(taken, (*a.shape[:axis], *shape, *a.shape[axis + 1 :]))


def _choose_indices(
    key: Array, p: Any, population: int, shape: tuple[int, ...], replace: bool, mode: str | None
) -> Array:
    check_arraylike("choice", p)
    (p,) = parameters("choice", dtypes.to_inexact_dtype(get_dtype(p)), p)
    if get_shape(p) != (population,):
        raise ArgumentError(
            f"choice needs one probability for each of the {population} elements, got p of shape {get_shape(p)}."
        )
    if not replace:
        # The largest of log p plus Gumbel noise is a draw; the k largest are k draws without replacement.
        noisy = gumbel(key, (population,), p.dtype, mode=mode) + wnp.log(p)
        _, indices = lax.top_k(noisy, math.prod(shape))
        return wnp.reshape(indices, shape)
    sums = wnp.cumsum(p)
    draws = sums[-1] * (np.array(1, sums.dtype) - uniform(key, shape, dtype=sums.dtype))
    return wnp.searchsorted(sums, draws)


@takes_out_sharding
def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: Shape | None = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Draw indices along an axis of `logits` with probabilities softmax(logits).

    `shape` must end in the shape of logits without that axis; without replacement its leading sizes count the draws.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        logits: logarithms of probabilities, up to a constant.
        axis: the axis of the categories.
        shape: the shape of the result.
        replace: whether a category can be drawn twice.
        mode: "low" or "high", the precision of the noise.

    Returns:
        Integers.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> random.categorical(random.key(0), wnp.log(wnp.array([0.0, 1.0, 0.0])))
    Array(1, dtype=int32)
    """
    typed, _ = one_key("categorical", key)
    check_arraylike("categorical", logits)
    logits = ensure_array(logits)
    real_dtype("categorical", logits.dtype)
    axis = canonicalize_axis(axis, logits.ndim, "categorical")
    batch = logits.shape[:axis] + logits.shape[axis + 1 :]
    shape = draw_shape("categorical", shape, batch)
    leading = shape[: len(shape) - len(batch)]
    if replace:
        position = len(leading) + axis
        noise = gumbel(typed, (*shape[:position], logits.shape[axis], *shape[position:]), logits.dtype, mode=mode)
        return wnp.argmax(noise + lax.expand_dims(logits, tuple(range(len(leading)))), axis=position)
    count = math.prod(leading)
    if count > logits.shape[axis]:
        raise ArgumentError(
            f"categorical cannot take {count} samples from {logits.shape[axis]} categories without replacement."
        )
    noisy = wnp.moveaxis(logits + gumbel(typed, logits.shape, logits.dtype, mode=mode), axis, -1)
    _, indices = lax.top_k(noisy, count)
    return wnp.reshape(wnp.moveaxis(indices, -1, 0), shape)
