"""Training that is killed and continues to the bit: weights, optimizer, dropout, order and position of the data.

A process trains with `BackupAndRestore` and is killed with SIGKILL somewhere in the middle, again and again; the last
one gets to the end. Its losses and weights equal those of a training without interruption. Data comes from a
`weft.data.Loader` with workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from weft import keras
from weft.data import Loader, RandomMap
from weft.keras import layers


def noisy(sample: tuple[np.ndarray, np.ndarray], generator: np.random.Generator) -> Any:
    x, y = sample
    return x + 0.1 * generator.normal(size=x.shape).astype(np.float32), y


def train(folder: pathlib.Path, epochs: int, seconds: float = 0.0) -> dict[str, Any]:
    """Train from the last backup in a folder. `seconds`: how long a batch takes to be read."""
    keras.utils.set_random_seed(7)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2000, 16)).astype(np.float32)
    y = (np.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:3]).astype(np.float32)

    def slow(sample: Any) -> Any:
        time.sleep(seconds / 50)
        return sample

    loader = Loader((x, y), 50, shuffle=True, seed=1, transforms=[RandomMap(noisy), slow], workers=2)
    model = keras.Sequential(
        [keras.Input((16,)), layers.Dense(64, activation="tanh"), layers.Dropout(0.1), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    backup = keras.callbacks.BackupAndRestore(folder, save_freq=10)
    history = model.fit(loader, epochs=epochs, callbacks=[backup], verbose=0)
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()
    return {"losses": history.history["loss"], "weights": digest[:16]}


def main(short: bool = False) -> None:
    epochs, kills = (3, 1) if short else (8, 4)
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
        expected = train(pathlib.Path(whole) / "backup", epochs)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, "--train", str(pathlib.Path(killed) / "backup"), str(epochs)]
        for i in range(kills):
            process = subprocess.Popen([*command, "0.03"], env=environment, stdout=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while not any(pathlib.Path(killed).rglob("index.json")) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.5)
            process.kill()
            process.communicate()
            print(f"kill {i + 1}: ended by signal {-process.returncode}")
        done = subprocess.run([*command, "0"], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
    print("undisturbed", *expected["losses"], expected["weights"])
    print("continued  ", *found["losses"], found["weights"])
    print(f"final loss {found['losses'][-1]:.4f}, the same bits after {kills} kills")
    assert found == expected


if __name__ == "__main__":
    if "--train" in sys.argv:
        print(json.dumps(train(pathlib.Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
    else:
        main("--short" in sys.argv)
