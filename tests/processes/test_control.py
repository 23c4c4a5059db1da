"""Control thread by itself, with another process that is only a socket."""

from __future__ import annotations

import io
import json
import socket
import threading
import time

import pytest

from weft.runtime.processes.control import Control


class WithoutReader(io.TextIOBase):
    """Pipe whose reader is gone."""

    def __init__(self) -> None:
        self.tried = threading.Event()

    def write(self, text: str) -> int:
        self.tried.set()
        raise BrokenPipeError


def test_the_thread_goes_on_when_nobody_reads_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of a launcher that has been killed have no reader. It is this thread that looks for the launcher, and
    it may hear first that another process has ended, and say so."""
    listener, address = Control.listen("127.0.0.1")
    control = Control(0, ["here", "there"], 60.0, listener)
    host, port, token = json.loads(address)
    said, goes_on, written = WithoutReader(), threading.Event(), control.page.to_json

    def heartbeat() -> object:
        if said.tried.is_set():
            goes_on.set()
        return written()

    with socket.create_connection((host, port)) as other:
        other.sendall(f"{token} 1\n".encode())
        control.start(address, time.monotonic() + 60)
        monkeypatch.setattr(control.page, "to_json", heartbeat)
        monkeypatch.setattr("sys.stderr", said)
    try:
        assert said.tried.wait(60) and goes_on.wait(20)
    finally:
        control.stop()
    assert control.verdict is not None and "there) has died" in control.verdict.text
