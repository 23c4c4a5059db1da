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
