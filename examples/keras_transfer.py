"""Transfer learning: a network that knows the digits 0 to 4 learns 5 to 9 from a few images.

The body is trained first, frozen, and used by another model with a new head; when that has stopped to improve,
`UnfreezeOnPlateau` sets the body free with a smaller learning rate. Which weights train is read when an epoch begins,
so nothing has to be compiled by hand again.
"""

from __future__ import annotations

import sys

import digits
import numpy as np

from weft import keras
from weft.keras import layers

FEW = 60


def body() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
        ],
        name="body",
    )


def classifier(of: keras.Model, classes: int) -> keras.Model:
    image = keras.Input((8, 8, 1))
    # training=False: the body would otherwise also update what its layers remember.
    model = keras.Model(image, layers.Dense(classes)(of(image, training=False)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(2)
    x, y, test_x, test_y = (np.asarray(part) for part in digits.load())
    known, others, test = y < 5, y >= 5, test_y >= 5

    first = body()
    classifier(first, 5).fit(x[known], y[known], epochs=10 if short else 20, verbose=0)

    def learned(trained_body: bool) -> float:
        """Return the accuracy on the other digits, after training on a few of them, with the trained body or with a
        fresh one."""
        base = first if trained_body else body()
        base.trainable = False
        model = classifier(base, 5)
        unfreeze = keras.callbacks.UnfreezeOnPlateau([base], monitor="val_loss", patience=2, factor=0.3, verbose=1)
        few, targets = x[others][:FEW], y[others][:FEW] - 5
        unseen = (test_x[test], test_y[test] - 5)
        epochs = 20 if short else 40
        model.fit(few, targets, 16, epochs, validation_data=unseen, callbacks=[unfreeze], verbose=0)
        return model.evaluate(*unseen, verbose=0)[1]

    fresh, transferred = learned(False), learned(True)
    print(f"{FEW} images of the digits 5 to 9: {fresh:.3f} with a fresh body")
    print(f"final accuracy {transferred:.3f} with a body that was trained on 0 to 4")
    assert transferred > 0.75


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
