"""Trainings in which one of four processes is killed: all are started again and resume from memory, to the bit."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import weft.numpy as wnp
from tests.processes.launching import ROOT, SCRIPTS, launched, needs_mpi
from weft import checkpointing
from weft.checkpointing import tensor_file
from weft.launch import folder as job_folder

SCRIPT = SCRIPTS / "elastic.py"
STEPS = 12


def losses(folder: pathlib.Path) -> dict[int, str]:
    """Return the exact loss of each step; a step that was done twice must have had it twice."""
    found: dict[int, str] = {}
    for line in (folder / "losses").read_text().splitlines():
        step, loss = line.split()
        assert found.setdefault(int(step), loss) == loss, f"step {step} has two losses"
    return found


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loop", "fit", "hosts"])
@pytest.mark.parametrize("dies", ["2@6", "0@9"])
def test_losses_are_those_of_an_undisturbed_run(kind: str, dies: str, tmp_path: pathlib.Path) -> None:
    folders = [tmp_path / name for name in ("whole", "killed", "job")]
    for folder in folders:
        folder.mkdir()
    alone = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_CPU_DEVICES": "4"}
    subprocess.run([sys.executable, str(SCRIPT), str(folders[0]), kind, ""], env=alone, check=True, timeout=150)
    done = launched(4, SCRIPT, str(folders[1]), kind, dies, restarts=1, WEFT_JOB_DIRECTORY=str(folders[2]))
    assert done.code == 0, done.errors
    expected, found = losses(folders[0]), losses(folders[1])
    assert found == expected and list(expected) == list(range(STEPS))
    step = int(dies[2:])
    resumed = re.search(r"weft: resuming from step (\d+) in memory; ([0-9.]+) s lost", done.errors)
    assert resumed, done.errors
    # The callback saves after a batch, with the number of the next one; the loop with that of the step.
    assert int(resumed[1]) in (step - 1, step, step + 1)
    assert len((folders[1] / "losses").read_text().splitlines()) <= STEPS + 1, "at most one step is done again"


def test_a_job_has_a_directory_and_removes_those_of_killed_launchers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for least, parent in ((0, tmp_path / "memory"), (1 << 60, tmp_path / "disk")):
        parent.mkdir()
        monkeypatch.setattr(job_folder, "MEMORY", tmp_path / "memory")
        monkeypatch.setattr(job_folder, "LEAST_ROOM", least)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
        space = job_folder._namespace()
        others = [f"weft-job-a-{space}-{os.getpid()}", f"weft-job-b-{space + 1}-{dead.pid}", "weft-job-mine", "state"]
        for name in (*others, f"weft-job-c-{space}-{dead.pid}"):
            (parent / name / "checkpoints").mkdir(parents=True)
        own = job_folder.make_directory("0af3")
        assert own.parent == parent and job_folder.make_directory("0af3") == own
        assert {path.name for path in parent.iterdir()} == {*others, own.name}
        assert own.stat().st_mode & 0o777 == 0o700


def tree(step: int) -> dict[str, object]:
    return {"w": wnp.ones(3) * step, "n": step}


@pytest.mark.parametrize("interval", [1, 3, 100])
def test_the_newest_checkpoint_of_memory_and_disk_is_restored(interval: int, tmp_path: pathlib.Path) -> None:
    """Also when the memory is lost, and when the disk has a later one."""
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    with checkpointing.ElasticManager(disk, interval, memory=memory) as manager:
        for step in range(8):
            manager.save(step, tree(step), metadata={"step": step})
        assert manager.restore()["n"] == 7 and manager.metadata().metadata == {"step": 7}
    on_disk = [step for step in range(8) if step % interval == 0]
    with checkpointing.ElasticManager(disk, interval, memory=tmp_path / "other") as manager:
        assert manager.latest_step() == on_disk[-1] and manager.restore()["n"] == on_disk[-1]
        manager.save(20, tree(20), on_disk=True)
        manager.save(21, tree(21), on_disk=False)
        manager.wait_until_finished()
        assert manager.all_steps() == sorted({*on_disk[-1:], 20, 21})
        manager.delete(21)
    with checkpointing.ElasticManager(disk, interval, memory=memory) as manager:
        assert manager.latest_step() == 20
        assert np.asarray(manager.restore(20)["w"]).tolist() == [20.0] * 3
        assert manager.restore(7)["n"] == 7, "of memory"


def test_a_process_without_a_job_has_checkpoints_on_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WEFT_JOB_DIRECTORY", raising=False)
    with checkpointing.ElasticManager(tmp_path, 2) as manager:
        assert not manager.has_memory and "on disk only" in caplog.text
        for step in range(4):
            manager.save(step, tree(step))
        assert manager.restore()["n"] == 2


def test_full_memory_leaves_the_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replacing = tensor_file.replacing

    def fail(target: str) -> object:
        if "memory/2" in target:
            raise OSError(28, "No space left on device")
        return replacing(target)

    monkeypatch.setattr(tensor_file, "replacing", fail)
    with checkpointing.ElasticManager(tmp_path / "disk", 4, memory=tmp_path / "memory") as manager:
        for step in range(6):
            manager.save(step, tree(step))
            assert manager.has_memory == (step < 3), step
        assert "on disk only from now on" in caplog.text and "No space left" in caplog.text
        assert manager.restore()["n"] == 4


@pytest.mark.parametrize("count", [0, 1])
def test_seconds_lost_are_reported_after_a_restart(
    count: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_RESTART_COUNT", str(count))
    monkeypatch.setenv("WEFT_JOB_DIRECTORY", str(tmp_path / "job"))
    for _ in range(2):
        with checkpointing.ElasticManager(tmp_path / "disk", 100) as manager:
            if manager.latest_step() is None:
                manager.save(1, tree(1))
            manager.restore()
            manager.restore()
    said = capfd.readouterr().err
    assert len(re.findall(r"resuming from step 1 in memory; \d+\.\d s lost", said)) == 2 * count
