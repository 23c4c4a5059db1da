"""Profiles: all time is attributed to the right lines and kernels, in tables and in traces."""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.base import spans
from weft.base.settings import config
from weft.ir.context import EVALUATION
from weft.profiler.recorder import Recorder
from weft.profiler.report import Profile


def loss(w: Any, x: Any) -> Any:
    hidden = wnp.tanh(x @ w)
    return (hidden * hidden).sum()


W, X = wnp.ones((16, 16)), wnp.ones((32, 16))


def line_of(text: str) -> int:
    """Return the number of the line of this file that ends with a mark."""
    lines = pathlib.Path(__file__).read_text().splitlines()
    (lineno,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return lineno


def seconds_of(profile: Profile, lineno: int) -> float:
    return sum(e.seconds for e in profile.lines if e.line.file == __file__ and e.line.number == lineno)


def spin(seconds: float) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        count += 1  # spinning
    return count


# -- tables ------------------------------------------------------------------------------------------------------------


def test_nearly_all_time_has_a_line() -> None:
    step = weft.jit(weft.grad(loss))
    with weft.profile(quiet=True) as profile:
        w = W
        for _ in range(30):
            w = w - 0.1 * step(w, X)
        spin(0.02)
        time.sleep(0.02)
        np.asarray(w).sum()
    assert profile.attributed >= 0.95
    # Nothing is counted twice: lines and phases both add up to the time of the block.
    assert sum(e.seconds for e in profile.lines) == pytest.approx(profile.seconds, rel=1e-6)
    assert sum(profile.phases.values()) == pytest.approx(profile.seconds, rel=1e-6)
    assert {"kernels", "compile", "trace", "python", "call", "operation"} <= set(profile.phases)


def test_time_between_spans_goes_to_the_nearest_sample(rng: np.random.Generator) -> None:
    code = line_of.__code__
    for _ in range(100):
        begin, end = 1000, 1000 + int(rng.integers(1, 500))
        moments = sorted(rng.integers(begin - 20, end + 20, size=int(rng.integers(1, 6))).tolist())
        recorder = Recorder()
        recorder._last = begin
        recorder._samples = [(code, i, at) for i, at in enumerate(moments)]
        recorder._gap(end, None)
        recorded = {key.offset: taken for key, (taken, _) in recorder.totals.items()}
        assert sum(recorded.values()) == end - begin and min(recorded.values()) >= 0
        nearest = [min(range(len(moments)), key=lambda n: abs(moments[n] - t)) for t in range(begin, end)]
        for i in range(len(moments)):
            equal = sum(at == moments[i] for at in moments) > 1
            assert equal or abs(recorded[i] - nearest.count(i)) <= 2


@pytest.mark.timing
def test_time_goes_to_the_line_that_took_it() -> None:
    step = weft.jit(loss)
    for _ in range(10):  # on a busy machine the sampler may come too late
        with weft.profile(quiet=True) as profile:
            for _ in range(3):
                step(W, X)
            time.sleep(0.1)  # sleeping
            spin(0.1)
        sleeping = seconds_of(profile, line_of("sleeping"))
        spinning = seconds_of(profile, line_of("spinning")) + seconds_of(profile, line_of("spinning") - 1)
        if 0.07 <= sleeping <= profile.seconds - 0.05 and spinning >= 0.05:
            return
    raise AssertionError(f"sleeping {sleeping} s, spinning {spinning} s, in all {profile.seconds} s")


@pytest.mark.timing
def test_the_time_of_kernels_goes_to_the_lines_in_them() -> None:
    @weft.jit
    def slow(x: Any) -> Any:
        few = x[:10] * 2
        many = lax.fori_loop(0, 200, lambda i, v: wnp.sin(v), x)  # many
        return few.sum() + many.sum()

    x = wnp.ones(100_000)
    slow(x)
    with weft.profile(quiet=True) as profile:
        slow(x)
    kernels = sum(e.phases.get("kernels", 0.0) for e in profile.lines)
    assert kernels == pytest.approx(sum(k.seconds for k in profile.kernels), rel=1e-6)
    (entry,) = [e for e in profile.lines if e.line.number == line_of("many")]
    assert entry.phases["kernels"] > 0.8 * kernels > 0


def test_named_scopes_have_their_time() -> None:
    @weft.jit
    @weft.grad
    def scoped(x: Any) -> Any:
        with weft.named_scope("first"):
            x = wnp.sin(x)
        with weft.named_scope("second"), weft.named_scope("part"):
            x = wnp.cumsum(x)
        return x.sum()

    x = wnp.ones(1000)
    scoped(x)
    with weft.profile(quiet=True) as profile:
        scoped(x)
    assert {"first", "second/part"} <= set(profile.scopes) and "second/part" in profile.table()
    assert sum(profile.scopes.values()) == pytest.approx(profile.phases["kernels"])


def test_kernels_are_counted() -> None:
    step = weft.jit(loss)
    executable = step.lower(W, X).compile().runtime_executable()
    with weft.profile(quiet=True) as profile:
        for _ in range(7):
            step(W, X)
    timed = executable.run_timed([np.asarray(W), np.asarray(X)])[1]
    assert sum(k.runs for k in profile.kernels) == 7 * sum(t.runs for t in timed.times)
    flops = executable.inside.cost_analysis()["flops"]
    assert sum(k.cost.flops for k in profile.kernels) == pytest.approx(7 * flops)


def test_profiling_changes_no_bits_and_ends() -> None:
    step = weft.jit(weft.grad(loss))
    want = np.asarray(step(W, X)).tobytes()
    plain = EVALUATION.evaluate
    with weft.profile(quiet=True):
        assert config.profiling
        assert all(np.asarray(step(W, X)).tobytes() == want for _ in range(4))
    assert not config.profiling and EVALUATION.evaluate is plain and not spans.active
    assert all(np.asarray(step(W, X)).tobytes() == want for _ in range(4))
    assert step._table.by_hint, "calls after a profile go the quick way again"


def test_a_block_that_raises_is_profiled_to_its_end() -> None:
    out = io.StringIO()
    with pytest.raises(ZeroDivisionError), weft.profile(file=out):
        wnp.sin(W)
        1 / 0
    assert not config.profiling and not spans.active and "test_profiler.py:" in out.getvalue()


def test_profiles_may_be_nested() -> None:
    with weft.profile(quiet=True) as outer:
        with weft.profile(quiet=True) as inner:
            wnp.sin(W)
        assert config.profiling
        wnp.sin(W)
    assert 0 < inner.seconds < outer.seconds and not config.profiling
    for profile in (inner, outer):
        assert sum(e.seconds for e in profile.lines) == pytest.approx(profile.seconds, rel=1e-6)


def test_other_threads_are_counted_apart() -> None:
    step = weft.jit(loss)
    step(W, X)
    with weft.profile(quiet=True) as profile:
        thread = threading.Thread(target=lambda: [step(W, X) for _ in range(20)])
        thread.start()
        thread.join()
    assert profile.other_threads > 0 and "kernels" not in profile.phases
    assert sum(e.seconds for e in profile.lines) == pytest.approx(profile.seconds, rel=1e-6)
    assert "Other threads" in profile.table()


def test_callbacks_are_counted_once() -> None:
    shape = weft.ShapeDtypeStruct((3,), np.float32)

    def slow(x: Any) -> Any:
        spin(0.02)
        return np.asarray(wnp.sin(x))

    f = weft.jit(lambda x: weft.pure_callback(slow, shape, x) * 2)
    x = wnp.ones(3)
    f(x)
    with weft.profile(quiet=True) as profile:
        f(x)
    assert profile.phases["kernels"] >= 0.02
    assert sum(profile.phases.values()) == pytest.approx(profile.seconds, rel=1e-6)


def test_the_table_is_complete() -> None:
    out = io.StringIO()
    step = weft.jit(lambda w, x: loss(w, x) + 1)
    with weft.profile(file=out, limit=3) as profile:
        step(W, X)
    text = out.getvalue()
    assert "% of it by line" in text and "compiling" in text and "Gflop/s" in text
    assert profile.kernels[0].name in text and profile.lines[0].position in text
    assert text.count("... and") == (len(profile.lines) > 3) + (len(profile.kernels) > 3)


# -- traces ------------------------------------------------------------------------------------------------------------


def read(folder: pathlib.Path) -> list[dict[str, Any]]:
    (path,) = folder.rglob("*.trace.json.gz")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert trace["otherData"]["dropped"] == 0
    return [e for e in trace["traceEvents"] if e["ph"] == "X"]


def test_a_trace_has_every_step_inside_of_its_run(tmp_path: pathlib.Path) -> None:
    step = weft.jit(weft.grad(loss))
    step(W, X)
    executable = step.lower(W, X).compile().runtime_executable()
    with weft.profiler.trace(tmp_path):
        for n in range(3):
            with weft.profiler.StepTraceAnnotation("train", step_num=n):
                step(W, X)
    events = read(tmp_path)
    kernels, runs = ([e for e in events if e["cat"] == c] for c in ("kernel", "run"))
    timed = executable.run_timed([np.asarray(W), np.asarray(X)])[1]
    assert len(runs) == 3 and len(kernels) == 3 * sum(t.runs for t in timed.times)
    assert [e["args"]["step_num"] for e in events if e["cat"] == "step"] == [0, 1, 2]
    assert all(e["args"]["lines"][0].startswith("test_profiler.py:") for e in kernels)
    # On one thread events are inside of each other or apart, never across; a thousandth of a microsecond is rounding.
    # Better code may be compiled meanwhile, on a thread of its own.
    threads: dict[int, list[float]] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        open_until = threads.setdefault(event["tid"], [])
        while open_until and open_until[-1] <= event["ts"] + 2e-3:
            open_until.pop()
        assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + 2e-3, event
        open_until.append(event["ts"] + event["dur"])
    assert {e["tid"] for e in (*kernels, *runs)} == {threading.get_ident()}
    inside = [any(r["ts"] <= k["ts"] + 2e-3 and k["ts"] < r["ts"] + r["dur"] for r in runs) for k in kernels]
    assert all(inside)


def test_traces_can_be_read_back(tmp_path: pathlib.Path) -> None:
    weft.profiler.start_trace(tmp_path, create_perfetto_trace=True)
    with pytest.raises(RuntimeError, match="under way already"):
        weft.profiler.start_trace(tmp_path)

    @weft.profiler.TraceAnnotation("named", size=3)
    def named() -> None:
        wnp.sin(W)

    named()
    weft.profiler.annotate_function(named, "outside")()
    path = weft.profiler.stop_trace()
    with pytest.raises(RuntimeError, match="No trace"):
        weft.profiler.stop_trace()
    assert (path.parent / "perfetto_trace.json.gz").read_bytes() == path.read_bytes()
    data = weft.profiler.ProfileData.from_file(path)
    plane = data.find_plane_with_name("weft")
    assert plane is not None
    line = next(found for found in plane.lines if found.name == threading.current_thread().name)
    events = list(line.events)
    assert [e.name for e in events if e.category == "annotation"] == ["named", "outside", "named"]
    assert [e.name for e in events if e.category == "operation"] == ["sin", "sin"]
    assert dict(next(e for e in events if e.name == "named").stats)["size"] == 3
    outside, last = (next(e for e in reversed(events) if e.name == name) for name in ("outside", "named"))
    assert outside.start_ns <= last.start_ns and last.end_ns <= outside.end_ns + 2


def test_a_server_traces_on_demand() -> None:
    server = weft.profiler.start_server(0)
    try:
        with pytest.raises(RuntimeError, match="listens"):
            weft.profiler.start_server(0)
        finished = threading.Event()

        def work() -> None:
            while not finished.is_set():
                wnp.sin(W)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            names: set[str] = set()
            while "sin" not in names:  # on a busy machine the first trace may end while the step is compiled
                with urllib.request.urlopen(f"http://localhost:{server.port}/trace?seconds=0.1") as answer:
                    trace = json.loads(gzip.decompress(answer.read()))
                names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"}
        finally:
            finished.set()
            thread.join()
    finally:
        weft.profiler.stop_server()
    with pytest.raises(RuntimeError, match="no profiler server"):
        weft.profiler.stop_server()


def test_a_server_may_be_stopped_by_its_own_method() -> None:
    weft.profiler.start_server(0).stop()
    with pytest.raises(RuntimeError, match="no profiler server"):
        weft.profiler.stop_server()
    weft.profiler.start_server(0)
    weft.profiler.stop_server()


WORKER = """
import os, time, weft
print(os.getpid(), weft.profiler.start_server(0).port, flush=True)
while True:
    with weft.profiler.TraceAnnotation("loading"):
        time.sleep(0.001)
"""


def test_another_process_is_traced_together_with_this_one(tmp_path: pathlib.Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        pid, port = map(int, worker.stdout.readline().split())
        end = weft.profiler.register_subprocess(pid, port)
        with pytest.raises(RuntimeError, match="registered already"):
            weft.profiler.register_subprocess(pid, port)
        with weft.profiler.trace(tmp_path / "both"), weft.profiler.TraceAnnotation("training"):
            time.sleep(0.1)
        weft.profiler.start_trace(tmp_path / "late")
        worker.kill()
        worker.wait()
        with pytest.warns(RuntimeWarning, match="lacks one process"):
            weft.profiler.stop_trace()
        end()
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    (path,) = (tmp_path / "both").rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (own,) = (e for e in events if e["name"] == "training")
    others = [e for e in events if e["name"] == "loading" and e["pid"] == pid]
    assert own["pid"] != pid and any(own["ts"] <= e["ts"] <= own["ts"] + own["dur"] for e in others)
    with pytest.raises(RuntimeError, match="does not answer"):
        weft.profiler.register_subprocess(pid, port)
