"""Handwritten digits with Keras' vocabulary: the model, `compile`, `fit`, `evaluate`, `predict`.

The whole epoch is one compiled program over the arrays in memory, shuffled anew each time. Curves of losses and
metrics are in examples/out/keras_digits.svg, which a callback writes again after each epoch.
"""

from __future__ import annotations

import sys

import digits
import picture

from weft import keras
from weft.keras import layers


def main(short: bool = False, verbose: int | str = "auto") -> picture.Panel:
    keras.utils.set_random_seed(0)
    x, y, test_x, test_y = digits.load()

    model = keras.Sequential([layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    curves = keras.callbacks.LiveCurves(picture.OUT / "keras_digits.svg")
    history = model.fit(
        x, y, epochs=12 if short else 40, validation_data=(test_x, test_y), callbacks=[curves], verbose=verbose
    )
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    model.summary()
    guesses = model.predict(test_x[:8], verbose=0).argmax(axis=-1)
    print("digits ", *test_y[:8].tolist())
    print("guesses", *guesses.tolist())
    print(f"final accuracy {accuracy:.3f} on {len(test_y)} digits that were not trained with")
    print(f"curves of losses and metrics: {curves.filepath}")
    assert accuracy > 0.9
    panel = picture.Panel("Keras: accuracy on handwritten digits", across="epoch", up="accuracy")
    epochs = [epoch + 1 for epoch in history.epoch]
    panel.line(epochs, history.history["accuracy"], label="training")
    return panel.line(epochs, history.history["val_accuracy"], picture.RED, label="unseen digits")


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
