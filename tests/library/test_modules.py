"""ES modules of libraries, run by node; and shared libraries of all machines."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.library.running import linker
from weft import export

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node")
MAIN = """
import { load } from "./model.mjs";
import { readFile } from "node:fs/promises";
const lib = await load();
const x = Float32Array.from({ length: 24 }, (_, n) => Math.fround(Math.sin(n)));
const y = Float32Array.of(1, -1, 2, 0, 1, 3);
const out = {};
out.forward = Array.from(lib.forward(new Float32Array(4).fill(0.5), x));
const { inputs, results } = lib.step;
inputs.p_w.fill(0); inputs.p_b.fill(0); inputs.x.set(x); inputs.y.set(y);
out.losses = [];
for (let n = 0; n < 30; n++) { lib.step.run(); out.losses.push(results.result_2[0]); }
out.weights = Array.from(inputs.p_w);
out.totals = [1, 3, 5].map((b) => Array.from(lib.total(x.slice(0, 3 * b), { b })));
out.key = Array.from(lib.random(Uint32Array.of(7)));
out.errors = [];
const fails = (f) => {
  try { f(); out.errors.push(null); } catch (e) { out.errors.push(e.constructor.name + ": " + e.message); }
};
fails(() => lib.forward(new Float32Array(3), x));
fails(() => lib.forward(x));
fails(() => lib.forward(new Float64Array(4), x));
fails(() => lib.total(x, { b: 9 }));
fails(() => lib.total(x.slice(0, 3), {}));
fails(() => lib.picked(x, Int32Array.of(99)));
const bytes = await readFile(new URL("libmodel.wasm", import.meta.url));
out.again = Array.from((await load(bytes)).forward(new Float32Array(4).fill(0.5), x));
console.log(JSON.stringify(out));
"""


def model() -> tuple[dict[str, Any], Any, Any]:
    """Return the functions of a library, and two of them."""

    def forward(w: Any, x: Any) -> Any:
        return wnp.tanh(x @ w)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, grads = weft.value_and_grad(lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean())(p)
        return weft.tree.map(lambda p, g: p - 0.1 * g, p, grads), loss

    def random(seed: Any) -> Any:
        return weft.random.key_data(weft.random.split(weft.random.key(seed[0])))

    spec = lambda *shape: weft.ShapeDtypeStruct(shape, np.float32)
    rows = spec(*export.symbolic_shape("b, 3", constraints=["b <= 8"]))
    with weft.checks("all"):
        picked = weft.jit(lambda x, i: x[i])
    functions = {
        "forward": (forward, spec(4), spec(6, 4)),
        "step": (weft.jit(step, donate_argnums=0), {"w": spec(4), "b": spec()}, spec(6, 4), spec(6)),
        "total": (lambda x: x.sum(1), rows),
        "random": (random, np.zeros(1, np.uint32)),
        "picked": (picked, spec(24), weft.ShapeDtypeStruct((), np.int32)),
    }
    return functions, forward, step


@needs_node
def test_es_module(tmp_path: pathlib.Path) -> None:
    linker("wasm-ld")
    functions, forward, step = model()
    with weft.checks("all"):
        files = export.library(functions, name="model", target="wasm32").save(tmp_path)
    assert {"libmodel.wasm", "model.mjs", "model.d.mts"} <= {path.name for path in files}
    (tmp_path / "main.mjs").write_text(MAIN)
    assert NODE is not None
    done = subprocess.run([NODE, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    out = json.loads(done.stdout)
    x = np.sin(np.arange(24)).astype(np.float32)
    expected = forward(np.full(4, 0.5, np.float32), x.reshape(6, 4))
    np.testing.assert_allclose(out["forward"], expected, rtol=1e-5)
    assert out["again"] == out["forward"]
    p: Any = {"w": np.zeros(4, np.float32), "b": np.float32(0)}
    losses = []
    for _ in range(30):
        p, loss = step(p, x.reshape(6, 4), np.array([1, -1, 2, 0, 1, 3], np.float32))
        losses.append(float(loss))
    np.testing.assert_allclose(out["losses"], losses, rtol=1e-4)
    np.testing.assert_allclose(out["weights"], p["w"], rtol=1e-4, atol=1e-6)
    for b, total in zip((1, 3, 5), out["totals"], strict=True):
        np.testing.assert_allclose(total, x[: 3 * b].reshape(b, 3).sum(1), rtol=1e-5, atol=1e-6)
    assert out["key"] == np.asarray(weft.random.key_data(weft.random.split(weft.random.key(7)))).ravel().tolist()
    kinds = [error.partition(":")[0] for error in out["errors"]]
    assert kinds == ["TypeError", "TypeError", "TypeError", "RangeError", "RangeError", "Error"]
    assert "out of bounds" in out["errors"][-1] and "test_modules.py" in out["errors"][-1]


@pytest.mark.parametrize("target", ["aarch64", "riscv64", "x86-64"])
def test_shared_libraries_of_other_machines(target: str, tmp_path: pathlib.Path) -> None:
    linker("ld.lld")
    functions, *_ = model()
    library = export.library({name: functions[name] for name in ("forward", "step")}, name="model", target=target)
    (shared,) = (path for path in library.save(tmp_path) if path.suffix == ".so")
    machine = int.from_bytes(shared.read_bytes()[18:20], "little")
    assert machine == {"aarch64": 183, "riscv64": 243, "x86-64": 62}[target]
