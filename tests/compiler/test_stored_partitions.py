"""Programs on meshes that another process has stored: run without being partitioned or compiled again."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.base import settings
from weft.compiler import cache, load
from weft.compiler.program import stored
from weft.compiler.program.ir import Communicate
from weft.runtime import spmd, stored_partitions
from weft.runtime.cpu import spmd as cpu_spmd

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(weft.device_count() < 8, reason="needs 8 devices")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "programs"
    with settings.compilation_cache_dir(str(path)):
        yield path


def mesh() -> Any:
    return weft.make_mesh((4, 2), ("d", "t"), (weft.sharding.AxisType.Auto,) * 2)


def placed(value: np.ndarray, *spec: Any) -> Any:
    return weft.device_put(value, weft.NamedSharding(mesh(), weft.P(*spec)))


W = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)


def new_process() -> None:
    """Forget what this process has compiled."""
    weft.clear_caches()
    cpu_spmd._group_programs.clear()


def step() -> Any:
    def loss(w: Any, x: Any) -> Any:
        return (wnp.tanh(x @ w) ** 2).sum() + wnp.take(w, wnp.array([3, 0, 7]), axis=0).sum()

    return weft.jit(lambda w, x: w - 0.1 * weft.grad(loss)(w, x))


def program_of(function: Any, *args: Any) -> Any:
    """The program that a call runs, found as it finds it."""
    jaxpr = weft.make_jaxpr(function)(*args)
    return spmd.compile_for_mesh(jaxpr, args, mesh())


def test_a_second_process_does_not_partition(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = placed(W, "d", "t"), placed(X, "d")
    first = np.asarray(step()(*args))
    assert {p.suffix for p in folder.iterdir()} >= {".d", ".p", ".o"}
    new_process()
    with monkeypatch.context() as patched:
        patched.setattr("weft.compiler.partition.partition.partition", None)
        patched.setattr(load, "_compile", None)
        patched.setattr(cpu_spmd, "group_jaxpr", None)
        again = step()
        assert np.asarray(again(*args)).tobytes() == first.tobytes()
    for _ in range(3):
        assert np.asarray(again(*args)).tobytes() == first.tobytes()
    compiled = again.lower(*args).compile()
    assert {c.kind for c in compiled.communication} >= {"reduce_scatter"}  # partitioned when somebody asks


def test_other_ways_of_splitting_are_other_programs(folder: pathlib.Path) -> None:
    expected = np.asarray(weft.jit(lambda w, x: x @ w)(W, X))
    for specs in (("d",), ("d",)), ((None, "t"), ("d",)), ((), ("t",)):
        for _ in range(2):
            result = weft.jit(lambda w, x: x @ w)(placed(W, *specs[0]), placed(X, *specs[1]))
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-5)
            new_process()
    assert len([p for p in folder.iterdir() if p.suffix == cache.PARTITION]) == 3


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "steps"])
def test_damaged_files_are_a_miss(folder: pathlib.Path, damage: str) -> None:
    args = placed(W, "d", "t"), placed(X, "d")
    first = np.asarray(step()(*args))
    for path in folder.iterdir():
        if path.suffix == (".p" if damage == "steps" else cache.PARTITION):
            content = path.read_bytes()
            changed = content[:-3] + b"abc"
            path.write_bytes({"empty": b"", "cut": content[:-9]}.get(damage, changed))
    new_process()
    assert np.asarray(step()(*args)).tobytes() == first.tobytes()
    new_process()
    assert np.asarray(step()(*args)).tobytes() == first.tobytes()


def test_steps_of_collectives_come_back() -> None:
    def body(x: Any) -> Any:
        total = lax.psum(lax.ppermute(x, "t", [(0, 1), (1, 0)]), "d")
        return total + lax.axis_index("d").astype(x.dtype)

    mapped = weft.shard_map(body, mesh=mesh(), in_specs=weft.P("d", "t"), out_specs=weft.P("d", "t"))
    program = program_of(mapped, placed(X, "d", "t")).executable.program
    content = stored.to_bytes(program)
    assert content is not None
    back = stored.from_bytes(content, program.name)
    assert stored.to_bytes(back) == content
    assert back.axes == program.axes and back.axes
    steps = [s for s in back.all_steps() if isinstance(s, Communicate)]
    assert [s.equation.primitive.name for s in steps] == ["ppermute", "psum"]
    assert steps[0].equation.params == {"axis_name": "t", "perm": ((0, 1), (1, 0))}


def test_a_program_from_disk_tells_lines(folder: pathlib.Path) -> None:
    def body(x: Any) -> Any:
        return lax.cond(lax.axis_index("d") == 0, lambda: lax.psum(x, "d"), lambda: x)

    def run() -> str:
        mapped = weft.shard_map(body, mesh=mesh(), in_specs=weft.P("d"), out_specs=weft.P("d"), check_vma=False)
        with pytest.raises(weft.errors.JaxRuntimeError, match="different collectives") as caught:
            weft.jit(mapped)(placed(X, "d"))
        return str(caught.value)

    first = run()
    assert "test_stored_partitions.py" in first
    new_process()
    assert run() == first


def test_donated_memory_and_constants(folder: pathlib.Path) -> None:
    for _ in range(2):
        update = weft.jit(lambda w, x: (w + x.sum() * np.arange(64, dtype=np.float32), x), donate_argnums=(0,))
        w = placed(np.zeros((512, 64), np.float32), ("d", "t"))
        for _ in range(3):
            where = w.addresses()
            w, _ = update(w, placed(np.ones(8, np.float32), "d"))
            assert w.addresses() == where
        assert (np.asarray(w) == 24 * np.arange(64)).all()
        new_process()


def test_what_is_stored_reads_back() -> None:
    types = (weft.make_jaxpr(lambda x: x)(X).in_avals[0],)
    found = stored_partitions.StoredPartition(
        ((("d",), ()),), (((), ("d", "t")),), types, types, (True,), (np.arange(3, dtype=np.int32),), "key"
    )
    with settings.compilation_cache(True):
        stored_partitions.store("0" * 40, found)
        back = stored_partitions.load("0" * 40)
    if back is not None:  # where there is a folder
        assert back[:5] == found[:5] and back.program == "key"
        assert (back.constants[0] == found.constants[0]).all()


def test_another_process_reads_it(folder: pathlib.Path) -> None:
    """One process stores, the next one runs without loading what compiles."""
    script = """
import os, sys
import numpy as np, weft
mesh = weft.make_mesh((8,), ("d",), (weft.sharding.AxisType.Auto,))
x = weft.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), weft.NamedSharding(mesh, weft.P("d")))
print(float(weft.jit(lambda x: (x @ x.T).sum())(x)), "weft.compiler.partition.partition" in sys.modules,
      "weft.compiler.pipeline" in sys.modules)
"""
    environment = {
        **os.environ,
        "WEFT_COMPILATION_CACHE_DIR": str(folder),
        "WEFT_COMPILATION_CACHE": "1",
        "WEFT_NUM_CPU_DEVICES": "8",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", script]
    lines = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
        for _ in range(2)
    ]
    assert lines[0][0] == lines[1][0]
    assert lines[0][1:] == ["True", "True"]
    assert lines[1][1:] == ["False", "False"]
