"""What IMDB and Reuters have in common: texts as lists of the ranks of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import ArgumentError

Lists = list[list[int]]


@dataclass(frozen=True)
class Vocabulary:
    """Which words stay, and what marks the start of a text and the words that do not."""

    num_words: int | None = None
    skip_top: int = 0
    maxlen: int | None = None
    start_char: int | None = 1
    oov_char: int | None = 2
    index_from: int | None = 3

    def mark(self, texts: Any) -> Lists:
        """Convert texts to lists, with ranks shifted by `index_from` and `start_char` in front."""
        start = [] if self.start_char is None else [self.start_char]
        offset = self.index_from or 0
        return [[*start, *(word + offset for word in text)] for text in texts]

    def short(self, texts: Lists, labels: np.ndarray) -> tuple[Lists, np.ndarray]:
        """Select the texts of less than `maxlen` words, with their labels."""
        if not self.maxlen:
            return texts, labels
        chosen = [i for i, text in enumerate(texts) if len(text) < self.maxlen]
        if not chosen:
            raise ArgumentError("No text is shorter than maxlen.", received=f"maxlen={self.maxlen}")
        return [texts[i] for i in chosen], np.asarray(labels)[chosen]

    def limit(self, *parts: Lists) -> list[np.ndarray]:
        """Replace or drop words that are too rare or too frequent; return each part as an array of lists."""
        most = self.num_words or max(max(text, default=0) for part in parts for text in part)
        inside = lambda word: self.skip_top <= word < most
        if self.oov_char is None:
            limit = [[[word for word in text if inside(word)] for text in part] for part in parts]
        else:
            limit = [[[word if inside(word) else self.oov_char for word in text] for text in part] for part in parts]
        return [object_array(part) for part in limit]


def object_array(lists: Sequence[list[int]]) -> np.ndarray:
    """Return a one-dimensional array whose elements are lists."""
    found = np.empty(len(lists), object)
    found[:] = lists
    return found
