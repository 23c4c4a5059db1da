"""Sequences of random keys: each draw splits the present key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import weft
from weft.errors import MissingRngError, user_line
from weft.haiku import config
from weft.modules.scope import is_key

SequenceState = tuple[Any, tuple[Any, ...]]


class PRNGSequence(Iterator[Any]):
    """An endless sequence of random keys from a key or seed: (state, key) = split(state).

    Args:
        key_or_seed: a random key or an integer.

    >>> from weft import haiku
    >>> keys = haiku.PRNGSequence(0)
    >>> bool((next(keys) == next(keys)).all())
    False
    """

    def __init__(self, key_or_seed: Any):
        if isinstance(key_or_seed, tuple):
            key, keys = key_or_seed
        else:
            key, keys = as_key(key_or_seed, "PRNGSequence"), ()
        self._key = key
        self._keys: deque[Any] = deque(keys)

    def reserve(self, num: int) -> None:
        """Make `num` keys with one split, to be drawn later."""
        if num > 0:
            keys = weft.random.split(self._key, num + 1)
            self._key = keys[0]
            self._keys.extend(keys[i] for i in range(1, num + 1))

    def reserve_up_to_full(self) -> None:
        """Make keys until as many wait as `config.rng_reserve_size` says."""
        self.reserve(config.current().rng_reserve_size - len(self._keys))

    @property
    def internal_state(self) -> SequenceState:
        """The key that is split next, and the keys in reserve."""
        return self._key, tuple(self._keys)

    def replace_internal_state(self, state: SequenceState) -> None:
        """Continue from an `internal_state`."""
        key, keys = state
        self._key, self._keys = key, deque(keys)

    def __next__(self) -> Any:
        if not self._keys:
            self.reserve(config.current().rng_reserve_size)
        return self._keys.popleft()

    next = __next__

    def take(self, num: int) -> tuple[Any, ...]:
        """Return the next `num` keys."""
        self.reserve(max(num - len(self._keys), 0))
        return tuple(next(self) for _ in range(num))


def as_key(key_or_seed: Any, what: str) -> Any:
    """Return a key unchanged, or the key of an integer seed; raise for anything else."""
    if isinstance(key_or_seed, int) and not isinstance(key_or_seed, bool):
        return weft.random.PRNGKey(key_or_seed)
    if is_key(key_or_seed) or _is_raw_key(key_or_seed):
        return key_or_seed
    if getattr(key_or_seed, "shape", None) == () and str(getattr(key_or_seed, "dtype", "")).startswith(("int", "uint")):
        return weft.random.PRNGKey(key_or_seed)
    raise MissingRngError(
        f"{what} needs a random key or a seed.",
        at=user_line(),
        received=_in_short(key_or_seed),
        fix=["weft.random.key(0)", "an int, which is a seed", "one of weft.random.split(key, n)"],
    )


def _is_raw_key(value: Any) -> bool:
    """Return whether a value is the raw data of one key of the default generator, of any number of words."""
    if str(getattr(value, "dtype", "")) != "uint32" or len(value.shape) != 1:
        return False
    shape = weft.eval_shape(lambda: weft.random.key_data(weft.random.key(0))).shape
    return tuple(value.shape) == tuple(shape)


def as_sequence(rng: Any, what: str) -> PRNGSequence | None:
    """Convert a user's `rng` to a sequence or None: None, a key, a seed or a sequence."""
    if rng is None or isinstance(rng, PRNGSequence):
        return rng
    return PRNGSequence(as_key(rng, what))


def _in_short(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{dtype}{list(shape)}"
    text = repr(value)
    kind = "a sequence" if isinstance(value, Sequence) and not isinstance(value, str) else type(value).__name__
    return f"{text if len(text) < 80 else text[:77] + '...'} ({kind})"
