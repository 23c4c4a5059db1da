"""The order of rows in `fit`: permutations drawn from NumPy's global generator, equal to those of Keras."""

from __future__ import annotations

import base64
import threading
from typing import Any

import numpy as np

from weft import data
from weft.keras.core.together import agree_array, train_together

# The bit generator of NumPy's global generator, and the number of words in its state beside the position.
GENERATOR, WORDS = "MT19937", 624


class NumPyOrder(data.Order):
    """The order of each epoch from NumPy's global generator, which `keras.utils.set_random_seed` seeds.

    `begin` draws the permutation of an epoch as Keras does at its begin, so that what else is drawn there, and the next
    `fit`, are as in Keras. The states that epochs begin with are noted: the order of an epoch can be asked for again,
    ahead of time, and after a restart. Of processes that train together each draws from a copy of the first one's
    generator, so that they agree whatever else a process draws, and moves its own on alike.
    """

    _generator: Any
    _states: dict[int, Any]  # epoch -> the state before its permutation
    _fixed: set[int]  # epochs whose order was read
    _lock: threading.Lock

    def __init__(self, count: int, shuffle: Any, batch_size: int, generator: Any) -> None:
        """Initialize the order of `count` rows from a generator of `epoch_generator`."""
        super().__init__(count, shuffle, 0, batch_size)
        own = {"_generator": generator, "_states": {}, "_fixed": set(), "_lock": threading.Lock()}
        for name, value in own.items():
            object.__setattr__(self, name, value)  # the class is frozen

    def begin(self, epoch: int) -> None:
        """Begin an epoch with the state that the generator has now, and draw its permutation from it."""
        now = self._generator.get_state()
        with self._lock:
            if epoch not in self._fixed:
                self._states[epoch] = now
                self._fixed.add(epoch)
            same = _is_same(self._states[epoch], now)
        if same:
            for generator in self._generators():
                self.draw(generator)

    def _generators(self) -> list[Any]:
        """Return the generators to advance when an epoch begins."""
        own = np.random.mtrand._rand
        return [own] if self._generator is own else [self._generator, own]

    def draw(self, generator: Any) -> np.ndarray:
        """Draw the order of one epoch."""
        if self.shuffle != "batch":
            return generator.permutation(self.count)
        ends = [*range(self.batch_size, self.count, self.batch_size), self.count]
        starts = [0, *ends[:-1]]
        blocks = [generator.permutation(end - start) + start for start, end in zip(starts, ends, strict=True)]
        return np.concatenate(blocks)

    def draw_first_batch(self) -> None:
        """Draw the permutation that Keras draws to inspect a batch before it builds a new model."""
        for generator in self._generators():
            generator.permutation(min(self.batch_size, self.count) if self.shuffle == "batch" else self.count)

    def indices(self, epoch: int) -> np.ndarray:
        """Return the row indices of an epoch."""
        with self._lock:
            last = max((known for known in self._states if known <= epoch), default=None)
            if last is None:
                self._states[epoch] = self._generator.get_state()
                last = epoch
            generator = np.random.RandomState()
            generator.set_state(self._states[last])
            for each in range(last, epoch):
                self.draw(generator)
                self._states[each + 1] = generator.get_state()
            self._fixed.add(epoch)
            found = self.draw(generator)
            self._states.setdefault(epoch + 1, generator.get_state())
        return found

    def state_text(self, epoch: int) -> str:
        """Return the state that an epoch begins with as text, for backups."""
        if epoch not in self._states:
            return _as_text(self._generator.get_state())
        return _as_text(self._states[epoch])

    def restore(self, epoch: int, text: str) -> None:
        """Begin an epoch with a state of `state_text`."""
        position, _, words = text.partition(":")
        keys = np.frombuffer(base64.b64decode(words), np.uint32)
        state = (GENERATOR, keys, int(position), 0, 0.0)
        for generator in self._generators():
            generator.set_state(state)
        self._states.clear()
        self._states[epoch] = state
        self._fixed.clear()


def epoch_generator() -> Any:
    """Return the generator that orders of epochs are drawn from, or None if it is not the one that Keras uses.

    All processes that train together call this, and get generators in the same state.
    """
    state: Any = np.random.get_state()
    usable = isinstance(state, tuple) and state[0] == GENERATOR
    if not train_together():
        return np.random.mtrand._rand if usable else None
    words = np.array([usable, *((state[2], *state[1]) if usable else (0,) * (WORDS + 1))], np.uint32)
    known, position, *keys = agree_array(words).tolist()
    if not known:
        return None
    generator = np.random.RandomState()
    generator.set_state((GENERATOR, np.array(keys, np.uint32), position, 0, 0.0))
    return generator


def _as_text(state: Any) -> str:
    return f"{state[2]}:{base64.b64encode(np.asarray(state[1], np.uint32).tobytes()).decode('ascii')}"


def _is_same(first: Any, second: Any) -> bool:
    return first[2] == second[2] and bool(np.array_equal(first[1], second[1]))


def is_unbuilt(model: Any) -> bool:
    """Return whether Keras would inspect a batch first: layers, losses or metrics are not built."""
    compiled = model._training
    waiting = any(part is not None and part.entries is None for part in (compiled.loss, compiled.metrics))
    return waiting or not all(layer.built for layer in model._flatten_layers())
