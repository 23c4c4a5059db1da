"""Page about a compiled function: its numbers are those of the program that ran, and related items are linked."""

from __future__ import annotations

import html.parser
import itertools
import json
import pathlib
import re
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.explain.__main__
import weft.numpy as wnp
from tests.browser import dump_page, find_browser
from weft import lax
from weft.compiler.program.ir import Launch
from weft.compiler.provenance import costs, count_bytes
from weft.explain import Explanation
from weft.runtime.cpu.limits import limits

# An element that holds nothing.
VOID = {"meta"}


def network(params: Any, x: Any, y: Any) -> Any:
    hidden = wnp.tanh(x @ params["a"])
    chances = weft.nn.softmax(hidden @ params["b"])
    return -wnp.mean(wnp.log(chances + 1e-6) * y)


def scanned(x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        c = wnp.sin(c) * 2
        return c, c.sum()

    return lax.scan(body, x, None, length=6)


def searched(x: Any) -> Any:
    far = lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, wnp.abs(x) + 1)
    return lax.cond(far[0, 0] > 3, wnp.cumsum, lambda v: v.reshape(-1), far)


def moved(x: Any) -> Any:
    return wnp.sort(x.T.reshape(-1))[::2].at[1].set(3.0), x[np.array([1, 0])]


PARAMS = {"a": wnp.ones((16, 24)) * 0.1, "b": wnp.ones((24, 5)) * 0.1}
X, Y = wnp.linspace(-1, 1, 512).reshape(32, 16), wnp.ones((32, 5))
SAMPLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gradient": (weft.grad(network), (PARAMS, X, Y)),
    "scan": (scanned, (X,)),
    "scan gradient": (weft.grad(lambda x: scanned(x)[1].sum()), (X,)),
    "control": (searched, (X,)),
    "moves": (moved, (X,)),
    "library": (lambda x: wnp.linalg.cholesky(x @ x.T + 40 * wnp.eye(32)), (X,)),
    "random": (lambda x: weft.random.normal(weft.random.key(0), x.shape) * x, (X,)),
    "one number": (lambda x: x * 2 < 1, (1.0,)),
    "nothing": (lambda x: (), (1.0,)),
    "argument": (lambda x: (x, x), (X,)),
}
# Loops whose number of iterations the cost analysis does not know.
UNKNOWN = {"control"}

_explained: dict[str, Explanation] = {}


def explained(name: str) -> Explanation:
    """Return the explanation of a sample, made once."""
    if name not in _explained:
        function, args = SAMPLES[name]
        _explained[name] = weft.explain(function, write=False)(*args)
    return _explained[name]


def compiled(name: str) -> Any:
    function, args = SAMPLES[name]
    return weft.jit(function).lower(*args).compile()


class Page(html.parser.HTMLParser):
    """Elements of a page by id, with their texts; it must be well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.items: dict[str, list[str]] = {}
        self.open: list[tuple[str, str | None]] = []
        self.scripts: dict[str | None, str] = {}
        self.links: list[str] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        attributes = dict(attrs)
        self.links += [v for k, v in attrs if k in ("src", "href")]
        if tag not in VOID:
            self.open.append((tag, attributes.get("data-id") or (attributes.get("id") if tag == "script" else None)))
            if "data-id" in attributes:
                self.items.setdefault(attributes["data-id"], []).append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert "data-id" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1][0] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "script":
            self.scripts[self.open[-1][1]] = data
        for _, key in self.open:
            if key in self.items:
                self.items[key][-1] += data


every_sample = pytest.mark.parametrize("name", SAMPLES)


# -- the page ----------------------------------------------------------------------------------------------------------


@every_sample
def test_the_page_is_self_contained(name: str) -> None:
    result = explained(name)
    page = Page(result.html)
    assert page.links == [] and "http" not in page.scripts[None]
    assert json.loads(page.scripts["data"]) == json.loads(json.dumps(result.data))


@every_sample
def test_all_references_have_targets(name: str) -> None:
    data = explained(name).data
    page = Page(explained(name).html)
    parts = ("lines", "equations", "fusions", "refusals", "steps", "kernels")
    ids = [row["id"] for part in parts for row in data[part] if row["id"]] + [m["id"] for m in data["memory"]["slots"]]
    assert len(set(ids)) == len(ids)
    assert set(ids) == set(page.items)
    related = data["related"]
    for key, others in related.items():
        assert {key, *others} <= set(ids) and key not in others and len(set(others)) == len(others)
        assert all(key in related[other] for other in others), "what belongs together does so both ways"


@every_sample
def test_steps_belong_with_their_lines_fusions_and_kernels(name: str) -> None:
    data = explained(name).data
    related, kernels = data["related"], {k["id"]: k for k in data["kernels"]}
    for step in data["steps"]:
        others = [step["fusion"], step["kernel"], *step["lines"]]
        assert {o for o in others if o} <= set(related.get(step["id"], ()))
        if step["kind"] in ("launch", "call"):
            assert step["fusion"] and step["lines"], "work is for somebody"
        if step["kernel"]:
            assert kernels[step["kernel"]]["name"] == step["name"] and step["id"] in kernels[step["kernel"]]["steps"]
    # Whatever is computed for a line comes from an equation of it.
    lines_with_equations = {row["line"] for row in data["equations"] if row.get("line")}
    assert {line for step in data["steps"] for line in step["lines"]} <= lines_with_equations


def test_a_line_highlights_what_was_compiled_from_it() -> None:
    data = explained("gradient").data
    (line,) = [row for row in data["lines"] if "wnp.tanh" in row["text"] and row["id"]]
    others = set(data["related"][line["id"]])
    equations = {row["id"]: row["text"] for row in data["equations"] if row["id"] in others}
    assert any("dot_general" in text for text in equations.values())
    assert any("tanh" in text for text in equations.values()) and not any(" log " in t for t in equations.values())
    fusions = [f for f in data["fusions"] if f["id"] in others]
    assert any("tanh" in f["operations"] for f in fusions) and any(k in others for k in ("k0", "k1"))
    assert line["text"] == '    hidden = wnp.tanh(x @ params["a"])'


def test_decisions_have_their_reasons() -> None:
    result, executable = explained("gradient"), compiled("gradient")
    told = [r["text"] for f in result.data["fusions"] for r in f["reasons"]]
    refused = [r["text"] for r in result.data["refusals"]]
    report = executable.fusions
    yes, no = (set(re.findall(rf"^  (.*: {word}(?: .*)?)$", report, re.MULTILINE)) for word in ("yes", "no"))
    assert set(told) == yes and set(refused) == no and told and refused


def test_text_of_the_user_is_quoted() -> None:
    def f(x: Any) -> Any:
        return wnp.where(x < 1, x, 2 * x)  # </script><b>&amp;

    result = weft.explain(f, write=False)(X)
    page = Page(result.html)
    (line,) = [row for row in result.data["lines"] if row["id"] and "</script>" in row["text"]]
    assert line["text"] in page.items[line["id"]][0]


# -- the numbers -------------------------------------------------------------------------------------------------------


@every_sample
def test_totals_are_those_of_the_program(name: str) -> None:
    data, executable = explained(name).data, compiled(name)
    totals, steps = data["totals"], data["steps"]
    if name not in UNKNOWN:
        cost = executable.cost_analysis()
        assert totals["flops"] == pytest.approx(cost["flops"])
        assert totals["functions"] == pytest.approx(cost["transcendentals"])
        assert totals["read"] + totals["written"] - totals["copied"] == pytest.approx(cost["bytes accessed"])
    assert totals["seconds"] <= explained(name).data["seconds"], "steps are parts of one run"
    kernels = sum(k["seconds"] for k in data["kernels"])
    assert kernels == pytest.approx(sum(s["seconds"] for s in steps if s["kind"] == "launch"))
    with_lines = sum(s["seconds"] for s in steps if s["lines"])
    assert sum(line["seconds"] for line in data["lines"]) == pytest.approx(with_lines)
    assert all(s["seconds"] > 0 for s in steps if s["count"] and s["kind"] == "launch")


@every_sample
def test_steps_ran_as_often_as_the_page_says(name: str) -> None:
    """The counts are those of another run, step by step."""
    function, args = SAMPLES[name]
    traced = weft.jit(function).lower(*args).compile()
    executable = traced.runtime_executable()
    values = [*traced._traced._constants, *weft.tree.leaves(args)]
    _, log = executable.run_timed([np.asarray(v, t.dtype) for v, t in zip(values, executable.in_types, strict=True)])
    counts = [s["count"] for s in explained(name).data["steps"] if s["kind"] in ("launch", "call", "copy", "fill")]
    assert counts == [t.runs for t in log.times]


def test_kernels_of_one_operation_share_its_bytes_by_the_memory_they_touch() -> None:
    """One that packs an operand of a product is hardly any work, yet moves all of it."""
    x = wnp.ones((256, 256))
    steps = list(weft.jit(lambda a: a @ a).lower(x).compile().runtime_executable().program.all_steps())
    groups: dict[int, list[Any]] = {}
    for step in steps:
        if isinstance(step, Launch) and step.origin is not None:
            groups.setdefault(id(step.origin), []).append(step)
    several = [group for group in groups.values() if len(group) > 1]
    assert several, "this product has no kernel that packs any more; take another program"
    found = costs(steps)
    for group in several:
        held, moved = [count_bytes(step) for step in group], [found[step].bytes for step in group]
        assert np.array(moved) / sum(moved) == pytest.approx(np.array(held) / sum(held))


def test_iterations_of_a_loop_are_counted() -> None:
    calls = []
    shape = weft.ShapeDtypeStruct((), np.float32)

    def called(x: Any) -> Any:
        calls.append(1)
        return np.float32(x)

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 4, lambda i, c: weft.pure_callback(called, shape, c) + 1, x)

    data = weft.explain(f, write=False)(1.0).data
    (step,) = [s for s in data["steps"] if s["kind"] == "call"]
    assert step["count"] == 4 and len(calls) % 4 == 0 and len(calls) >= 4 * data["runs"]


@every_sample
def test_kernels_are_shown_as_they_are(name: str) -> None:
    data, executable = explained(name).data, compiled(name)
    assert {k["name"]: k["text"] for k in data["kernels"]} == executable.kernels
    for kernel in data["kernels"]:
        assert kernel["llvm"].startswith("define") and f"@{kernel['name']}(" in kernel["llvm"]
        assert kernel["llvm"] in executable.llvm
        assert kernel["assembly"].startswith(kernel["name"]) and re.search(r"\bret", kernel["assembly"])
        assert sum(f"{k['name']}:" in kernel["assembly"] for k in data["kernels"]) == 1


@every_sample
def test_memory_is_what_was_planned(name: str) -> None:
    data, executable = explained(name).data["memory"], compiled(name)
    analysis = executable.memory_analysis()
    assert data["temporaries"] == analysis.temp_size_in_bytes and data["peak"] == analysis.peak_memory_in_bytes
    slots = [s for s in data["slots"] if s["size"]]
    ends = [-(-(s["offset"] + s["size"]) // 64) * 64 for s in slots]
    assert max(ends, default=0) == data["temporaries"]
    assert len(data["live"]) == data["end"] and max(data["live"], default=0) <= data["temporaries"]
    for n, one in enumerate(slots):
        for other in slots[:n]:
            apart = one["last"] < other["first"] or other["last"] < one["first"]
            beside = one["offset"] + one["size"] <= other["offset"] or other["offset"] + other["size"] <= one["offset"]
            assert apart or beside, "memory that is needed at one time does not overlap"


@every_sample
def test_shares_follow_from_the_limits(name: str) -> None:
    data, machine = explained(name).data, limits()
    assert data["limits"]["flops"] == machine.flops > 0
    for step in data["steps"]:
        if step["seconds"]:
            assert step["share"] == pytest.approx(step["limit"] / step["seconds"])
        at_most = [step["work"] / machine.flops, (step["read"] + step["written"]) / machine.bandwidths[0][1]]
        assert step["limit"] >= max(at_most) * (1 - 1e-9)


def test_limits_are_measured_once() -> None:
    first = limits()
    assert limits() is first
    rates = [rate for _, rate in first.bandwidths]
    assert all(a >= b > 0 for a, b in itertools.pairwise(rates))
    assert first.seconds(first.flops, 0, 0) == 1 and first.seconds(0, first.memory, 1e12) == 1
    assert first.bandwidth(1) == rates[0] and first.bandwidth(1e12) == rates[-1] == first.memory


def test_stages_have_their_times() -> None:
    stages = explained("gradient").data["stages"]
    names = [s["name"] for s in stages]
    assert names[0] == "inline" and {"decompose", "fuse", "emit", "memory"} <= set(names)
    assert all(s["seconds"] >= 0 for s in stages)


# -- how it is called --------------------------------------------------------------------------------------------------


def test_it_is_a_function_and_a_module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(weft.explain, types.ModuleType) and callable(weft.explain)
    result = weft.explain(weft.jit(scanned))(X)
    assert result.path == pathlib.Path("scanned.explain.html") and result.path.read_text() == result.html
    other = weft.explain(scanned, tmp_path / "other.html")(X)
    assert other.path == tmp_path / "other.html" and "other.html" in repr(other)


def test_static_and_donated_arguments() -> None:
    f = weft.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=0)
    x = wnp.ones(2000)
    result = weft.explain(f, write=False)(x, 3)
    assert result.data["memory"]["shared"] == 8000
    assert np.asarray(x).tolist() == [1.0] * 2000, "arguments are copied before they are given away"
    assert np.asarray(f(x, 3)).tolist() == [3.0] * 2000


def test_effects_happen_once() -> None:
    seen = []

    def f(x: Any) -> Any:
        weft.debug.callback(lambda v: seen.append(float(v)), x)
        return x + 1

    assert weft.explain(f, write=False)(5.0).data["runs"] == 1
    weft.effects_barrier()
    assert seen == [5.0]


def test_importing_weft_does_not_load_it() -> None:
    code = "import sys, weft; print([m for m in sys.modules if m.startswith(('weft.explain', 'weft.profiler'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no_such_name"):
        weft.no_such_name


SCRIPT = """
import weft, weft.numpy as wnp

@weft.jit
def step(x, y=2.0):
    return wnp.exp(x) * y

def plain(x, y):
    return x + y

if __name__ == "__main__":
    weft.jit(weft.grad(lambda x: step(x).sum()))(wnp.ones(3))
    step(wnp.ones(7), y=3.0)
    raise RuntimeError("the script must not go on")
"""


def test_the_command_explains_the_first_call(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, page = tmp_path / "script.py", tmp_path / "page.html"
    script.write_text(SCRIPT)
    result = weft.explain.__main__.main([f"{script}:step", "--output", str(page)])
    assert capsys.readouterr().out.strip() == str(page) and page.read_text() == result.html
    assert result.data["totals"]["functions"] == 7 and any("wnp.exp" in row["text"] for row in result.data["lines"])
    result = weft.explain.__main__.main([f"{script}:plain", "--args", "wnp.ones(4), 1.0", "--output", str(page)])
    assert result.data["totals"]["flops"] == 4


@pytest.mark.parametrize(
    ("target", "said"),
    [("nowhere.py:f", "no file"), ("script.py", "file.py:function"), ("script.py:none", "has no function")],
)
def test_the_command_says_what_is_wrong(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    (tmp_path / "script.py").write_text(
        SCRIPT.replace('    raise RuntimeError("the script must not go on")', "    pass")
    )
    with pytest.raises(SystemExit):
        weft.explain.__main__.main([str(tmp_path / target)])
    assert said in capsys.readouterr().err


# -- in a browser, where there is one ----------------------------------------------------------------------------------

HOVER = """<script>
const wrong = [], hidden = [];
for (const [id, elements] of items) for (const element of elements) {
  element.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
  const lit = new Set([...document.querySelectorAll(".on")].map(e => e.dataset.id));
  const want = new Set([id, ...(data.related[id] || [])]);
  if (lit.size !== want.size || [...want].some(o => !lit.has(o))) wrong.push(id);
  for (const panel of document.querySelectorAll(".panel")) {
    const box = panel.getBoundingClientRect();
    const parts = [...panel.querySelectorAll(".on")].map(e => e.getBoundingClientRect());
    const seen = parts.some(part => part.bottom > box.top && part.top < box.bottom);
    if (parts.length && !seen && !panel.contains(element)) hidden.push([id, panel.className]);
  }
}
document.body.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
if (document.querySelector(".on")) wrong.push("nothing");
const boxes = [...document.querySelectorAll("section, circle, rect")].filter(e => e.getBoundingClientRect().width <= 0);
document.body.dataset.result = JSON.stringify({items: items.size, wrong, hidden, empty: boxes.length});
</script></body>"""


@pytest.mark.skipif(find_browser() is None, reason="there is no Chromium")
@pytest.mark.parametrize("name", ["gradient", "scan gradient", "control"])
def test_hovering_highlights_what_belongs_together(name: str, tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(explained(name).html.replace("</body>", HOVER))
    document = dump_page(page, tmp_path / "user")
    told = re.search(r'data-result="([^"]*)"', document)
    assert told is not None, document[-2000:]
    result = json.loads(told[1].replace("&quot;", '"'))
    assert result == {"items": len(Page(explained(name).html).items), "wrong": [], "hidden": [], "empty": 0}
