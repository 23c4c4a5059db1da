"""Programs for GPUs and their code on disk: the next process compiles nothing, and never uses what is damaged."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from tests.cuda.stand_ins.cudnn import Cudnn
from weft import lax
from weft.base import settings
from weft.base.errors import JaxRuntimeError
from weft.compiler import compile as compiler
from weft.runtime.cuda import code, prepared
from weft.runtime.cuda.libraries import plans
from weft.runtime.cuda.libraries.cudnn import CudnnError, Graph


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "cache"
    with settings.compilation_cache_dir(str(path)):
        yield path


def program(x: Any, w: Any) -> Any:
    """Kernels, a matmul by a library, a loop that is one kernel, and constants."""
    y = wnp.tanh(x @ w) + np.arange(32, dtype=np.float32)
    return lax.while_loop(lambda c: wnp.sum(c) < 100, lambda c: c * 2 + 1, wnp.abs(wnp.sum(y, 0)))


X = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)


def process(monkeypatch: pytest.MonkeyPatch, change: Callable[[SimulatedDriver], None] = lambda driver: None) -> Any:
    """What a process computes that begins with nothing in memory, and its driver."""
    with simulated_gpu(monkeypatch) as (device, driver):
        driver.with_libraries("cublasLt")
        change(driver)
        function = weft.jit(lambda x, w: program(x, w))
        there = [weft.device_put(a, device) for a in (X, X)]
        return np.asarray(function(*there)), driver


def test_a_second_process_compiles_nothing(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, first = process(monkeypatch)
    assert any(call.startswith("compile") for call in first.calls)
    kinds = {path.suffix for path in folder.iterdir()}
    assert {".p", code.CODE, prepared.LOOPS} <= kinds

    def refuse(*arguments: Any, **more: Any) -> None:
        raise AssertionError("compiled")

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_program", refuse)
        found, second = process(monkeypatch)
    np.testing.assert_array_equal(found, expected)
    assert not any(call.startswith("compile") for call in second.calls)
    assert second.calls.count("load") == first.calls.count("load") and "loop" in second.calls


def damage(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("suffix", [code.CODE, prepared.LOOPS, ".p"])
@pytest.mark.parametrize("harm", [damage, pathlib.Path.unlink])
def test_what_is_damaged_or_missing_is_compiled_again(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, suffix: str, harm: Callable[[pathlib.Path], None]
) -> None:
    expected, _ = process(monkeypatch)
    before = {path.name for path in folder.iterdir()}
    for path in sorted(folder.glob(f"*{suffix}"))[:2]:
        harm(path)
    found, _ = process(monkeypatch)
    np.testing.assert_array_equal(found, expected)
    assert {path.name for path in folder.iterdir()} == before
    _, third = process(monkeypatch)
    assert not any(call.startswith("compile") for call in third.calls)


def test_code_of_another_driver_is_not_used(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(monkeypatch)
    count = len(list(folder.glob(f"*{code.CODE}")))
    process(monkeypatch, lambda driver: setattr(driver, "code_version", "another"))
    assert len(list(folder.glob(f"*{code.CODE}"))) == 2 * count


def test_code_that_the_driver_refuses_is_compiled_again(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = process(monkeypatch)

    def refusing(driver: SimulatedDriver) -> None:
        load = driver.load

        def accepts_new(name: str, code: Any) -> Any:
            if not any(call.startswith("compile") for call in driver.calls):
                raise JaxRuntimeError("The driver of the GPU reports an error.")
            return load(name, code)

        monkeypatch.setattr(driver, "load", accepts_new)

    found, driver = process(monkeypatch, refusing)
    np.testing.assert_array_equal(found, expected)
    assert any(call.startswith("compile") for call in driver.calls)


def test_programs_from_disk_can_be_looked_at(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles ask for lines, and then the program is compiled after all; its code is not."""
    process(monkeypatch)
    with simulated_gpu(monkeypatch) as (device, driver):
        driver.with_libraries("cublasLt")
        function = weft.jit(lambda x, w: program(x, w))
        there = [weft.device_put(a, device) for a in (X, X)]
        expected = np.asarray(function(*there))
        with weft.profile(quiet=True) as profile:
            np.testing.assert_array_equal(np.asarray(function(*there)), expected)
        assert any(k.line.file == __file__ for k in profile.kernels) and {"while"} <= {k.name for k in profile.kernels}
        for _ in range(4):  # by dispatcher and graph, as before
            np.testing.assert_array_equal(np.asarray(function(*there)), expected)
        assert not any(call.startswith("compile") for call in driver.calls)


def test_the_cost_of_compiling_counts_code(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with settings.log_compiles(True):
        process(monkeypatch)
        process(monkeypatch)
    first, second = [r.message for r in caplog.records if "Finished compiling" in r.message and "kernels" in r.message]
    assert "0 from disk" in first and " 0 kernels compiled" in second


def attention_of(q: Any) -> Any:
    return weft.nn.dot_product_attention(q, q, q, is_causal=True)


def convolution_of(x: Any) -> Any:
    """With a bias: the stand-in has engines for the whole call."""
    kernel = wnp.ones((3, 3, 64, 32), x.dtype)
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout) + wnp.arange(32.0)


PLANNED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "attention": (attention_of, np.float16),
    "convolution": (convolution_of, np.float32),
}


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("name", PLANNED)
def test_plans_are_stored(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, separate: bool) -> None:
    """A plan of cuDNN is made once, and again if the library does not accept it; also where a convolution and what
    follows it have a plan each."""
    function, dtype = PLANNED[name]
    plan_collective = Graph.plans

    def refused(graph: Graph, *arguments: Any, **more: Any) -> Any:
        if separate and len(graph.operations) == 2:
            raise CudnnError("there is no engine")
        return plan_collective(graph, *arguments, **more)

    monkeypatch.setattr(Graph, "plans", refused)
    x = np.random.default_rng(1).normal(size=(1, 64, 2, 64)).astype(dtype)

    def run() -> tuple[np.ndarray, int]:
        with simulated_gpu(monkeypatch) as (device, driver):
            library = driver.with_libraries("cublasLt", "cudnn")["cudnn"]
            monkeypatch.setattr(driver.libraries, "gpu", "simulated")
            found = weft.jit(function)(weft.device_put(x, device))
            assert library.calls
            return np.asarray(found), library.asked

    expected, asked = run()
    count = 2 if separate and name == "convolution" else 1
    assert asked and len(list(folder.glob(f"*{plans.SUFFIX}"))) == count
    for known in (True, False):
        if not known:
            Cudnn.plans.clear()
        found, asked = run()
        assert bool(asked) != known
        np.testing.assert_array_equal(found, expected)
