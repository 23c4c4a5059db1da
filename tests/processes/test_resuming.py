"""Training goes on from its last checkpoint when a process has died: all are started again, or the others go on."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.processes.launching import ROOT, SCRIPTS, is_open_mpi, launched, needs_mpi
from weft import launch
from weft.launch import by_mpi

SCRIPT = SCRIPTS / "resuming.py"


def losses(folder: pathlib.Path) -> list[tuple[int, str, int]]:
    """Return the steps that were done, each with its exact loss, and the number of processes."""
    rows = [line.split() for line in (folder / "losses").read_text().splitlines()]
    return [(int(row[0]), row[1], int(row[2])) for row in rows]


def undisturbed(folder: pathlib.Path, devices: int) -> list[str]:
    """Return the losses in one process with some devices."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_CPU_DEVICES": str(devices)}
    subprocess.run([sys.executable, str(SCRIPT), str(folder), ""], env=environment, check=True, timeout=150)
    return [loss for _, loss, _ in losses(folder)]


@needs_mpi
@pytest.mark.slow
def test_all_are_started_again_and_the_losses_are_exact(tmp_path: pathlib.Path) -> None:
    expected = undisturbed(tmp_path / "whole", 2)
    folder = tmp_path / "disturbed"
    folder.mkdir()
    done = launched(2, SCRIPT, str(folder), "1@3", restarts=2)
    assert done.code == 0, done.errors
    assert "starting again, 1 restarts left" in done.errors
    assert [loss for _, loss, _ in losses(folder)] == expected
    assert [step for step, _, _ in losses(folder)] == list(range(6))


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not is_open_mpi(), reason="MPICH does not survive: make test-openmpi")
@pytest.mark.parametrize("transport", ["messages", "shared_memory"])
@pytest.mark.parametrize("dies", ["1@3", "0@3"])
def test_the_others_go_on_without_the_dead(dies: str, transport: str, tmp_path: pathlib.Path) -> None:
    expected = undisturbed(tmp_path / "whole", 1)
    folder = tmp_path / "disturbed"
    folder.mkdir()
    settings = {"WEFT_DISTRIBUTED_TRANSPORT": transport}
    done = launched(3, SCRIPT, str(folder), dies, "shrink", **settings)
    assert done.code == 0, done.errors
    found = losses(folder)
    assert [(step, count) for step, _, count in found] == [*((i, 3) for i in range(3)), *((i, 2) for i in range(3, 6))]
    # Sums over three devices are in another order than over one.
    assert [float.fromhex(a[1]) for a in found] == pytest.approx([float.fromhex(b) for b in expected], rel=1e-5)
    assert sorted(p.name for p in folder.glob("end *")) == ["end 0 of 2", "end 1 of 2"]
    told = [p.read_text() for p in folder.glob("told *")]
    assert len(told) == 2 and all(f"Process {dies[0]}" in text and f"({dies[0]},)" in text for text in told), told


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(is_open_mpi(), reason="Open MPI survives")
def test_without_ulfm_the_error_says_what_to_do(tmp_path: pathlib.Path) -> None:
    done = launched(2, SCRIPT, str(tmp_path), "1@3", "shrink")
    assert done.code != 0
    assert "no ULFM" in done.errors and "python -m weft.launch --restarts" in done.errors


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not is_open_mpi(), reason="MPICH does not tell: make test-openmpi")
def test_mpi_itself_tells_who_has_died(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "by_mpi.py"
    script.write_text(
        """
import os, signal, sys, time
import numpy as np
from weft.errors import ProcessFailureError
from weft.runtime.processes.mpi import MpiTransport
from weft.runtime.processes.world import World
world = World(MpiTransport())  # without a control thread
assert world.all_gather(b"here") == [b"here"] * 2
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    world.all_gather(b"more")
except ProcessFailureError as error:
    assert error.failed_processes == (1,), error
    print("told", time.monotonic() - start)
alone = World(world.transport.shrink(10.0))
assert alone.size == 1 and alone.all_gather(b"alone") == [b"alone"]
print("alone", flush=True)
os._exit(0)
"""
    )
    done = launched(2, script)
    assert "alone" in done.out, done.errors
    assert float(done.out.split("told")[1].split()[0]) < 20  # some milliseconds where nothing else runs


def test_the_launcher_starts_again_as_it_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a launcher that only starts one process."""
    fake = tmp_path / "mpiexec"
    fake.write_text(f"#!/bin/sh\necho once >> {tmp_path}/starts\nexit 7\n")
    fake.chmod(0o755)
    monkeypatch.setattr(by_mpi, "mpiexec", lambda name: str(fake))
    monkeypatch.setattr(by_mpi, "_surviving", lambda launcher: ([], []))
    assert launch.main(["-n", "1", "--launcher", "mpiexec", "--restarts", "2", "train.py"]) == 7
    assert (tmp_path / "starts").read_text().count("once") == 3


LAUNCHED = """
import sys
from weft import launch
from weft.launch import by_mpi
by_mpi.mpiexec = lambda name: sys.argv[1]
by_mpi._surviving = lambda launcher: ([], [])
sys.exit(launch.main(["--launcher", "mpiexec", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("restarts", ["0", "2"])
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_launcher_which_ends_in_its_own_time(
    by: signal.Signals, restarts: str, tmp_path: pathlib.Path
) -> None:
    """Once, and what is told to end is not started again."""
    fake = tmp_path / "mpiexec"
    told = f"trap 'echo told >> {tmp_path}/told; sleep 0.6; exit 9' TERM INT"
    fake.write_text(f"#!/bin/sh\n{told}\necho once >> {tmp_path}/starts\nwhile :; do sleep 0.05; done\n")
    fake.chmod(0o755)
    command = [sys.executable, "-c", LAUNCHED, str(fake), "-n", "1", "--restarts", restarts, "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Without a terminal, and with Python's own answer to interrupts, which a shell in the background takes away.
    with subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not (tmp_path / "starts").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(by)
    assert process.returncode == 9
    assert (tmp_path / "told").read_text() == "told\n" and (tmp_path / "starts").read_text() == "once\n"
