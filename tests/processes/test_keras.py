"""Keras models that several processes train together: the losses are those of one process with one device."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.processes.launching import ROOT, SCRIPTS, launched, needs_mpi

SCRIPT = SCRIPTS / "keras_fit.py"
SLOW = pytest.mark.slow


@needs_mpi
@pytest.mark.parametrize("kind", ["data", *(pytest.param(k, marks=SLOW) for k in ("own", "fully", "model", "auto"))])
def test_two_processes_have_the_losses_of_one_device(kind: str, tmp_path: pathlib.Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_CPU_DEVICES": "1"}
    subprocess.run([sys.executable, str(SCRIPT), str(folders[0]), kind], env=environment, check=True, timeout=150)
    done = launched(2, SCRIPT, str(folders[1]), kind, devices=2)
    assert done.code == 0, done.errors
    # One process shows how far it is.
    assert done.out.count("Epoch 1/2") == (kind != "own")
    expected, found = (json.loads((folder / "found.json").read_text()) for folder in folders)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@needs_mpi
@pytest.mark.parametrize("kind", ["model", pytest.param("data", marks=SLOW)])
def test_one_process_writes_a_file_and_both_read_it(kind: str, tmp_path: pathlib.Path) -> None:
    done = launched(2, SCRIPTS / "keras_files.py", str(tmp_path), kind)
    assert done.code == 0, done.errors
    assert done.out.count("saving the model") == 2, done.out
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert len(list((tmp_path / "board" / "train").glob("events*"))) == 1


@needs_mpi
@pytest.mark.slow
def test_a_killed_process_and_a_backup_inside_of_an_epoch(tmp_path: pathlib.Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder, dies in zip(folders, ("undisturbed", "dies"), strict=True):
        folder.mkdir()
        done = launched(2, SCRIPTS / "keras_files.py", str(folder), "model", dies, restarts=2)
        assert done.code == 0, done.errors
    assert (folders[1] / "dead").exists()
    for name in ("found.json", "log.csv"):
        assert (folders[0] / name).read_text() == (folders[1] / name).read_text(), name
