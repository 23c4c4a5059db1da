"""On a real GPU (`make test-gpu`): times of steps, figures of kernels, and code from disk."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.profiler import ProfileData
from weft.runtime.cuda import disassemble, driver

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def needs_a_gpu() -> None:
    """The driver is loaded when these tests run, not when tests are collected."""
    if not driver.count():
        pytest.skip("there is no GPU")


def layers(x: Any, w: Any) -> Any:
    """Matmuls, reductions, and a loop that is one kernel."""
    y = weft.nn.softmax(wnp.tanh(x @ w) @ w)
    return lax.while_loop(lambda c: wnp.sum(c) < 1e6, lambda c: c * 2 + 1, wnp.sum(y, 0))


X = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)


def test_steps_have_times(tmp_path: pathlib.Path) -> None:
    gpu = weft.devices("gpu")[0]
    x = weft.device_put(X, gpu)
    f = weft.jit(layers)
    expected = np.asarray(f(x, x))
    with weft.profiler.trace(tmp_path), weft.profile(quiet=True) as profile:
        for _ in range(4):
            found = f(x, x)
    np.testing.assert_array_equal(np.asarray(found), expected)
    by_name = {k.name: k for k in profile.kernels}
    assert by_name["while"].runs == 4
    for kernel in profile.kernels:
        assert 1e-7 < kernel.seconds / kernel.runs < 1e-2, kernel
    (path,) = tmp_path.rglob("*.json.gz")
    lines = {line.name: list(line.events) for plane in ProfileData.from_file(path).planes for line in plane.lines}
    (events,) = [events for name, events in lines.items() if name.startswith("GPU")]
    assert all(a.end_ns <= b.start_ns + 1000 for a, b in itertools.pairwise(events))


def test_explanations_have_figures() -> None:
    x = weft.device_put(X, weft.devices("gpu")[0])
    data = weft.explain(weft.jit(layers, donate_argnums=0), write=False)(x, x).data
    assert data["limits"]["call_flops"] > data["limits"]["flops"] > 1e12 and data["limits"]["bandwidths"][0][1] > 1e11
    kernels = [kernel for kernel in data["kernels"] if kernel["count"]]
    assert kernels
    for kernel in kernels:
        figures = kernel["figures"]
        assert 0 < figures["registers"] <= 255 and figures["local_bytes"] == 0 and 0 < figures["occupancy"] <= 1
        assert figures["blocks"] >= 1 and figures["threads"] >= 32
        assert 0 <= kernel["share"] < 3  # of a loop nobody knows the work
        if disassemble.tool() is not None:
            assert "EXIT" in kernel["machine_code"]


PROCESS = """
import logging, sys
import numpy as np
import weft
from tests.cuda.test_gpu_inside import X, layers
logging.basicConfig(stream=sys.stdout, format="%(message)s")
weft.config.update("log_compiles", True)
x = weft.device_put(X[:, :512] @ X[:512], weft.devices("gpu")[0])
print(np.asarray(weft.jit(layers)(x, x)).tobytes().hex()[:400])
"""


def test_a_second_process_compiles_nothing(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "programs"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROCESS]
    first, second = (
        subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=120)
        for _ in range(2)
    )
    assert not first.returncode and not second.returncode, (first.stderr[-2000:], second.stderr[-2000:])
    assert first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1]
    assert " 0 from disk" in first.stdout and " 0 kernels compiled" in second.stdout, second.stdout
