"""Reading an iterable source: pairs of index and sample, through a buffer that shuffles, from a state or the start."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.data.order import BUFFER, bits

# What the methods for the state of a source are called by those who have them.
STATE_METHODS = (("get_state", "set_state"), ("state_dict", "load_state_dict"), ("state", "restore"))


def _stateful(*candidates: Any) -> tuple[Any, str, str] | None:
    for candidate in candidates:
        for get, set_ in STATE_METHODS:
            if callable(getattr(candidate, get, None)) and callable(getattr(candidate, set_, None)):
                return candidate, get, set_
    return None


def _encoded(state: Any) -> Any:
    """A state as JSON: some are bytes."""
    return {"base64": base64.b64encode(state).decode()} if isinstance(state, bytes) else state


def _decoded(state: Any) -> Any:
    is_encoded = isinstance(state, dict) and state.keys() == {"base64"}
    return base64.b64decode(state["base64"]) if is_encoded else state


def has_state(source: Any) -> bool:
    """Whether a source says where it is, so that nothing is read twice. Its iterator may say it too."""
    return _stateful(source) is not None


class Reader:
    """An iterator of `(index, sample)` over an epoch of an iterable source.

    `state` is what `get_state`, `state_dict` or `state` of the source or of its iterator returned.
    """

    def __init__(self, source: Any, epoch: int, state: Any = None) -> None:
        if callable(getattr(source, "set_epoch", None)):
            source.set_epoch(epoch)
        self._index = 0
        if state is not None:
            self._index, state = state["index"], _decoded(state["source"])
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
        """What continues behind the last sample; None if the source does not say it."""
        if self._with_state is None:
            return None
        return {"index": self._index, "source": _encoded(getattr(*self._with_state[:2])())}


def shuffled(pairs: Iterator[tuple[int, Any]], size: int, seed: int, epoch: int) -> Iterator[tuple[int, Any]]:
    """Samples through a buffer of `size`, of which a random one leaves when the next arrives."""
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
    """Indices and samples, `size` at a time."""
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
