"""Python's collector of cycles rests while programs are compiled, and is afterwards as it was."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

import weft
import weft.numpy as wnp
from weft.base import collector


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_rests_until_the_last_is_done() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector.paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with collector.paused():
        assert not gc.isenabled()
        with collector.paused():
            pass
        assert not gc.isenabled()
        thread.start()
        inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with collector.paused():
        pass
    weft.jit(lambda x: wnp.sin(x) * 3)(wnp.ones(7))
    assert not gc.isenabled()


def test_an_error_of_a_traced_function_leaves_it_on() -> None:
    def f(x):
        assert not gc.isenabled()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        weft.jit(f)(1.0)
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_its_own() -> None:
    with collector.paused():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert not gc.isenabled()
