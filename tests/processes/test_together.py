"""Operations of processes outside of programs: devices, values of the host, local data, checkpoints, preemption."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import weft
from tests.processes.launching import ROOT, SCRIPTS, launched, needs_mpi
from weft.launch.children import share_cores


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=needs_mpi)])
def test_together(count: int, tmp_path: pathlib.Path) -> None:
    script = SCRIPTS / "together.py"
    if count == 1:  # as anybody would run it
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_CPU_DEVICES": "4"}
        command = [sys.executable, str(script), str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
        code, errors = done.returncode, done.stderr
    else:
        code, _, errors, _ = launched(count, script, str(tmp_path), devices=2)
    assert code == 0, errors
    assert sorted(p.name for p in tmp_path.glob("* of *")) == [f"{r} of {count}" for r in range(count)]


def test_initialize_comes_before_devices() -> None:
    weft.devices()
    with pytest.raises(RuntimeError, match="must be called before devices are used"):
        weft.distributed.initialize()
    weft.distributed.shutdown()  # nothing to end


def test_the_launcher_warns_of_more_processes_than_cores(capsys: pytest.CaptureFixture[str]) -> None:
    cores = len(os.sched_getaffinity(0))
    settings = share_cores(1, {})
    assert not capsys.readouterr().err and int(settings["WEFT_NUM_THREADS"]) >= 1
    share_cores(cores + 1, {})
    assert f"{cores + 1} processes on {cores} cores" in capsys.readouterr().err
