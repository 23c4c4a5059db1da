"""The page of examples/web_digits: in a browser it computes what the network does, recognizes drawings, and learns."""

from __future__ import annotations

import html
import importlib.util
import json
import pathlib
import re
import sys
from types import ModuleType

import numpy as np
import pytest

import weft
from tests.browser import dump_page, find_browser

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "web_digits"
pytest.importorskip("ziglang")
pytest.importorskip("sklearn")

SCRIPT = """
<script type="module">
const images = IMAGES, expected = EXPECTED;
const canvas = document.getElementById("drawing");
const send = (type, [x, y]) => {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent(type, {clientX: box.left + x, clientY: box.top + y, pointerId: 1}));
};
const draw = (points) => {
  send("pointerdown", points[0]);
  for (const point of points.slice(1)) send("pointermove", point);
  send("pointerup", points[points.length - 1]);
};
const run = async () => {
  while (!globalThis.page) await new Promise((resolve) => setTimeout(resolve, 10));
  const result = {};
  result.error = Math.max(...images.map((image, i) => {
    const found = page.recognize(new Float32Array(image));
    return Math.max(...expected[i].map((p, digit) => Math.abs(p - found[digit])));
  }));
  draw([[144, 40], [144, 240]]);
  result.line = page.show().best;
  result.shown = document.querySelector(".best span").textContent;
  document.getElementById("clear").click();
  result.cleared = document.querySelector(".best") === null;
  const turns = Array.from({length: 41}, (_, i) => i * Math.PI / 20);
  draw(turns.map((t) => [144 + 60 * Math.sin(t), 140 - 90 * Math.cos(t)]));
  result.circle = page.show().best;
  document.getElementById("clear").click();
  draw([[60, 60], [220, 60], [60, 220], [220, 220], [60, 60]]);  // no digit at all
  const before = page.show().found[4];
  for (let i = 0; i < 4; i++) document.querySelectorAll("#teach button")[4].click();
  result.taught = page.show().best;
  result.rose = page.show().found[4] > before;
  document.getElementById("clear").click();
  draw([[144, 40], [144, 240]]);
  result.after = page.show().best;
  result.status = document.getElementById("status").textContent;
  document.body.dataset.result = JSON.stringify(result);
};
run().catch((error) => { document.body.dataset.result = JSON.stringify({failed: String(error)}); });
</script></body>"""


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """Import the script that builds the page."""
    spec = importlib.util.spec_from_file_location("web_digits_build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.mark.skipif(find_browser() is None, reason="there is no Chromium")
def test_the_page_recognizes_and_learns(build: ModuleType, tmp_path: pathlib.Path) -> None:
    x, y, test_x, _ = build.digits.load()
    params = build.train(x, y, 8)
    images = np.asarray(test_x)[:20]
    expected = [np.asarray(weft.jit(build.predict)(params, image[None])).tolist() for image in images]
    page = build.write_page(params, x, y)
    assert len(page) < build.PAGE_LIMIT and "http" not in page
    script = SCRIPT.replace("IMAGES", json.dumps(images.reshape(20, -1).tolist())).replace(
        "EXPECTED", json.dumps(expected)
    )
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", script), encoding="utf-8")
    document = dump_page(path, tmp_path / "user", "--virtual-time-budget=60000")
    told = re.search(r'data-result="([^"]*)"', document)
    assert told is not None, document[-3000:]
    result = json.loads(html.unescape(told[1]))
    assert result.pop("error") < 1e-5
    assert result.pop("status").startswith("Learned from 4 drawings; loss ")
    assert result == {
        "line": 1, "shown": "1", "cleared": True, "circle": 0, "taught": 4, "rose": True, "after": 1,
    }  # fmt: skip
