"""Handwritten digits with Keras' vocabulary: the model, `compile`, `fit`, `evaluate`, `predict`.

The whole epoch is one compiled program over the arrays in memory, shuffled anew each time.
"""

from __future__ import annotations

import sys

import digits

from weft import keras
from weft.keras import layers


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(0)
    x, y, test_x, test_y = digits.load()

    model = keras.Sequential([layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(x, y, epochs=12 if short else 40, validation_data=(test_x, test_y), verbose=2)
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    model.summary()
    guesses = model.predict(test_x[:8], verbose=0).argmax(axis=-1)
    print("digits ", *test_y[:8].tolist())
    print("guesses", *guesses.tolist())
    print(f"final accuracy {accuracy:.3f} on {len(test_y)} digits that were not trained with")
    assert accuracy > 0.9


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
