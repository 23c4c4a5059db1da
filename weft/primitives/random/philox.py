"""Philox 4x32 with ten rounds: random words from a key and a counter. The state of a generator is four words: the first
two are the key and the upper half of the counter, the others its lower half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_UINT32, _UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


def block(build: Any, state: Sequence[Any], index: Any) -> list[Any]:
    """Return the four words of the block with an index, counted from the state. `build` is a `layouts.Builder`."""
    key = [state[0], state[1]]
    # The counter plus the index, in 128 bits.
    counter = [build.plus(state[2], index)]
    carry = build.less(counter[0], index)
    for word in (state[3], state[0], state[1]):
        counter.append(build.plus(word, carry))
        carry = build.less(counter[-1], carry)
    for i in range(_ROUNDS):
        if i:
            key = [build.add(word, step) for word, step in zip(key, _KEY_STEPS, strict=True)]
        high, low = build.multiply(counter[0], _MULTIPLIERS[0])
        other_high, other_low = build.multiply(counter[2], _MULTIPLIERS[1])
        first = build.xor(build.xor(other_high, counter[1]), key[0])
        third = build.xor(build.xor(high, counter[3]), key[1])
        counter = [first, other_low, third, low]
    return counter


def bits(build: Any, state: Sequence[Any], bit_width: int, size: int) -> Any:
    """Generate `size` unsigned integers of `bit_width` bits for each state: words, their lower bits, or pairs of
    words."""
    shape = (*state[0].shape, size)
    count = build.repeat_first(build.arange(size), shape)
    words = [build.repeat_last(word, shape) for word in state]
    if bit_width == 64:
        found = block(build, words, build.shift_right(count, 1))
        last = build.low_bits(count, 1)
        low, high = build.select(last, (found[0], found[2])), build.select(last, (found[1], found[3]))
        high = build.shift_left(build.convert(high, _UINT64), 32)
        return build.or_(high, build.convert(low, _UINT64))
    found = block(build, words, build.shift_right(count, 2))
    chosen = build.select(build.low_bits(count, 2), found)
    return build.convert(chosen, np.dtype(f"uint{bit_width}"))


def count_blocks(bit_width: int, size: int) -> int:
    """Return the number of blocks for `size` integers."""
    return -(-size // (2 if bit_width == 64 else 4))
