"""Processes that die, are stuck, or do something else than the others: all are told who and where, and all end."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import time

import pytest

from tests.errors.test_error_pages import read_page
from tests.processes.launching import ROOT, SCRIPTS, Finished, environment, launched, needs_mpi
from weft import errors

pytestmark = needs_mpi


# After so many seconds all are told of a death; of other failures; and all have ended when they have been told. On a
# busy machine, where the tests run that compare no times, it may take longer.
DEATH, OTHERS, END = 2, 30, 5
BUSY = 10
WHERE = r"\(host [^)]*, pid \d+\)"
EITHER_TRANSPORT = pytest.mark.parametrize(
    "transport", ["shared_memory", pytest.param("messages", marks=pytest.mark.slow)]
)


def failed(what: str, folder: pathlib.Path, **settings: str) -> tuple[Finished, list[str]]:
    """Return how two processes of scripts/failures.py end, and what each has written. Both end soon after the failure
    is known."""
    done = launched(2, SCRIPTS / "failures.py", what, str(folder), devices=2, **settings)
    assert done.code != 0, done.out
    pids = (folder / "pids").read_text().split()
    until = time.monotonic() + BUSY * END
    while any(map(runs, pids)):
        assert time.monotonic() < until, "a process has not ended"
        time.sleep(0.05)
    files = [folder / f"{rank}.txt" for rank in range(2)]
    texts = [file.read_text() if file.exists() else "" for file in files]
    told = [seconds(text, "raised") for text in texts if " raised at " in text]
    assert not told or done.ended - max(told) < BUSY * END, texts
    return done, texts


def runs(pid: str) -> bool:
    """Return whether a process still runs, even if its exit code has not been collected."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False)
    return done.stdout.strip() != "" and not done.stdout.strip().startswith("Z")


def seconds(text: str, word: str) -> float:
    found = re.search(rf"{word} at ([0-9.]+)", text)
    assert found, text
    return float(found[1])


@EITHER_TRANSPORT
def test_a_dead_process_is_named_at_once(transport: str, tmp_path: pathlib.Path) -> None:
    _, (first, dead) = failed("dies", tmp_path, WEFT_DISTRIBUTED_TRANSPORT=transport)
    assert re.search(r"Process 1 \(host .*, pid \d+\) has died; .* at failures.py:\d+", first), first
    assert "ProcessFailureError" in first
    assert seconds(first, "raised") - seconds(dead, "dies") < BUSY * DEATH


@pytest.mark.timing
@pytest.mark.parametrize("what", ["dies", "shapes", "order"])
def test_all_are_told_and_have_ended_in_time(what: str, tmp_path: pathlib.Path) -> None:
    done, (first, second) = failed(what, tmp_path)
    told = seconds(first, "raised")
    began, limit = (seconds(second, "dies"), DEATH) if what == "dies" else (seconds(first, "differs"), OTHERS)
    assert told - began < limit
    assert done.ended - told < END


@pytest.mark.slow
def test_the_death_of_the_first_process_is_told_too(tmp_path: pathlib.Path) -> None:
    _, (dead, second) = failed("first_dies", tmp_path)
    assert "ProcessFailureError" in second and re.search(rf"Process 0 {WHERE} has died", second), second
    assert seconds(second, "raised") - seconds(dead, "dies") < BUSY * DEATH


@pytest.mark.parametrize(
    ("what", "how"), [("raises", "ValueError: no more data"), ("leaves", "without an error")], ids=["raises", "leaves"]
)
def test_a_process_that_ends_is_named_with_its_error(what: str, how: str, tmp_path: pathlib.Path) -> None:
    done, (first, _) = failed(what, tmp_path)
    assert re.search(rf"ended \({how}\) while others wait for it in psum.* at failures.py:\d+", first), first
    assert ("ValueError: no more data" in done.errors) == (what == "raises")


@EITHER_TRANSPORT
def test_a_stuck_process_is_reported_with_its_stack(transport: str, tmp_path: pathlib.Path) -> None:
    settings = {"WEFT_DISTRIBUTED_TRANSPORT": transport, "WEFT_STUCK_AFTER": "1", "WEFT_ABORT_AFTER": "3"}
    done, (_, stuck) = failed("stuck", tmp_path, **settings)
    assert done.ended - seconds(stuck, "stuck") < 3 + BUSY * END
    assert re.search(r"Process 1 \(host .*, pid \d+\) is not in psum.* at failures.py:\d+.*, for \d+ s", done.errors)
    assert "in is_lost_in_thought" in done.errors
    assert "aborting all processes" in done.errors


@pytest.mark.parametrize(
    ("what", "differs"),
    [
        ("shapes", r"process 0: argument 0 is f32\[1,3\] on each device.*process 1: argument 0 is f32\[1,5\]"),
        ("programs", r"process 0: b:f32\[1,3\] = psum.*failures.py:\d+.*process 1: b:f32\[1,3\] = mul a 2.0"),
        ("settings", r"process 0: setting enable_x64 is True.*process 1: setting enable_x64 is False"),
        (
            "order",
            rf"process 0 {WHERE} does summed at failures.py:\d+.*process 1 {WHERE} does doubled at failures.py:\d+",
        ),
        ("every_call", r"process 0: call summed at failures.py:\d+.*process 1: call doubled"),
        ("kinds", rf"process 0 {WHERE} does summed at .*process 1 {WHERE} does sync_global_devices\('end'\) at"),
    ],
    ids=lambda text: text if text.isidentifier() else "",
)
def test_processes_that_do_different_things_are_named(what: str, differs: str, tmp_path: pathlib.Path) -> None:
    _, told = failed(what, tmp_path)
    for text in told:
        assert "ProgramMismatchError" in text
        assert re.search(differs, text), text
        assert re.search(rf"process 0 {WHERE}.*process 1 {WHERE}", text), text
        assert seconds(text, "raised") - seconds(text, "differs") < BUSY * OTHERS


@pytest.mark.slow
def test_nobody_is_left_when_the_launcher_is_killed(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(
        "import os, pathlib, sys, time, weft\n"
        "weft.distributed.initialize()\n"
        "pathlib.Path(sys.argv[1], f'{weft.process_index()}.pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "weft.launch", "-n", "2", str(script), str(tmp_path)]
    with subprocess.Popen(command, env=environment(), cwd=ROOT, stderr=subprocess.DEVNULL) as launcher:
        files = [tmp_path / f"{rank}.pid" for rank in range(2)]
        while not all(file.exists() and file.read_text() for file in files):
            assert launcher.poll() is None
            time.sleep(0.05)
        launcher.kill()
    until = time.monotonic() + BUSY * END
    while any(runs(file.read_text()) for file in files):
        assert time.monotonic() < until, "a process is left"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "error",
    [
        errors.ProgramMismatchError,
        errors.ProcessFailureError,
        pytest.param(errors.CheckpointWriteError, marks=pytest.mark.slow),
    ],
)
def test_pages_of_errors(error: type[errors.WeftError], tmp_path: pathlib.Path) -> None:
    page = read_page(error)
    for name, code in (("wrong", page.wrong), ("right", page.right)):
        script = tmp_path / f"{name}.py"
        script.write_text(code)
        done = launched(2, script)
        assert (done.code == 0) == (name == "right"), done.errors
        assert (error.__name__ in done.errors) == (name == "wrong"), done.errors
