"""News of 46 topics."""

from __future__ import annotations

import json

import numpy as np

from weft.errors import ArgumentError
from weft.keras.datasets.files import Split, find, read_npz
from weft.keras.datasets.sequences import Vocabulary

LABELS = (
    "cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar trade reserves ship cotton carcass"
    " crude nat-gas cpi money-fx interest gnp meal-feed alum oilseed gold tin strategic-metal livestock retail ipi"
    " iron-steel rubber heat jobs lei bop zinc orange pet-chem dlr gas silver wpi hog lead"
)


def load_data(
    path: str = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
) -> Split:
    """Load 11228 texts as lists of words, each word an integer: the more frequent, the smaller.

    Args:
        path: The name of the file in the cache.
        num_words: Words from this integer on become `oov_char`; None: none do, but the rarest one, as in Keras.
        skip_top: The number of most frequent words that become `oov_char`.
        maxlen: Texts of at least this length are left out.
        test_split: The fraction of texts for tests.
        seed: The seed of the order of texts.
        start_char: The integer that marks the start of a text; None for no mark.
        oov_char: What other words become; None: they are left out.
        index_from: What is added to the rank of a word.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: arrays of lists, and arrays of topics, from 0 to 45.
    """
    if not 0 <= test_split <= 1:
        raise ArgumentError("test_split must be in [0, 1].", received=repr(test_split))
    found = read_npz(find("reuters.npz", path))
    vocabulary = Vocabulary(num_words, skip_top, maxlen, start_char, oov_char, index_from)
    order = np.arange(len(found["x"]))
    np.random.RandomState(seed).shuffle(order)
    texts, labels = vocabulary.short(vocabulary.mark(found["x"][order]), found["y"][order])
    (x,) = vocabulary.limit(texts)
    cut = int(len(x) * (1 - test_split))
    return (x[:cut], labels[:cut]), (x[cut:], labels[cut:])


def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
    """Return the rank of each word. The indices of `load_data` are larger by `index_from`."""
    return json.loads(find("reuters_word_index.json", path).read_text(encoding="utf-8"))


def get_label_names() -> tuple[str, ...]:
    """Return the names of the topics."""
    return tuple(LABELS.split())
