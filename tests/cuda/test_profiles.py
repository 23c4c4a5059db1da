"""Times of steps on a GPU that is simulated: profiles and traces of programs there."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from weft import lax
from weft.profiler import ProfileData
from weft.runtime.cuda import disassemble, timing
from weft.sharding.device import Device


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpu(monkeypatch) as found:
        yield found


def program(x: Any) -> Any:
    total = wnp.sum(wnp.tanh(x))
    rows = lax.while_loop(lambda c: wnp.sum(c) < 100, lambda c: c * 2 + 1, x)
    return total, wnp.sort(rows.reshape(-1))[::-1]


def called(x: Any) -> Any:
    """A loop whose iterations the host decides."""

    def body(c: Any) -> Any:
        return weft.pure_callback(lambda v: np.asarray(v) * 2 + 1, weft.ShapeDtypeStruct((4,), np.float32), c)

    return lax.while_loop(lambda c: wnp.sum(c) < 1000, body, x)


def test_profiles_have_the_steps_of_programs(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    f = weft.jit(program)
    expected = [np.asarray(a) for a in f(x)]
    for calls in (1, 4):  # the general way, and the dispatcher
        before = driver.calls.count("start")
        with weft.profile(quiet=True) as profile:
            for _ in range(calls):
                found = f(x)
        assert driver.calls.count("start") == before + calls  # graphs with events between their steps
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
        assert profile.kernels and all(k.runs % calls == 0 and k.seconds > 0 for k in profile.kernels)
        assert any("while" in k.name for k in profile.kernels)  # one kernel, and so one step
        assert any(k.line.file == __file__ for k in profile.kernels)
        assert 0 < profile.phases["kernels"] <= profile.seconds
    waits = driver.calls.count("wait")
    f(x)
    assert driver.calls.count("wait") == waits  # nothing waits without a profile


def test_donated_arguments_and_eager_operations(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    update = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = weft.device_put(np.zeros(8, np.float32), device)
    with weft.profile(quiet=True) as profile:
        for _ in range(5):
            x = update(x)
        y = wnp.exp(x)
    np.testing.assert_array_equal(np.asarray(x), np.full(8, 31, np.float32))
    assert y.device is device and sum(k.runs for k in profile.kernels) == 6


def test_steps_of_loops_that_the_host_decides(
    gpu: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are started one by one, and their events are read before there are too many."""
    monkeypatch.setattr(timing, "MOST_PENDING", 3)
    device, _ = gpu
    x = weft.device_put(np.zeros(4, np.float32), device)
    f = weft.jit(called)
    with weft.profile(quiet=True) as profile:
        result = f(x)
    assert np.asarray(result)[0] == 255
    assert 8 in {k.runs for k in profile.kernels}
    seconds = sum(k.seconds for k in profile.kernels)
    assert 0 < seconds <= profile.seconds


def test_traces_have_the_events_of_steps(gpu: tuple[Device, SimulatedDriver], tmp_path: pathlib.Path) -> None:
    device, _ = gpu
    x = weft.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    f = weft.jit(program)
    f(x)
    with weft.profiler.trace(tmp_path):
        f(x)
    (path,) = tmp_path.rglob("*.json.gz")
    lines = {line.name: list(line.events) for plane in ProfileData.from_file(path).planes for line in plane.lines}
    (run,) = [e for events in lines.values() for e in events if e.category == "run"]
    kernels = lines["GPU 0: simulated"]  # a line of its own
    assert {e.category for e in kernels} == {"kernel"}
    assert len(kernels) >= 3
    for event in kernels:
        assert run.start_ns <= event.start_ns <= event.end_ns <= run.end_ns


def test_explanations_have_code_and_figures(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    explained = weft.explain(weft.jit(program, donate_argnums=0), write=False)(weft.device_put(x, device))
    data = explained.data
    assert data["runs"] > 1 and data["seconds"] > 0 and data["median"] > 0
    loop = next(step for step in data["steps"] if step["kind"] == "while")
    inner = [step for step in data["steps"] if step["kind"] == "launch" and not step["count"]]
    assert loop["count"] == 1 and loop["seconds"] > 0 and inner  # what is in it has no time of its own
    kernels = {kernel["id"]: kernel for kernel in data["kernels"]}
    for kernel in kernels.values():
        assert f"@{kernel['name']}(" in kernel["llvm"] and f".entry {kernel['name']}(" in kernel["assembly"]
        assert bool(kernel["figures"]) == bool(kernel["count"])
    assert kernels[loop["kernel"]]["figures"]["registers"] == 32
    assert data["limits"]["call_flops"] > data["limits"]["flops"] and data["limits"]["threads"] == 132 * 2048
    assert data["memory"]["code"] > 0
    page = explained.html
    assert "registers 32" in page and ".entry" in page and "by its clocks" in page
    compiled = weft.jit(program).lower(weft.device_put(x, device)).compile()
    assert ".entry" in compiled.asm and compiled.llvm and compiled.kernels
    compiled.verify()
    assert compiled.memory_analysis().generated_code_size_in_bytes > 0 and compiled.cost_analysis()["flops"] > 0


def test_machine_code_is_what_a_tool_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    print_size = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).stat().st_size)"
    monkeypatch.setattr(disassemble, "tool", lambda: (sys.executable, "-c", print_size))
    assert disassemble.disassemble([b"abc", b""]) == ["3\n", "0\n"]
    monkeypatch.setattr(disassemble, "tool", lambda: (sys.executable, "-c", "raise SystemExit('no such GPU')"))
    assert disassemble.disassemble([b"abc"]) == ["no such GPU\n"]
    monkeypatch.setattr(disassemble, "tool", lambda: None)
    assert disassemble.disassemble([b"abc"]) == [""]


def test_code_is_dumped(
    gpu: tuple[Device, SimulatedDriver], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = gpu
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path))
    weft.jit(lambda x: wnp.exp(x) - 1)(weft.device_put(np.zeros(3, np.float32), device))
    (assembly,), (text,) = tmp_path.rglob("*.ptx"), tmp_path.rglob("*.ll")
    assert ".entry" in assembly.read_text() and assembly.read_text().startswith("// ") and "define" in text.read_text()
