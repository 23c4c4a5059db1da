"""Reading of an iterable source as pairs of index and sample, with a shuffle buffer, from the start or from a state."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.data.order import BUFFER, bits

# Names of the methods that save and restore the state of a source, in various libraries.
STATE_METHODS = (("get_state", "set_state"), ("state_dict", "load_state_dict"), ("state", "restore"))


def _stateful(*candidates: Any) -> tuple[Any, str, str] | None:
    for candidate in candidates:
        for get, set_ in STATE_METHODS:
            if callable(getattr(candidate, get, None)) and callable(getattr(candidate, set_, None)):
                return candidate, get, set_
    return None


def _encode(state: Any) -> Any:
    """Convert the state of a source to JSON; some states are bytes."""
    return {"base64": base64.b64encode(state).decode()} if isinstance(state, bytes) else state


def _decode(state: Any) -> Any:
    is_encoded = isinstance(state, dict) and state.keys() == {"base64"}
    return base64.b64decode(state["base64"]) if is_encoded else state


def has_state(source: Any) -> bool:
    """Return whether a source can save its position, so that nothing is read twice. Its iterator may be able to as
    well.
    """
    return _stateful(source) is not None


class Reader:
    """Iterator of `(index, sample)` over an epoch of an iterable source.

    `state` is a result of `Reader.state`, with the result of `get_state`, `state_dict` or `state` of the source or of
    its iterator.
    """

    def __init__(self, source: Any, epoch: int, state: Any = None) -> None:
        if callable(getattr(source, "set_epoch", None)):
            source.set_epoch(epoch)
        self._index = 0
        if state is not None:
            self._index, state = state["index"], _decode(state["source"])
            if (found := _stateful(source)) is not None:
                getattr(source, found[2])(state)
                state = None
        self._iterator = iter(source)
        self._with_state = _stateful(self._iterator, source)
        if state is not None and self._with_state is not None:
            getattr(*self._with_state[::2])(state)

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> tuple[int, Any]:
        sample = next(self._iterator)
        self._index += 1
        return self._index - 1, sample

    def state(self) -> Any:
        """Return the state that continues after the last sample, or None if the source has no state."""
        if self._with_state is None:
            return None
        return {"index": self._index, "source": _encode(getattr(*self._with_state[:2])())}


def shuffle_samples(pairs: Iterator[tuple[int, Any]], size: int, seed: int, epoch: int) -> Iterator[tuple[int, Any]]:
    """Yield samples through a buffer of `size`: each arriving sample replaces a random one, which is yielded."""
    random = bits(seed, epoch, 0, BUFFER)
    buffer: list[tuple[int, Any]] = []
    for pair in pairs:
        if len(buffer) < size:
            buffer.append(pair)
            continue
        chosen = int(random.random_raw() % size)
        leaving, buffer[chosen] = buffer[chosen], pair
        yield leaving
    for i in np.argsort(random.random_raw(len(buffer)), kind="stable"):
        yield buffer[i]


def chunks(pairs: Iterator[tuple[int, Any]], size: int) -> Iterator[tuple[list[int], list[Any]]]:
    """Group pairs into lists of `size` indices and samples."""
    indices: list[int] = []
    samples: list[Any] = []
    for index, sample in pairs:
        indices.append(index)
        samples.append(sample)
        if len(indices) == size:
            yield indices, samples
            indices, samples = [], []
    if indices:
        yield indices, samples
