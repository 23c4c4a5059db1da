"""Classification of text: which page of Python's help is a passage from? Words as integers, an embedding and a
transformer block.

The pages come with Python. Passages have different lengths, so zeros are appended; `mask_zero` makes attention and
pooling ignore them.
"""

from __future__ import annotations

import pydoc_data.topics
import re
import sys
from typing import Any

import numpy as np

from weft import keras
from weft.keras import layers

TOPICS = ("formatstrings", "debugger", "specialnames", "compound", "typesseq", "naming")
BLOCK, LENGTH, WORDS, UNITS = 60, 40, 1500, 32


def passages(is_test: bool) -> tuple[list[str], np.ndarray]:
    """Return passages of 20 to 40 words, and the index of the page of each. Every fifth block of words is for the
    test."""
    generator, texts, labels = np.random.default_rng(0), [], []
    for label, name in enumerate(TOPICS):
        words = re.findall(r"[a-z_]+", pydoc_data.topics.topics[name].lower())
        for i, block in enumerate(words[first : first + BLOCK] for first in range(0, len(words) - BLOCK, BLOCK)):
            if (i % 5 == 4) == is_test:
                for start in range(0, BLOCK - LENGTH + 1, 10):
                    texts.append(" ".join(block[start : start + int(generator.integers(20, LENGTH + 1))]))
                    labels.append(label)
    return texts, np.array(labels)


class Block(layers.Layer):
    """Attention and two dense layers, each with a residual connection."""

    supports_masking = True  # the result has the mask of the input, for the pooling

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.attention = layers.MultiHeadAttention(2, UNITS // 2)
        self.first, self.second = layers.Dense(2 * UNITS, activation="gelu"), layers.Dense(UNITS)
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
        self.dropout = layers.Dropout(0.2)

    def call(self, x: Any) -> Any:
        x = self.norms[0](x + self.attention(x, x))
        return self.norms[1](x + self.dropout(self.second(self.first(x))))


class Positions(layers.Layer):
    """Adds a vector for each position."""

    supports_masking = True

    def build(self, shape: Any) -> None:
        self.table = self.add_weight((LENGTH, UNITS), initializer="uniform", name="table")

    def call(self, x: Any) -> Any:
        return x + self.table.value


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(5)
    (texts, y), (test_texts, test_y) = passages(False), passages(True)
    vectorize = layers.TextVectorization(WORDS, output_sequence_length=LENGTH)
    vectorize.adapt(texts)
    x, test_x = np.asarray(vectorize(texts)), np.asarray(vectorize(test_texts))

    words = keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(WORDS, UNITS, mask_zero=True)(words)
    hidden = Block()(Positions()(hidden))
    hidden = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(hidden))
    model = keras.Model(words, layers.Dense(len(TOPICS), activation="softmax")(hidden))
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=4, restore_best_weights=True)
    model.fit(x, y, epochs=6 if short else 20, validation_data=(test_x, test_y), callbacks=[stop], verbose=2)
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)
    print(f"final accuracy {accuracy:.3f} of {len(TOPICS)} pages, {len(test_y)} passages")
    assert accuracy > 0.6


if __name__ == "__main__":
    main("--short" in sys.argv)
