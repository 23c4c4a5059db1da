"""The default device: an accelerator that is present, unless a setting chooses another; found at the first use."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.unit.toys import ToyPlatform, register_toy
from weft.base.state import Config
from weft.runtime import device as device_module


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let an accelerator be present in a process that has chosen nothing."""
    register_toy(monkeypatch, may_be_present=lambda: True)
    monkeypatch.setattr(device_module, "accelerators", {"toy": lambda: True})
    monkeypatch.setattr(Config, "num_cpu_devices", 1)
    yield
    weft.config.update("platforms", "")
    weft.config.update("default_device", None)


@pytest.mark.usefixtures("toy")
def test_an_accelerator_is_the_default(caplog: pytest.LogCaptureFixture) -> None:
    device_module.look_for_accelerators()
    with caplog.at_level(logging.INFO, "weft"):
        assert [d.platform for d in weft.devices()] == ["toy"] == [d.platform for d in weft.local_devices()]
        weft.devices()
    assert [r.message.split(" by default")[0] for r in caplog.records] == ["Computing on ToyDevice(id=0) (a toy)"]
    assert weft.default_backend() == "toy" and weft.devices("cpu")[0].platform == "cpu"
    x = wnp.arange(4.0)
    results = [x, np.ones(4, np.float32) + x, weft.jit(wnp.sin)(np.ones(4, np.float32)), weft.grad(wnp.sum)(x)]
    results += [weft.random.normal(weft.random.key(0), (3,)), weft.vmap(wnp.cos)(x), wnp.asarray([1, 2])]
    assert {d.platform for r in results for d in r.devices()} == {"toy"}
    on_cpu = weft.device_put(x, weft.devices("cpu")[0])
    assert on_cpu.device.platform == (on_cpu + 1).device.platform == "cpu"
    with weft.default_device(weft.devices("cpu")[0]):
        assert wnp.ones(3).device.platform == "cpu"


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("platforms", "expected"),
    [("cpu", "cpu"), ("cpu,toy", "cpu"), ("toy,cpu", "toy"), ("plaything", "toy"), ("", "toy")],
)
def test_the_setting_platforms_chooses(platforms: str, expected: str) -> None:
    weft.config.update("jax_platforms", platforms)
    device_module.look_for_accelerators()
    assert weft.default_backend() == weft.devices()[0].platform == wnp.ones(2).device.platform == expected


@pytest.mark.usefixtures("toy")
def test_choices_of_the_user_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    weft.config.update("default_device", "cpu")
    device_module.look_for_accelerators()
    assert weft.devices()[0].platform == "cpu"
    weft.config.update("default_device", None)
    monkeypatch.setattr(Config, "num_cpu_devices", 4)
    device_module.look_for_accelerators()
    assert weft.default_backend() == "cpu"


@pytest.mark.usefixtures("toy")
def test_a_driver_without_devices_leaves_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyPlatform, "devices", lambda self: ())
    device_module.look_for_accelerators()
    assert weft.default_backend() == "cpu" and wnp.ones(2).device.platform == "cpu"
    weft.config.update("platforms", "toy")
    with pytest.raises(RuntimeError, match=r"platforms='toy' has devices here\. There are no toys"):
        weft.devices()


def _environment(**variables: str) -> dict[str, str]:
    unset = ("WEFT_NUM_CPU_DEVICES", "WEFT_PLATFORMS", "WEFT_DEFAULT_DEVICE", "CUDA_VISIBLE_DEVICES")
    return {**{k: v for k, v in os.environ.items() if k not in unset}, **variables}


@pytest.mark.parametrize("variables", [{"WEFT_PLATFORMS": "cpu"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_processes_without_accelerators_load_no_driver(variables: dict[str, Any]) -> None:
    program = (
        "import sys, weft; weft.numpy.ones(3) + 1; assert weft.default_backend() == 'cpu'; "
        "assert 'weft.runtime.cuda.driver' not in sys.modules and 'ctypes.util' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=_environment(**variables), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
