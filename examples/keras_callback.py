"""Custom callback: it has hooks for every begin and end of epochs and batches, and sees the model.

This one follows how far each layer's weights have gone from where they began, and stops when the goal is reached.
Hooks of epochs cost nothing; a hook of batches has `fit` call its program batch by batch.
"""

from __future__ import annotations

import sys
from typing import Any

import digits
import numpy as np
import picture

from weft import keras
from weft.keras import layers


class Distances(keras.callbacks.Callback):
    """Records the distances of weights from their initial values, by layer, in `distances`; ends training at a
    validation accuracy of `goal`."""

    def __init__(self, goal: float) -> None:
        super().__init__()
        self.goal = goal
        self.distances: dict[str, list[float]] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.start = {layer.name: layer.get_weights() for layer in self.model.layers if layer.weights}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for layer in self.model.layers:
            if layer.weights:
                steps = zip(layer.get_weights(), self.start[layer.name], strict=True)
                distance = sum(float(np.sum((now - then) ** 2)) for now, then in steps) ** 0.5
                self.distances.setdefault(layer.name, []).append(distance)
        if logs and logs["val_accuracy"] >= self.goal:
            print(f"epoch {epoch + 1} has reached {logs['val_accuracy']:.3f}")
            self.model.stop_training = True


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(6)
    x, y, test_x, test_y = digits.load()
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(64, activation="relu", name="hidden"),
            layers.Dense(10, activation="softmax", name="digits"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    distances = Distances(goal=0.93 if short else 0.97)
    history = model.fit(x, y, epochs=60, validation_data=(test_x, test_y), callbacks=[distances], verbose=0)

    panel = picture.Panel("How far weights have gone", across="epoch", up="distance")
    for (name, values), colour in zip(distances.distances.items(), (picture.BLUE, picture.RED), strict=True):
        panel.line(range(1, len(values) + 1), values, colour, label=name)
        print(f"{name:8}", *(f"{value:.2f}" for value in values[:: max(1, len(values) // 8)]))
    picture.save("keras_callback", panel)
    print(f"final accuracy {history.history['val_accuracy'][-1]:.3f} after {len(history.epoch)} epochs")
    assert history.history["val_accuracy"][-1] >= distances.goal


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
