"""Functional model with two inputs and two outputs: images of two digits, their sum and which of them is larger.

One convolutional encoder is called for both images, so its weights are shared; outputs are a dict, each with its own
loss, weight and metric. Pairs are drawn by a `weft.data.Loader`, anew in each epoch.
"""

from __future__ import annotations

import sys
from typing import Any

import digits
import numpy as np

from weft import keras
from weft.data import Loader, RandomMap
from weft.keras import layers


def encoder() -> keras.Model:
    image = keras.Input((8, 8, 1))
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    return keras.Model(image, layers.Dense(32, activation="relu")(layers.Flatten()(x)), name="encoder")


def pairs_of_digits() -> keras.Model:
    left, right = keras.Input((8, 8, 1), name="left"), keras.Input((8, 8, 1), name="right")
    encode = encoder()
    both = layers.Concatenate()([encode(left), encode(right)])
    hidden = layers.Dense(64, activation="relu")(both)
    outputs = {
        "sum": layers.Dense(19, activation="softmax", name="sum")(hidden),
        "larger": layers.Dense(1, activation="sigmoid", name="larger")(hidden),
    }
    return keras.Model([left, right], outputs)


def pair(images: np.ndarray, labels: np.ndarray, first: Any, generator: np.random.Generator) -> Any:
    """Make a sample: image `first` and another one."""
    second = generator.integers(len(images))
    targets = {"sum": labels[first] + labels[second], "larger": np.float32([labels[first] > labels[second]])}
    return [images[first], images[second]], targets


def pairs(images: Any, labels: Any, seed: int) -> Loader:
    images, labels = np.asarray(images), np.asarray(labels)
    draw = RandomMap(lambda index, generator: pair(images, labels, index, generator))
    return Loader(range(len(images)), 64, shuffle=True, seed=seed, transforms=[draw], drop_remainder=True)


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(1)
    x, y, test_x, test_y = digits.load()
    model = pairs_of_digits()
    model.compile(
        keras.optimizers.Adam(3e-3),
        loss={"sum": "sparse_categorical_crossentropy", "larger": "binary_crossentropy"},
        loss_weights={"sum": 1.0, "larger": 0.5},
        metrics={"sum": ["accuracy"], "larger": ["accuracy"]},
    )
    history = model.fit(pairs(x, y, 0), epochs=10 if short else 40, validation_data=pairs(test_x, test_y, 1), verbose=2)
    found = {name: values[-1] for name, values in history.history.items()}
    print(
        f"final accuracy of sums {found['val_sum_accuracy']:.3f}, of which is larger {found['val_larger_accuracy']:.3f}"
    )
    assert found["val_larger_accuracy"] > 0.85


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
