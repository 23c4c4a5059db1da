"""Silence and differences between processes, with control threads of one process and with sockets that say nothing."""

from __future__ import annotations

import functools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from weft.base.errors import ProcessFailureError, ProgramMismatchError
from weft.base.settings import config
from weft.runtime.processes import judging
from weft.runtime.processes.control import Control
from weft.runtime.processes.fence import Fence, identify_process
from weft.runtime.processes.links import MOST_UNSENT, Link
from weft.runtime.processes.page import Details
from weft.runtime.processes.watch import CUT, Watch

SECONDS = 30.0  # that a loaded machine may take


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, "it has not happened"
        time.sleep(0.01)


@pytest.fixture
def patience() -> Iterator[Callable[[int, int], None]]:
    """Return a function that sets `stuck_after` and `abort_after` for a test."""
    before = config.stuck_after, config.abort_after

    def update(stuck_after: int, abort_after: int) -> None:
        config.update("stuck_after", stuck_after)
        config.update("abort_after", abort_after)

    yield update
    update(*before)


@pytest.fixture
def controls() -> Iterator[list[Control]]:
    """Control threads of three processes, which are all in this one."""
    listener, address = Control.listen("127.0.0.1")
    where = [f"host h{rank}, pid {rank}" for rank in range(3)]
    found = [Control(rank, where, 60.0, listener if rank == 0 else None) for rank in range(3)]
    threads = [threading.Thread(target=c.start, args=(address, time.monotonic() + SECONDS)) for c in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield found
    stop(*found)


def stop(*controls: Control) -> None:
    """Stop control threads, and wait for their ends."""
    for control in controls:
        control.stop()
        control._thread.join(SECONDS)


def in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """Call functions at the same time; return their results or errors."""
    results: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        try:
            results[i] = calls[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return results


def test_a_barrier_hands_errors_to_all(controls: list[Control]) -> None:
    outcomes: list[dict[int, str]] = [{}, {1: "no room"}, {0: "no room", 2: "no permission"}]
    for failed in outcomes:
        calls = [functools.partial(c.barrier, "written", failed.get(c.rank)) for c in controls]
        assert in_threads(calls) == [failed] * 3


def test_a_process_that_ends_before_a_barrier_ends_it(controls: list[Control]) -> None:
    controls[1].end("ValueError: no more data")
    for found in in_threads([lambda c=c: c.barrier("written") for c in (controls[0], controls[2])]):
        assert isinstance(found, ProcessFailureError)
        assert "Process 1 (host h1, pid 1) has ended (ValueError: no more data)" in str(found)
        assert "the barrier 'written'" in str(found)


def test_what_differs_is_shown_side_by_side(controls: list[Control]) -> None:
    lines = [["setting a is 1", f"argument 0 is f32[{3 if c.rank < 2 else 5}]"] for c in controls]
    for control, own in zip(controls, lines, strict=True):
        control.page.record((0, 1, 2), "step", own[1], "train.py:9", Details(own, own))
    wait_for(lambda: all(c.verdict is not None for c in controls))
    for control in controls:
        assert control.verdict is not None
        with pytest.raises(ProgramMismatchError) as caught:
            control.verdict.raise_()
        text = str(caught.value)
        assert "process 0: argument 0 is f32[3]" in text and "process 2: argument 0 is f32[5]" in text


def test_a_dead_first_process_is_named_with_its_section(controls: list[Control]) -> None:
    controls[0].page.record((0, 1, 2), "step", "", "train.py:9")
    wait_for(lambda: all(c._links[0].page.get("doing") == "step at train.py:9" for c in controls[1:]))
    stop(controls[0])
    wait_for(lambda: all(c.verdict is not None for c in controls[1:]))
    for control in controls[1:]:
        assert control.verdict is not None and control.verdict.processes == (0,)
        assert "Process 0 (host h0, pid 0) has died" in control.verdict.text
        assert "step at train.py:9" in control.verdict.text


@pytest.mark.parametrize("rank", [0, 1])
def test_silence_is_reported_and_then_counts_as_death(
    rank: int, patience: Callable[[int, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """Also that of process 0. The other process is a socket, whose host confirms what it gets."""
    patience(1, 0)
    listener, address = Control.listen("127.0.0.1")
    host, port, token = json.loads(address)
    other = 1 - rank
    control = Control(rank, ["host a, pid 1", "host b, pid 2"], 3.0, listener if rank == 0 else None)
    if rank == 0:
        peer = socket.create_connection((host, port))
        peer.sendall(f"{token} 1\n".encode())
        control.start(address, time.monotonic() + SECONDS)
        peer.sendall(json.dumps({"page": control.page.to_json()}).encode() + b"\n")
    else:
        control.start(address, time.monotonic() + SECONDS)
        peer = listener.accept()[0]
    try:
        wait_for(lambda: control.verdict is not None)
    finally:
        stop(control)
        peer.close()
        listener.close()
    said = capfd.readouterr().err
    assert f"Process {other} (host {'ab'[other]}, pid {other + 1}) does not answer for 1 s" in said
    assert "Its host does, so it is stopped" in said
    assert control.verdict is not None and "has not been heard of for 3 s" in control.verdict.text


class StillLink(Link):
    """Link whose silence is a number."""

    def __init__(self, silent: float, host: float | None) -> None:
        super().__init__(None)
        self.socket = socket.socket()
        self.heard = time.monotonic() - silent
        self._host = host

    def host_silence(self) -> float | None:
        return self._host


@pytest.mark.parametrize("timeout", [5.0, 15.0, 100.0])
@pytest.mark.parametrize("abort_after", [0, 12])
@pytest.mark.parametrize("silent", [0.5, 6.0, 11.0, 13.0, 16.0, 21.0, 101.0])
@pytest.mark.parametrize("is_cut", [True, False, None])
def test_findings_follow_from_silence(
    silent: float, is_cut: bool | None, timeout: float, abort_after: int, patience: Callable[[int, int], None]
) -> None:
    patience(10, abort_after)
    watch, link = Watch(timeout, Fence([], 0)), StillLink(silent, None if is_cut is None else silent * is_cut)
    with link.socket:  # type: ignore[union-attr]
        kinds = [f.kind for f in watch.look({1: link}, "Process 1", "it was in step", 1)]
        again = [f.kind for f in watch.look({1: link}, "Process 1", "it was in step", 1)]
        link.heard = time.monotonic()
        back = [f.kind for f in watch.look({1: link}, "Process 1", "it was in step", 1)]
    is_lost = silent > (min(CUT, timeout) if is_cut else timeout)
    is_stuck = not is_lost and 0 < abort_after < silent
    is_reported = not is_lost and not is_stuck and silent >= 10
    assert kinds == ["lost"] * is_lost + ["stuck"] * is_stuck + ["report"] * is_reported
    assert again == [kind for kind in kinds if kind != "report"], "it is reported once"
    assert back == ["report"] * is_reported, "and that it answers again"


def test_time_in_which_the_watcher_did_not_run_does_not_count() -> None:
    watch, link = Watch(5.0, Fence([], 0)), StillLink(1.0, 0.0)
    with link.socket:  # type: ignore[union-attr]
        watch._looked -= 60
        link.heard -= 60
        watch.pause({1: link})
        assert 0 <= time.monotonic() - link.heard < 5
        assert not list(watch.look({1: link}, "Process 1", "", 1))


def page(rank: int, wait: tuple[list[int], float] | None, ended: str | None = None) -> dict[str, Any]:
    shown = None if wait is None else [wait[0], "psum", wait[1], False]
    return {"rank": rank, "wait": shown, "ended": ended, "sections": 0, "records": [], "failed": False}


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_that_wait_for_each_other_are_a_deadlock(size: int) -> None:
    pages = {r: page(r, ([(r + 1) % size], 11.0 + r)) for r in range(size)}
    found = judging.find_deadlock(pages, size, 10.0)
    assert found is not None and found.seconds == 11.0 and found.what.count("waits for") == size
    for rank in range(size):
        for other in (page(rank, None), page(rank, ([0], 9.0))):
            assert judging.find_deadlock(pages | {rank: other}, size, 10.0) is None
        assert judging.find_deadlock({r: p for r, p in pages.items() if r != rank}, size, 10.0) is None


def test_a_link_does_not_block_on_a_reader_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = Link(None)
    link.socket = ours
    with ours, theirs:
        start = time.monotonic()
        while len(link._unsent) <= MOST_UNSENT:
            link.send({"text": "x" * 10_000})
        before = len(link._unsent)
        link.send({"beat": 1}, droppable=True)
        assert len(link._unsent) == before, "heartbeats are dropped"
        link.send({"verdict": 1})
        assert time.monotonic() - start < SECONDS
        received = b""
        while link._unsent:
            received += theirs.recv(1 << 16)
            link.flush()
        theirs.setblocking(False)
        while not received.endswith(b"\n") or b"verdict" not in received:
            received += theirs.recv(1 << 16)
        assert json.loads(received.splitlines()[-1]) == {"verdict": 1}


@pytest.mark.skipif(not identify_process(), reason="needs /proc")
def test_only_the_process_itself_is_described_and_killed() -> None:
    code = (
        "import json, weft.runtime.processes.fence as f; print(json.dumps(f.identify_process()), flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        identity = json.loads(child.stdout.readline())
        own = identify_process()
        child.send_signal(signal.SIGSTOP)
        wait_for(lambda: Fence([own, identity], 0).describe_state(1))
        assert "SIGSTOP" in Fence([own, identity], 0).describe_state(1)
        later, elsewhere = [*identity[:3], "1"], ["another boot", *identity[1:]]
        for other in (later, elsewhere, []):
            assert not Fence([own, other], 0).kill(1) and Fence([own, other], 0).describe_state(1) == ""
        assert child.poll() is None and not Fence([own, identity], 1).kill(1), "a process does not kill itself"
        assert Fence([own, identity], 0).kill(1)
        assert child.wait(SECONDS) == -signal.SIGKILL
