"""Files of a model that two processes train together: one writes each, with whole arrays, and both read it at once.
Arguments: a folder, a distribution, and for a run that is to be continued when the second process ends itself."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from weft import keras
from weft.checkpointing import tensor_file
from weft.errors import ArgumentError
from weft.experimental.multihost_utils import process_allgather
from weft.keras import callbacks, distribution, layers

FOLDER, KIND, DIES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
weft.distributed.initialize()
INDEX = weft.process_index()
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randint(0, 9, (48, 6)), RANDOM.normal(size=(48, 4)).astype("float32")
written: list[str] = []


@contextlib.contextmanager
def noted(target: str, replacing: Any = tensor_file.replacing) -> Iterator[Any]:
    """`tensor_file.replacing`, and which files this process writes that way."""
    written.append(os.path.basename(target))
    with replacing(target) as out:
        yield out


def network() -> Any:
    """Return a compiled model."""
    keras.utils.set_random_seed(0)
    parts = [layers.Embedding(9, 8, name="table"), layers.Flatten(), layers.Dropout(0.2), layers.Dense(4, name="down")]
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *parts], name="network")
    model.compile(keras.optimizers.Adam(1e-2, name="adam"), "mse")
    return model


def chosen() -> distribution.Distribution:
    """Return the distribution over the devices of both processes."""
    if KIND == "data":
        return distribution.DataParallel()
    mesh = distribution.DeviceMesh((1, 2), ("batch", "model"))
    layouts = distribution.LayoutMap(mesh)
    layouts["table/embeddings"], layouts["down/kernel"] = (None, "model"), ("model", None)
    return distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")


class StopOfOne(callbacks.Callback):
    """Callback by which the second process alone ends training."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if INDEX == 1 and batch == 1:
            self.model.stop_training = True


class Death(callbacks.Callback):
    """Callback by which the second process ends itself once, within an epoch."""

    async_safe = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        mark = FOLDER / "dead"
        if INDEX == 1 and batch == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def equal(model: Any, other: Any) -> None:
    """Assert that two models have the same values, wherever parts of them are."""
    pairs = zip(model.weights + model.optimizer.variables, other.weights + other.optimizer.variables, strict=True)
    for one, two in pairs:
        np.testing.assert_array_equal(whole(one), whole(two), err_msg=one.path)


def whole(variable: Any) -> np.ndarray:
    return np.asarray(process_allgather(variable.value, tiled=True))


def raises(call: Any) -> str:
    """Return the error of a call."""
    try:
        call()
    except ArgumentError as error:
        return str(error)
    raise AssertionError("no error")


def all_files(model: Any) -> None:
    """Callbacks that write, and all ways to save."""
    tensor_file.replacing = noted
    calls = [
        callbacks.ModelCheckpoint(FOLDER / "best.keras", "loss", save_best_only=True, verbose=1),
        callbacks.ModelCheckpoint(
            FOLDER / "later" / "{batch}.safetensors", "loss", save_weights_only=True, save_freq=3
        ),
        callbacks.CSVLogger(FOLDER / "log.csv"),
        callbacks.LiveCurves(FOLDER / "curves.svg"),
        callbacks.TensorBoard(FOLDER / "board", histogram_freq=1, write_images=True, embeddings_freq=1),
        callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True),
        callbacks.OrbaxCheckpoint(FOLDER / "checkpoints"),
        callbacks.BackupAndRestore(FOLDER / "backup", seconds=0.0),
    ]
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=calls)
    equal(keras.models.load_model(FOLDER / "best.keras"), model)
    model.save(FOLDER / "model.keras")
    equal(keras.models.load_model(FOLDER / "model.keras"), model)
    for ending in (".safetensors", *([".weights.h5"] if keras.saving.weights.has_h5py() else [])):
        model.save_weights(FOLDER / f"weights{ending}")
        other = network()
        other.load_weights(FOLDER / f"weights{ending}")
        np.testing.assert_array_equal(whole(other.weights[0]), whole(model.weights[0]))
    model.export(FOLDER / "program.weft")
    program = weft.export.deserialize((FOLDER / "program.weft").read_bytes())
    np.testing.assert_allclose(program.call(X[:5]), model.predict(X[:5], verbose=0), rtol=1e-5, atol=1e-6)
    assert "exists" in raises(lambda: model.save(FOLDER / "model.keras", overwrite=False))
    assert "must end in" in raises(lambda: model.save(FOLDER / "model.other"))
    stopped = model.fit(X, Y, batch_size=8, epochs=9, verbose=0, callbacks=[StopOfOne()])
    assert len(stopped.epoch) == 1, stopped.epoch
    # Of what this process has alone it writes its own file.
    distribution.set_distribution(None)
    network().save(FOLDER / f"own-{INDEX}.keras")
    assert (FOLDER / f"own-{INDEX}.keras").exists()
    single = {name for name in written if name.endswith((".keras", "weights.safetensors", ".weft"))}
    expected = {"best.keras", "model.keras", "weights.safetensors", "program.weft", "own-0.keras"}
    assert single == (expected if INDEX == 0 else {"own-1.keras"}), written


distribution.set_distribution(chosen())
model = network()
if DIES:
    backup = callbacks.BackupAndRestore(FOLDER / "backup", save_freq=2)
    log = callbacks.CSVLogger(FOLDER / "log.csv")
    stop = callbacks.EarlyStopping("loss", restore_best_weights=True)
    more = [Death()] if DIES == ["dies"] else []
    history = model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[*more, log, stop, backup])
    found = {**history.history, "weights": [whole(w).tolist() for w in model.weights]}
    if INDEX == 0:
        (FOLDER / "found.json").write_text(json.dumps(found))
else:
    all_files(model)
print(f"process {INDEX} is done", flush=True)
