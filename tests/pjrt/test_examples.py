"""The examples and the tour run on a plugin's device: one line, or one variable, chooses it."""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import Any

import pytest

import weft
from weft import errors
from weft.sharding.device import Device

ROOT = pathlib.Path(__file__).resolve().parents[2]
# One of each library; all others in the slow tests. Excluded are two that differentiate loops without a bound, and one
# that compares with processes, whose default device is another.
QUICK = ("linear_regression", "digits_mlp", "haiku_state", "rnn")
REFUSED = {"neural_ode", "tour", "keras_resume"}
PARTS = {"iris", "digits", "picture"}
SCRIPTS = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem not in REFUSED | PARTS)
OUTCOME = re.compile(r"^final\b.*\d", re.MULTILINE)
# Three blocks of the tour show what Weft's own compilers have.
ELSEWHERE = ("Times of steps", "reverse mode through a loop without a bound", "`reproducible` must not have more parts")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SCRIPTS])
def test_learns(name: str, device: Device, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(importlib.import_module("picture"), "OUT", tmp_path)
    with weft.default_device(device):
        importlib.import_module(name).main(short=True)
    assert OUTCOME.search(capsys.readouterr().out), f"{name} does not say what it reached"


def test_the_tour(device: Device) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tour" / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    refused = []
    with weft.default_device(device):
        for i, block in enumerate(blocks):
            try:
                exec(compile(block, f"block {i}", "exec"), names)
            except errors.NotSupportedError as error:
                refused.append(str(error))
    assert len(blocks) > 25 and len(refused) == len(ELSEWHERE)
    assert all(any(text in message for message in refused) for text in ELSEWHERE)
