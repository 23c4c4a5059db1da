"""Benchmarks run at tiny sizes without JAX, all libraries agree, and the reports are correct."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types
import xml.etree.ElementTree
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
GROUPS = (
    "tracing",
    "calling",
    "maps",
    "reductions",
    "orders",
    "data_movement",
    "matmuls",
    "convolutions",
    "loops",
    "routines",
    "steps",
)
MODULES = (
    "libraries",
    "measure",
    "models",
    "bench",
    "lines",
    "programs",
    "processes",
    "first_call",
    "report",
    "newton_problems",
    "newton_cg",
    "mesh_models",
    "partitioned_bytes",
    "wire_programs",
    "bytes_beside_jax",
    "many_devices",
    "run",
    "gpu_gates",
    "gpu_lines",
    "gpu_report",
    "gpu",
)
FITS = ("quadratic", "hidden_markov", "logistic")


@pytest.fixture(scope="module")
def scripts() -> Iterator[types.SimpleNamespace]:
    """Modules of benchmarks/, which import each other by plain names as scripts do; gone again afterwards."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        yield types.SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def result(scripts: Any, name: str, at_most: float | None = None, **seconds: float) -> Any:
    return scripts.measure.Result(name, {k: scripts.measure.Times(v, v) for k, v in seconds.items()}, at_most)


def test_every_group_is_tested(scripts: Any) -> None:
    assert set(GROUPS) == set(scripts.run.GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_libraries_agree_and_are_timed(scripts: Any, group: str) -> None:
    bench = scripts.bench.Bench(("numpy",), small=True)
    names = []
    for line in scripts.run.GROUPS[group](bench):
        if group not in ("tracing", "calling"):
            bench.check(line)
        taken = scripts.measure.compare(line, 1)
        assert taken.times.keys() == line.sides.keys()
        assert all(0 < times.best <= times.median for times in taken.times.values())
        names.append(line.name)
    assert names and len(names) == len(set(names))


def test_a_wrong_result_is_detected(scripts: Any) -> None:
    bench = scripts.bench.Bench(("numpy",), small=True)
    x = bench.normal(10)
    line = bench.line("sine", lambda f: f.np.sin, x, numpy=np.cos)
    with pytest.raises(scripts.bench.Disagreement, match="sine: Weft and numpy differ"):
        bench.check(line)
    bench.check(bench.line("sine", lambda f: f.np.sin, x, numpy=np.cos, differs=("numpy",)))


def test_rounds_are_interleaved_and_rotate_the_first_library(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(scripts.measure, "seconds", lambda side: side() or (1.0, 1.0))
    monkeypatch.setattr(scripts.measure, "rest", lambda: calls.append("."))
    sides = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    scripts.measure.compare(scripts.measure.Line("line", sides), 3)
    # Before each sample a rest, and a call that wakes the side's threads.
    assert "".join(calls) == "abc" + ".aa.bb.cc" + ".bb.cc.aa" + ".cc.aa.bb"


def test_marks(scripts: Any) -> None:
    assert result(scripts, "good", 0.5, weft=1, jax=2, numpy=1, torch=1.5).marks == []
    assert result(scripts, "slow", 0.5, weft=1.1, jax=2).marks == ["falls short"]
    assert result(scripts, "behind", 0.5, weft=1, jax=4, numpy=0.5).marks == ["2.0 x NumPy"]
    assert result(scripts, "third", None, weft=2, jax=3, torch=1).marks == ["PyTorch is first"]
    assert not result(scripts, "alone", 0.5, weft=1).falls_short


def test_work_is_that_of_the_least_busy_call(scripts: Any) -> None:
    times = scripts.measure.Times
    ours, theirs = times.of([3.0, 1.0, 2.0], [6.0, 2.0, 4.0]), times.of([5.0], [8.0])
    assert (ours.median, ours.best, ours.work) == (2.0, 1.0, 2.0)
    line = scripts.measure.Result("line", {"weft": ours, "jax": theirs})
    assert line.work_ratio() == 0.25 and line.work_ratio("numpy") is None
    assert result(scripts, "not measured", weft=1, jax=1).work_ratio() is None


def test_results_survive_json(scripts: Any) -> None:
    before = result(scripts, "line", 0.5, weft=1.25, jax=2.5)
    assert scripts.measure.Result.from_json(json.loads(json.dumps(before.as_json()))) == before


def test_losses_are_reported_and_noise_is_not(scripts: Any) -> None:
    old = {"lines": [result(scripts, name, weft=1, jax=2).as_json() for name in ("lost", "noise", "gone")]}
    now = [result(scripts, "lost", weft=2, jax=2), result(scripts, "noise", weft=1.1, jax=2)]
    assert scripts.report.losses([*now, result(scripts, "new", weft=9, jax=1)], old) == [
        "lost: 0.50 of JAX's time became 1.00"
    ]


def test_the_last_release_is_the_newest(scripts: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.report, "HISTORY", tmp_path)
    assert scripts.report.last_release() is None
    for version in ("0.2.0", "0.10.0", "0.9.1", "gpu-0.11.0"):
        (tmp_path / f"{version}.json").write_text(json.dumps({"version": version}))
    assert scripts.report.last_release() == {"version": "0.10.0"}


def test_table_and_plot_have_every_line(scripts: Any) -> None:
    results = [result(scripts, "a < b", 0.5, weft=3, jax=4), result(scripts, "alone", weft=1e-6)]
    rows = scripts.report.text_table(results).splitlines()
    assert len(rows) == 3 and rows[1].endswith("<- falls short") and "3.00 s" in rows[1] and "1.00 us" in rows[2]
    picture = xml.etree.ElementTree.fromstring(scripts.report.plot(results))
    texts = [node.text for node in picture.iter() if node.tag.endswith("text")]
    assert "a < b" in texts and "0.75" in texts and "alone" not in texts


def test_the_page_shows_the_last_release(scripts: Any, tmp_path: pathlib.Path) -> None:
    """docs/benchmarks.md and its plot are what report.py makes of the newest file in the history."""
    page = shutil.copy(ROOT / "docs" / "benchmarks.md", tmp_path)
    scripts.report.write_page(scripts.report.last_release(), pathlib.Path(page))
    for name in ("benchmarks.md", "benchmarks.svg"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()
    with pytest.raises(ValueError, match="no part 'others'"):
        scripts.report.replaced("a page", "others", "")


# A run of gpu.py: three bounds of different kinds, each of which is met by one library's times and not by another's.
ON_A_GPU = {
    "gpu": "a GPU",
    "versions": {"weft": "1.2.3.dev0", "jax": "0"},
    "seconds": {
        "weft": {"x + 1, 64M": 130e-6, "sum, 64M": 70e-6, "argmax, 64M": 66e-6, "sort, 16M": 2e-3, "bias": 1.0},
        "jax": {"x + 1, 64M": 100e-6, "argmax, 64M": 67e-6, "sort, 16M": 1e-3},
        "torch": {},
    },
}


def test_bounds_of_gpus(scripts: Any) -> None:
    rows = scripts.gpu_report.text_table(ON_A_GPU).splitlines()
    assert [row.split()[-1] for row in rows[1:-2]] == ["met", "missed", "met", "missed"]
    assert "4130 GB/s" in rows[1] and "at least 4000 GB/s" in rows[1] and "ahead of jax" in rows[3]
    assert rows[-1] == "2 bounds met, 2 missed"
    alone = {**ON_A_GPU, "seconds": {"weft": {"argmax, 64M": 1.0}}}  # without what it is compared with
    assert scripts.gpu_report.text_table(alone).endswith("0 bounds met, 0 missed")
    gate = scripts.gpu_gates.Gate(at_most=2e-6)
    assert gate.text("") == "at most 2 us" and gate.is_met(2e-6, None, {}) and not gate.is_met(3e-6, None, {})


def test_every_bound_has_a_line(scripts: Any) -> None:
    lines = scripts.gpu_lines
    known = {line.name for line in lines.LINES} | {lines.DISPATCH_MANY, lines.EAGER}
    others = [name for name in (*scripts.gpu_gates.GATES, *scripts.gpu_gates.ALSO) if name not in known]
    prefixes = (scripts.gpu.NETWORK, scripts.gpu.MODEL, "attention, its gradients alone")
    assert all(name.startswith(prefixes) for name in others)


def test_a_run_on_a_gpu_is_recorded(scripts: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.gpu_report, "HISTORY", tmp_path)
    page = pathlib.Path(shutil.copy(ROOT / "docs" / "benchmarks.md", tmp_path))
    monkeypatch.setattr(scripts.gpu_report, "PAGE", page)
    scripts.gpu_report.record(ON_A_GPU)
    assert json.loads((tmp_path / "gpu-1.2.3.json").read_text()) == ON_A_GPU
    assert "Weft 1.2.3.dev0, JAX 0; a GPU." in page.read_text() and "| sum, 64M | 70 us |  |  |" in page.read_text()


def test_what_a_missing_library_would_measure_is_left_out(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process that ends with an error has no times; what it printed before counts."""
    code = "print('[\"x + 1, 64M\", 0.5]', flush=True); raise SystemExit(3)"
    monkeypatch.setattr(scripts.gpu, "FOLDER", pathlib.Path("nowhere"))
    assert list(scripts.gpu.rows_of(["-c", code], 60)) == ['["x + 1, 64M", 0.5]\n']
    assert "ended with 3" in capfd.readouterr().err
    results = scripts.gpu.Results(["jax"])
    scripts.gpu.measure_steps(results, "jax")
    assert results.to_json()["seconds"] == {"jax": {}}
    slow = "import time; print(1, flush=True); time.sleep(60)"
    assert list(scripts.gpu.rows_of(["-c", slow], 2)) == ["1\n"] and not list(scripts.gpu.rows_of(["-c", slow], 0))


@pytest.mark.parametrize("index", range(len(FITS)), ids=FITS)
def test_fits_match_numpy(scripts: Any, index: int) -> None:
    problem = scripts.newton_problems.problems(small=True)[index]
    by_hand, value, steps, iterations = scripts.newton_cg.minimise_in_python(problem)
    assert 0 < steps < scripts.newton_cg.MAX_STEPS
    assert np.linalg.norm(problem.gradient(by_hand, *problem.data)) < scripts.newton_cg.TOLERANCE
    with weft.enable_x64(True):
        f = scripts.libraries.load("weft")
        loss = problem.loss(f)
        found = weft.jit(scripts.newton_cg.minimise(f, loss))(problem.start, *problem.data)
        np.testing.assert_allclose(found[0], by_hand, 1e-6, 1e-6)
        np.testing.assert_allclose(found[1], value, 1e-9)
        assert [int(count) for count in found[2:]] == [steps, iterations]
        gradient = weft.grad(loss)(problem.start, *problem.data)
        np.testing.assert_allclose(gradient, problem.gradient(problem.start, *problem.data), 1e-9, 1e-12)
        vector = np.cos(np.arange(problem.start.size))
        _, hessian_vector = weft.jvp(lambda x: weft.grad(loss)(x, *problem.data), (problem.start,), (vector,))
        np.testing.assert_allclose(
            hessian_vector, problem.hessian_vector_product(problem.start, vector, *problem.data), 1e-6, 1e-8
        )


def printed(script: str, *arguments: str) -> str:
    """Return the output of a script, with the package of this checkout, be it installed or not."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(FOLDER / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", ["start", "fused"])
def test_first_calls_print_seconds(case: str) -> None:
    seconds, work = map(float, printed("first_call.py", "weft", case).split())
    assert 0 < seconds < 60 and 0 < work


def test_the_script_writes_its_results(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "numbers.json"
    told = printed("run.py", "--check", "--peers", "--only", "matmuls", "--json", str(file))
    lines = json.loads(file.read_text())["lines"]
    assert lines and all(line["seconds"].keys() == {"weft"} and line["name"] in told for line in lines)


@pytest.mark.parametrize("model", ["mlp", "transformer"])
def test_partitioned_steps_send_no_more_than_those_of_jax(scripts: types.SimpleNamespace, model: str) -> None:
    module = scripts.partitioned_bytes
    # With three constraints on its activations JAX sends this much less than without.
    annotated = {("transformer", "fsdp"): 8.73, ("transformer", "fsdp x tp"): 7.50}
    for step in getattr(module, model)(8):
        result, _, _ = module.partitioned(step)
        key = (step.model, step.label)
        sent = sum(c.bytes for c in result.communication)
        assert sent <= (annotated.get(key, module.JAX[key]) + 0.005) * 1e6, key


def test_splits_of_many_devices_fit_their_models(scripts: types.SimpleNamespace) -> None:
    module = scripts.many_devices
    is_spec = lambda x: isinstance(x, weft.P)
    for model, specs in ((module.mlp, module.mlp_specs), (module.transformer, module.transformer_specs)):
        _, params, _ = model(weft)
        split = weft.tree_util.tree_map(lambda s: s, specs(weft.P, "d", "t"), is_leaf=is_spec)
        assert weft.tree_util.tree_structure(split, is_leaf=is_spec) == weft.tree_util.tree_structure(params)
