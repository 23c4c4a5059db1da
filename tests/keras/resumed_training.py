"""A training with backups, for test_backup.py: prints a line after each chunk, and at the end its history and state.

python resumed_training.py DIRECTORY [stream | deep]
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np

from weft import data, keras
from weft.keras.core.seeds import set_random_seed

ROWS, BATCH, EPOCHS = 100, 8, 4


class Announce(keras.callbacks.Callback):
    """Says after each chunk that it is there."""

    chunk_every = 2

    def on_train_chunk_end(self, batch, logs=None):
        print("chunk", batch, flush=True)


def model():
    """Statistics, randomness, slots of an optimizer."""
    layers = [
        keras.layers.Dense(8, use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(1),
    ]
    found = keras.Sequential([keras.Input((5,)), *layers])
    found.compile(keras.optimizers.Adam(0.05), loss="mse", metrics=["mae"])
    return found


class Deep(keras.Model):
    """Convolutions, recurrence and randomness in a step of its own, with two optimizers: one for each half."""

    def __init__(self):
        super().__init__()
        convolution = [keras.layers.Reshape((5, 1)), keras.layers.Conv1D(4, 3), keras.layers.GaussianNoise(0.1)]
        recurrence = [keras.layers.GRU(3, dropout=0.2, recurrent_dropout=0.2), keras.layers.Dense(1)]
        self.first = keras.Sequential([keras.Input((5,)), *convolution])
        self.second = keras.Sequential([keras.Input((3, 4)), *recurrence])
        self.both = keras.metrics.Mean(name="both")
        self.other = keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2)

    def call(self, x, training=False):
        return self.second(self.first(x, training=training), training=training)

    def train_step(self, data):
        x, y = data
        for half, optimizer in ((self.first, self.other), (self.second, self.optimizer)):
            weights = half.trainable_variables
            loss, _, gradients = self.gradients(lambda: self.compute_loss(x, y, self(x, training=True)), weights)
            optimizer.apply(gradients, weights)
            self.both.update_state(loss)
        return {"both": self.both.result()}


def deep():
    """A model with averages of weights and a schedule of rates."""
    found = Deep()
    rate = keras.optimizers.schedules.CosineDecay(0.05, 40)
    found.compile(keras.optimizers.Adam(rate, use_ema=True, ema_momentum=0.9), loss="mse", metrics=["mae"])
    return found


def jittered(sample, generator):
    """A sample with noise of its own."""
    x, y = sample
    return x + 0.01 * generator.normal(size=x.shape).astype("float32"), y


def main(directory, kind):
    set_random_seed(11)
    trained = deep() if kind == "deep" else model()
    generator = np.random.RandomState(0)
    x = generator.randn(ROWS, 5).astype("float32")
    y = (x.sum(1, keepdims=True) + 0.1 * generator.randn(ROWS, 1)).astype("float32")
    # The seed of a process that continues is that of the backup, and not this one.
    np.random.seed(None)
    chosen = [
        keras.callbacks.BackupAndRestore(f"{directory}/backup", save_freq=3, seconds=None),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.5),
        keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True),
        keras.callbacks.CSVLogger(f"{directory}/log.csv"),
        Announce(),
    ]
    if kind == "deep":
        # A schedule has the rate in hand; averages are swapped in at the ends of epochs, before the others look.
        chosen[1] = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    arguments = {"epochs": EPOCHS, "callbacks": chosen, "verbose": 0, "validation_data": (x[:20], y[:20])}
    if kind == "deep":
        # Epochs of 10 steps end within those of the data, which have 13.
        loader = data.Loader(
            (x, y),
            batch_size=BATCH,
            shuffle=True,
            seed=5,
            transforms=[data.RandomMap(jittered)],
            workers=2,
            worker_type="fork",
        )
        history = trained.fit(loader, steps_per_epoch=10, **arguments)
    elif kind == "stream":
        # Samples that are transformed are read one by one, and not taken from arrays in memory.
        identity = data.Map(lambda sample: sample)
        loader = data.Loader((x, y), batch_size=BATCH, shuffle=True, seed=5, transforms=[identity])
        history = trained.fit(loader, **arguments)
    else:
        np.random.seed(7)
        history = trained.fit(x, y, batch_size=BATCH, **arguments)
    digest = hashlib.sha256()
    for variable in (*trained.variables, *trained.optimizer.variables):
        digest.update(np.ascontiguousarray(np.asarray(variable.value)).tobytes())
    print("done", json.dumps({"history": history.history, "epoch": history.epoch, "state": digest.hexdigest()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "arrays")
