"""A training with backups and matmuls that a library can compute, for test_backup.py; prints a digest of its state.

python pinned_training.py DIRECTORY [stop]: with "stop" it ends in its second epoch, without a word.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

import numpy as np

from weft import keras
from weft.experimental import schedules


class Stop(keras.callbacks.Callback):
    """Ends the process in the second epoch, when the backup of the first is written."""

    def __init__(self, backup):
        super().__init__()
        self.backup = backup

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.backup.manager.wait_until_finished()
            os._exit(0)


def main(directory, stops):
    keras.utils.set_random_seed(1)
    parts = [keras.layers.Dense(512, activation="relu"), keras.layers.Dense(8)]
    model = keras.Sequential([keras.Input((512,)), *parts])
    model.compile("adam", "mse")
    generator = np.random.RandomState(0)
    x, y = (generator.randn(1024, columns).astype("float32") for columns in (512, 8))
    np.random.seed(3)
    backup = keras.callbacks.BackupAndRestore(directory, seconds=None)
    model.fit(x, y, batch_size=512, epochs=3, verbose=0, callbacks=[backup, *([Stop(backup)] if stops else [])])
    state = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights()))
    print(json.dumps({"state": state.hexdigest(), "pins": schedules.get_pins()}))


if __name__ == "__main__":
    main(sys.argv[1], "stop" in sys.argv[2:])
