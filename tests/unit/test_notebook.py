"""`_repr_html_`: what notebooks show."""

from __future__ import annotations

import html.parser

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P


class Checker(html.parser.HTMLParser):
    """Collects text and tables, and fails where an element is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            return
        self.opened.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.opened:
            self.rows[-1][-1] += data


def shown(value: object) -> Checker:
    checker = Checker()
    checker.feed(value._repr_html_())  # type: ignore[attr-defined]
    assert not checker.opened
    return checker


def test_arrays() -> None:
    assert shown(wnp.array([[1, 2], [3, 4]])).rows == [["1", "2"], ["3", "4"]]
    assert "f32[]" in shown(wnp.float32(2.5)).text and shown(wnp.float32(2.5)).rows == [["2.5"]]
    long = shown(wnp.arange(100))
    assert long.rows == [["0", "1", "2", "3", "4", "…", "95", "96", "97", "98", "99"]]
    tall = shown(wnp.ones((30, 2), wnp.bfloat16))
    assert len(tall.rows) == 11 and tall.rows[5] == ["…", "…"] and tall.rows[0] == ["1", "1"]
    assert "f32[3,4,5]" in shown(wnp.zeros((3, 4, 5))).text and "key" in shown(weft.random.key(0)).text
    assert "f32[0,3]" in shown(wnp.zeros((0, 3))).text
    assert shown(wnp.array([1 + 2j])).rows == [["(1+2j)"]]


def test_deleted_arrays() -> None:
    x = wnp.ones(3)
    x.delete()
    assert "deleted" in shown(x).text


def test_tracers_have_none() -> None:
    found = []
    weft.jit(lambda x: found.append(hasattr(x, "_repr_html_")) or x)(1.0)  # type: ignore[func-returns-value]
    assert found == [False]


def test_meshes_and_shardings() -> None:
    mesh = Mesh(np.array(weft.devices()[:1]).reshape(1, 1), ("data", "<b>"))
    found = shown(mesh)
    assert "data: 1" in found.text and "<b>: 1" in found.text and found.rows == [["cpu 0"]]
    assert "<b>" not in mesh._repr_html_()  # type: ignore[attr-defined]
    assert "x: 2 (Auto), y: 4 (Auto)" in shown(AbstractMesh((2, 4), ("x", "y"))).text
    assert "P('data',)" in shown(NamedSharding(mesh, P("data"))).text
    x = weft.device_put(wnp.arange(4.0), NamedSharding(mesh, P("data")))
    assert "split as P('data',)" in shown(x).text and shown(x).rows[-1] == ["CPU 0"]
    assert "device=" in shown(weft.sharding.SingleDeviceSharding(weft.devices()[0])).text
    three = Mesh(np.array(weft.devices()[:1]).reshape(1, 1, 1), ("a", "b", "c"), (AxisType.Auto,) * 3)
    assert "a=0" in shown(three).text


def test_jaxprs_and_stages() -> None:
    def f(x: weft.Array) -> weft.Array:
        return wnp.where(x > 0, x, 0).sum()

    found = shown(weft.make_jaxpr(f)(wnp.ones(3)))
    assert "(f32[3]) → (f32[])" in found.text and "gt a 0.0:f32[]" in found.text
    lowered = weft.jit(f).lower(wnp.ones(3))
    assert "f32[3]" in shown(lowered).text
    compiled = shown(lowered.compile())
    assert "compiled f" in compiled.text and ["arguments", "12 B"] in compiled.rows and "fusions" in compiled.text


def test_explanations_are_frames() -> None:
    explanation = weft.explain(lambda x: x < 1.0, write=False)(wnp.ones(3))
    assert shown(explanation).text == "" and explanation._repr_html_().startswith("<iframe srcdoc=")


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"&'])
def test_text_is_escaped(text: str) -> None:
    from weft.api.notebook import details, table

    for found in (table([[text]]), details(text, text)):
        checker = Checker()
        checker.feed(found)
        assert text in checker.text and "script" not in [*checker.opened]
