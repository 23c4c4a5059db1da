"""Every example runs, also in its short mode, and asserts that training worked."""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# Data and drawing, which the scripts share.
PARTS = {"iris", "digits", "picture"}
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in PARTS)
# The line of each that says how well it went.
OUTCOME = re.compile(r"^final\b.*\d", re.MULTILINE)


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the examples, which import each other as scripts do."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_learns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path) -> None:
    example = loaded(name, monkeypatch)
    monkeypatch.setattr(loaded("picture", monkeypatch), "OUT", tmp_path)
    example.main(short=True)
    assert OUTCOME.search(capsys.readouterr().out), f"{name} does not say what it reached"


@pytest.mark.parametrize("name", SCRIPTS)
def test_has_a_docstring(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.startswith('"""') and len(text.splitlines()) <= 140
    assert "/tmp" not in text and "http" not in text


def test_runs_as_a_script() -> None:
    command = [sys.executable, str(EXAMPLES / "linear_regression.py"), "--short"]
    environment = dict(os.environ, PYTHONPATH=str(EXAMPLES.parent))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "final loss 0.01" in done.stdout


def test_without_the_digits_a_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    digits = loaded("digits", monkeypatch)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    digits.run(loaded("digits_mlp", monkeypatch).main, short=True)
    assert "pip install 'weft[examples]'" in capsys.readouterr().out


def test_pictures_are_well_formed(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    picture = loaded("picture", monkeypatch)
    monkeypatch.setattr(picture, "OUT", tmp_path / "out")
    panel = picture.Panel("a < b & c", (0, 2), (-1, 1))
    panel.line([0, 2], [-1, 1]).band([0, 2], [0, 0], [1, 1]).dots([1], [0]).image(np.eye(3))
    root = xml.etree.ElementTree.parse(picture.save("two", panel, panel)).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert [title.text for title in root.iter(f"{space}text")] == ["a < b & c"] * 2
    first = next(root.iter(f"{space}polyline"))
    assert first.get("points") == f"0.0,{picture.SIZE:.1f} {picture.SIZE:.1f},0.0"  # up is up
    assert len(list(root.iter(f"{space}image"))) == len(list(root.iter(f"{space}circle"))) == 2


def test_png_holds_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    import struct
    import zlib

    picture = loaded("picture", monkeypatch)
    data = picture.png(np.array([[0.0, 1.0, 0.5], [1.0, 2.0, -1.0]]))
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    length = struct.unpack(">I", data[33:37])[0]
    pixels = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(2, 4)
    np.testing.assert_array_equal(pixels[:, 1:], [[0, 255, 128], [255, 255, 0]])
    assert not pixels[:, 0].any()


def test_grid_arranges_images_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.arange(6.0)[:, None, None] * np.ones((6, 2, 3))
    whole = loaded("picture", monkeypatch).grid(images, 3)
    assert whole.shape == (2 * 3, 3 * 4)
    np.testing.assert_array_equal(whole[::3, ::4], [[0, 1, 2], [3, 4, 5]])
