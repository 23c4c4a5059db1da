"""Reviews of films, positive or negative."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from weft.errors import ArgumentTypeError
from weft.keras.datasets.files import Split, find, read_npz
from weft.keras.datasets.sequences import Vocabulary


def load_data(
    path: str = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
    **kwargs: Any,
) -> Split:
    """Load 50000 reviews as lists of words, each word an integer: the more frequent, the smaller.

    Args:
        path: The name of the file in the cache.
        num_words: Words from this integer on become `oov_char`; None: none do, but the rarest one, as in Keras.
        skip_top: The number of most frequent words that become `oov_char`.
        maxlen: Reviews of at least this length are left out.
        seed: The seed of the order of reviews.
        start_char: The integer that marks the start of a review; None for no mark.
        oov_char: The integer that replaces other words; None leaves them out.
        index_from: The offset added to the rank of a word.
        **kwargs: `nb_words`, the older name of `num_words`.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: arrays of lists, and arrays of 0 (negative) and 1 (positive).
    """
    num_words = kwargs.pop("nb_words", num_words)
    if kwargs:
        raise ArgumentTypeError("load_data of imdb has no such parameters.", received=", ".join(sorted(kwargs)))
    found = read_npz(find("imdb.npz", path))
    vocabulary = Vocabulary(num_words, skip_top, maxlen, start_char, oov_char, index_from)
    generator, texts, labels = np.random.RandomState(seed), [], []
    for part in ("train", "test"):
        order = np.arange(len(found[f"x_{part}"]))
        generator.shuffle(order)
        chosen = vocabulary.short(vocabulary.mark(found[f"x_{part}"][order]), found[f"y_{part}"][order])
        texts.append(chosen[0])
        labels.append(chosen[1])
    x_train, x_test = vocabulary.limit(*texts)
    return (x_train, labels[0]), (x_test, labels[1])


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Return the rank of each word. The indices of `load_data` are larger by `index_from`."""
    return json.loads(find("imdb_word_index.json", path).read_text(encoding="utf-8"))
