"""Random bits from a counter-based state: `rng_bit_generator` and its algorithms, and `rng_uniform`."""

from __future__ import annotations

import enum
import functools
import math
import os
from typing import Any

import numpy as np

from weft.api.callbacks import io_callback
from weft.api.jit import jit
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.ir.types import ShapeDtypeStruct, get_aval
from weft.primitives.elementwise.convert import bitcast_convert_type
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import reshape
from weft.primitives.random import philox
from weft.primitives.random.bits import threefry2x32
from weft.primitives.random.definitions import PRIMITIVES
from weft.primitives.random.layouts import UINT32, merge_words
from weft.primitives.reduction.reduce_other import part
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@functools.cache
def _stream(process: int) -> np.random.Generator:
    """Return the random stream of a process; a forked process gets its own."""
    return np.random.default_rng()


class RandomAlgorithm(enum.IntEnum):
    """Algorithms of `rng_bit_generator`; the default is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def rng_bit_generator(
    key: Any,
    shape: Any,
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """Generate random bits from a state; return the next state and the bits.

    Args:
        key: the state, four words of uint32 or two of uint64.
        shape: the shape of the bits.
        dtype: an unsigned integer type.
        algorithm: `RandomAlgorithm.RNG_PHILOX` (the default) or `RNG_THREE_FRY`.
        out_sharding: must be None.

    Returns:
        The new state and the bits. They depend on the state only, and are the same in every mode.

        >>> import numpy as np
        >>> from weft import lax
        >>> state, bits = lax.rng_bit_generator(np.array([0, 0, 0, 0], np.uint32), (2,))
        >>> state, bits
        (Array([0, 0, 1, 0], dtype=uint32), Array([1713891541, 3781805453], dtype=uint32))
    """
    aval: Any = get_aval(key)
    wanted = dtypes.requested_dtype(dtype, "rng_bit_generator")
    if (dtypes.name(aval.dtype), aval.shape) not in (("uint32", (4,)), ("uint64", (2,))):
        raise ArgumentTypeError(
            "The state of rng_bit_generator must be four words of uint32, or two of uint64.", received=aval.short()
        )
    if dtypes.name(wanted) not in ("uint8", "uint16", "uint32", "uint64"):
        raise ArgumentTypeError(
            "The dtype of rng_bit_generator must be an unsigned integer type.", received=f"dtype={dtypes.name(wanted)}"
        )
    if out_sharding is not None:
        raise NotSupportedError("rng_bit_generator has no out_sharding.", fix="reshard the bits")
    sizes = (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape)
    return _generate(key, sizes, dtypes.itemsize_bits(wanted), RandomAlgorithm(algorithm))


@functools.partial(jit, static_argnums=(1, 2, 3))
def _generate(key: Any, shape: tuple[int, ...], bit_width: int, algorithm: RandomAlgorithm) -> tuple[Any, Any]:
    wide = key.dtype != UINT32
    words = reshape(bitcast_convert_type(key, new_dtype=UINT32), new_sizes=(4,)) if wide else key
    state = [reshape(part(words, i, i + 1), new_sizes=()) for i in range(4)]
    if algorithm is RandomAlgorithm.RNG_THREE_FRY:
        bits, used = _threefry_bits(state, shape, bit_width)
    else:
        size = math.prod(shape)
        found = philox.bits(PRIMITIVES, state, bit_width, size) if size else PRIMITIVES.zeros((0,), f"uint{bit_width}")
        bits, used = reshape(found, new_sizes=shape), philox.count_blocks(bit_width, size)
    # The lower half of the counter advances; it does not carry.
    low = PRIMITIVES.add(state[2], used)
    high = PRIMITIVES.plus(state[3], PRIMITIVES.less(low, np.array(used, UINT32)))
    after = concatenate(*(reshape(w, new_sizes=(1,)) for w in (state[0], state[1], low, high)), dimension=0)
    if wide:
        after = bitcast_convert_type(reshape(after, new_sizes=(2, 2)), new_dtype=key.dtype)
    return after, bits


def _threefry_bits(state: Any, shape: tuple[int, ...], bit_width: int) -> tuple[Any, int]:
    """Hash counters to bits; return the bits and the number of counters used.

    Each hash yields two words, which are adjacent along one dimension: the first one of even size, or else the largest,
    whose last word is dropped.
    """
    if bit_width == 64:
        counts, size = shape, math.prod(shape)
    else:
        even = [i for i, n in enumerate(shape) if n % 2 == 0]
        axis = even[0] if even else int(np.argmax(shape)) if shape else 0
        whole = shape or (1,)
        counts = tuple(-(-n // 2) if i == axis else n for i, n in enumerate(whole))
        size = math.prod(counts)
    if not size:
        return PRIMITIVES.zeros(shape, f"uint{bit_width}"), 0
    index = PRIMITIVES.arange(size)
    low = PRIMITIVES.plus(index, PRIMITIVES.repeat_last(state[2], (size,)))
    high = PRIMITIVES.plus(PRIMITIVES.less(low, index), PRIMITIVES.repeat_last(state[3], (size,)))
    first, second = (reshape(w, new_sizes=counts) for w in threefry2x32(state[0], state[1], low, high))
    if bit_width == 64:
        return merge_words(PRIMITIVES, second, first), size
    pairs = (*counts[: axis + 1], 1, *counts[axis + 1 :])
    both = concatenate(reshape(first, new_sizes=pairs), reshape(second, new_sizes=pairs), dimension=axis + 1)
    padded = tuple(2 * n if i == axis else n for i, n in enumerate(counts))
    bits = part(reshape(both, new_sizes=padded), 0, whole[axis], axis=axis)
    return PRIMITIVES.convert(reshape(bits, new_sizes=shape), np.dtype(f"uint{bit_width}")), size


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Any) -> Array:
    """Draw uniform random numbers from `a` to `b`, different in every run: they come from a stream of the process.

    `a` and `b` are scalars of one dtype, integers or floats. Programs that use it cannot be repeated: `weft.random`
    has generators with keys.

        >>> from weft import lax
        >>> x = lax.rng_uniform(0.0, 1.0, (3,))
        >>> x.shape, bool((x >= 0).all() & (x < 1).all())
        ((3,), True)
    """
    dtype = dtypes.result_type(a, b)
    if get_aval(a).shape or get_aval(b).shape:  # type: ignore[attr-defined]
        raise ArgumentError("The bounds of rng_uniform must be scalars.", received=f"{a!r}, {b!r}")
    if dtypes.kind(dtype) not in "iuf":
        raise ArgumentTypeError(
            "The dtype of rng_uniform must be an integer or a float type.", received=dtypes.name(dtype)
        )
    sizes = tuple(int(n) for n in shape)

    def draw(a: Any, b: Any) -> Any:
        if dtypes.kind(dtype) in "iu":
            return np.asarray(_stream(os.getpid()).integers(int(a), int(b), sizes), dtype)
        return np.asarray(_stream(os.getpid()).random(sizes) * (float(b) - float(a)) + float(a)).astype(dtype)

    return io_callback(draw, ShapeDtypeStruct(sizes, dtype), a, b)
