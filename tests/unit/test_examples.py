"""Every example runs, also in its short mode, and asserts that training worked."""

from __future__ import annotations

import importlib
import importlib.util
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
# Several models each, or large ones: their programs take seconds to compile.
LARGE = {
    f"keras_{name}" for name in ("distribution", "functional", "gan", "resume", "seq2seq", "text", "transfer", "vae")
} | {f"models_{name}" for name in ("chat", "images", "lora", "speech")}
# The line of each that says how well it went.
OUTCOME = re.compile(r"^final\b.*\d", re.MULTILINE)


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of the examples, which import each other as scripts do."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in SCRIPTS])
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
    assert "pip install 'weft-jit[examples]'" in capsys.readouterr().out


def test_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    picture = loaded("picture", monkeypatch)
    if importlib.util.find_spec("matplotlib") is None:
        assert picture.save("none", picture.Panel("a")) is None
        return
    monkeypatch.setattr(picture, "OUT", tmp_path / "out")
    panel = picture.Panel("a < b & c", (0, 2), (-1, 1), across="time", up="value")
    panel.line([0, 2], [-1, 1], label="line").band([0, 2], [0, 0], [1, 1]).dots([1], [0]).level(0.5).image(np.eye(3))
    path = picture.save("two", panel, panel)
    assert xml.etree.ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_titles_and_axes_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the panels that examples draw: no text is cut off, and no title is wider than its panel."""
    pytest.importorskip("matplotlib")
    picture = loaded("picture", monkeypatch)
    long = "a title of more words than fit in one line of a panel of this size, so that it needs more than one"
    panels = [picture.Panel(long, across="an axis with a long name", up="another").line([0, 1e6], [1e-5, 1e5])] * 4
    whole = picture.figure(*panels)
    whole.draw_without_rendering()
    frame = whole.bbox
    for axes in whole.axes[: len(panels)]:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            box = text.get_window_extent()
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 and frame.y0 <= box.y0 and box.y1 <= frame.y1 + 1
        assert axes.title.get_window_extent().width <= frame.width / 3


def test_grid_arranges_images_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.arange(6.0)[:, None, None] * np.ones((6, 2, 3))
    whole = loaded("picture", monkeypatch).grid(images, 3)
    assert whole.shape == (2 * 3, 3 * 4)
    np.testing.assert_array_equal(whole[::3, ::4], [[0, 1, 2], [3, 4, 5]])
