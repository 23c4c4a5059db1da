"""Trainings that are killed and continue: the same losses and weights, to the bit."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from weft import keras
from weft.keras.core.seeds import set_random_seed

PROGRAM = pathlib.Path(__file__).parent / "resumed_training.py"
ROOT = pathlib.Path(__file__).parents[2]


def run(directory, kind, kill_after=None, seconds=None):
    """Runs the training; kills it after so many lines or seconds. Returns what it printed at its end, or None."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PROGRAM), str(directory), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        timer = threading.Timer(seconds or 0.0, process.kill)
        if seconds is not None:
            timer.start()
        for i, line in enumerate(process.stdout):
            if line.startswith("done "):
                timer.cancel()
                return json.loads(line.removeprefix("done "))
            if kill_after is not None and i + 1 >= kill_after:
                process.send_signal(signal.SIGKILL)
                break
    assert kill_after is not None or seconds is not None, process.returncode
    return None


def killed(directory, kind, chosen):
    """The training with kills after so many lines each; returns its end and its log."""
    for lines in chosen:
        found = run(directory, kind, lines)
        if found is not None:
            break
    else:
        found = run(directory, kind)
    return found, (directory / "log.csv").read_text()


def whole(tmp_path_factory, kind):
    directory = tmp_path_factory.mktemp(kind)
    return run(directory, kind), (directory / "log.csv").read_text()


@pytest.mark.parametrize("kind", ["arrays", *(pytest.param(k, marks=pytest.mark.slow) for k in ("stream", "deep"))])
def test_a_kill_changes_nothing(tmp_path, tmp_path_factory, kind):
    assert killed(tmp_path, kind, [9]) == whole(tmp_path_factory, kind)
    assert not any((tmp_path / "backup").iterdir())  # it has ended


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "stream"])
def test_many_kills(tmp_path_factory, kind):
    expected = whole(tmp_path_factory, kind)
    generator = random.Random(0)
    for _ in range(6):
        chosen = [generator.randrange(1, 12) for _ in range(5)]
        assert killed(tmp_path_factory.mktemp("killed"), kind, chosen) == expected, chosen


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "deep"])
def test_kills_at_any_time(tmp_path_factory, kind):
    """Also while a program is compiled, a backup is written, and workers are started."""
    started = time.monotonic()
    expected = whole(tmp_path_factory, kind)
    took = time.monotonic() - started
    generator = random.Random(1)
    for _ in range(2):
        directory = tmp_path_factory.mktemp("killed")
        found = None
        for _ in range(5):
            found = found or run(directory, kind, seconds=generator.uniform(0.3, 0.9) * took)
        found = found or run(directory, kind)
        assert (found, (directory / "log.csv").read_text()) == expected


X = np.random.RandomState(0).randn(40, 3).astype("float32")


def batches():
    for i in range(0, 40, 8):
        yield X[i : i + 8], np.zeros((8, 2), "float32")


def trained(directory, units=2, stop=None, stream=False, **arguments):
    set_random_seed(2)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, name="dense")])
    model.compile("adam", loss="mse")
    backup = keras.callbacks.BackupAndRestore(directory, save_freq=5 if stream else 2)

    class Stop(keras.callbacks.Callback):
        chunk_every = 1

        def on_train_chunk_end(self, batch, logs=None):
            if stop == batch:
                raise KeyboardInterrupt

        def on_test_begin(self, logs=None):
            if stop == "validation":
                raise KeyboardInterrupt

    targets = np.zeros((40, units), "float32")
    source = {"x": batches} if stream else {"x": X, "y": targets, "batch_size": 8}
    arguments = {**source, "epochs": 2, "verbose": 0, "validation_data": (X, targets), **arguments}
    history = model.fit(callbacks=[backup, Stop()], **arguments)
    return model, history


@pytest.mark.parametrize(("stop", "stream"), [(3, False), ("validation", True)])
def test_an_exception_is_continued_from(tmp_path, stop, stream):
    # The backup of a stream is that after its last batch, of which nobody knows that it is the last.
    expected, history = trained(tmp_path / "whole", stream=stream)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part", stop=stop, stream=stream)
    model, again = trained(tmp_path / "part", stream=stream)
    assert again.history == history.history
    assert np.array_equal(model.get_weights()[0], expected.get_weights()[0])


def test_a_backup_of_another_training(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, stop=3)
    with pytest.raises(ValueError, match=r"other shapes: .*dense/kernel \(3, 2\), in the backup, for \(3, 3\)"):
        trained(tmp_path, units=3)
    with pytest.warns(UserWarning, match="batch_size was 8, is 10"):
        trained(tmp_path, batch_size=10)


def pinned_run(cache, directory, *arguments):
    """Runs pinned_training.py with a folder for the cache; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_COMPILATION_CACHE_DIR": str(cache)}
    command = [sys.executable, str(PROGRAM.with_name("pinned_training.py")), str(directory), *arguments]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return json.loads(out) if out else None


@pytest.mark.slow
def test_a_training_takes_its_schedules_along(tmp_path):
    expected = pinned_run(tmp_path / "cache", tmp_path / "whole")
    assert pinned_run(tmp_path / "cache", tmp_path / "backup", "stop") is None
    # Elsewhere the other choice was quicker: that changes bits, but not those of what continues.
    flip = "import json, sys; from weft.compiler import cache\nfor key, name in json.loads(sys.argv[1]).items(): "
    flip += "cache.store_schedule(key, '0' if name == 'library' else 'library')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "other")}
    subprocess.run([sys.executable, "-c", flip, json.dumps(expected["pins"])], env=environment, check=True)
    assert expected["pins"]
    assert pinned_run(tmp_path / "other", tmp_path / "other whole")["state"] != expected["state"]
    assert pinned_run(tmp_path / "other", tmp_path / "backup") == expected
