"""Several CPU devices: placement of arrays and results, and separate memory."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.runtime.device import HOME, get_placement
from weft.sharding import SingleDeviceSharding

CPUS = weft.devices()[:4]  # of eight, as tests/conftest.py says
VALUES = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
MATRIX = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)


def where(x: Any) -> tuple[int, bool]:
    """Return the number of an array's device, and whether it is committed to it."""
    assert x.devices() == {x.device} and x.sharding == SingleDeviceSharding(x.device)
    return x.device.id, x.committed


# -- which there are ---------------------------------------------------------------------------------------------------


def test_devices_are_numbered() -> None:
    assert [d.id for d in CPUS] == [0, 1, 2, 3] and [str(d) for d in CPUS] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    assert repr(CPUS[3]) == "CpuDevice(id=3)"
    assert weft.local_devices() == weft.devices() == weft.devices("cpu")
    assert weft.device_count() == weft.local_device_count() == 8


def test_the_number_of_devices_is_fixed_when_they_are_used() -> None:
    weft.config.update("num_cpu_devices", 8)  # as it is
    for name in ("num_cpu_devices", "jax_num_cpu_devices"):
        with pytest.raises(RuntimeError, match="WEFT_NUM_CPU_DEVICES"):
            weft.config.update(name, 4)
    for wrong in (0, -2, 2.0, "4"):
        with pytest.raises(ValueError, match="at least 1"):
            weft.config.update("num_cpu_devices", wrong)


EIGHT = """
    import weft, weft.numpy as wnp
    x = wnp.ones(3)  # arrays may be there before
    weft.config.update("num_cpu_devices", 8)
    assert [d.id for d in weft.devices()] == list(range(8))
    f = weft.jit(lambda x: wnp.tanh(x) * 2)
    results = [[f(weft.device_put(x, d)) for d in weft.devices()] for _ in range(4)]
    assert all(r.device.id == i and r.committed for row in results for i, r in enumerate(row))
    assert len({r.tobytes() for row in results for r in row}) == 1
    try:
        weft.config.num_cpu_devices = 2
    except RuntimeError as error:
        print("done")
"""


def test_a_process_with_eight_devices() -> None:
    alone = {k: v for k, v in os.environ.items() if k != "WEFT_NUM_CPU_DEVICES"}
    command = [sys.executable, "-c", textwrap.dedent(EIGHT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert (done.stdout, done.stderr) == ("done\n", "")


# -- the same numbers everywhere ---------------------------------------------------------------------------------------


def _loop(x: Any) -> Any:
    carry, ys = lax.scan(lambda c, row: (c * 0.5 + row.sum(), wnp.sin(row)), wnp.float32(0), x)
    return lax.while_loop(lambda c: c < 10, lambda c: c + 1.5, carry), ys


def _twice(x: np.ndarray) -> np.ndarray:
    return x * 2


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: wnp.tanh(x) * 2 + 1,
    "views": lambda x: (x.T, x[1:3], wnp.reshape(x, (-1,)), x[0]),
    "sums": lambda x: (x.sum(), x.mean(0), wnp.var(x, 1)),
    "products": lambda x: x @ wnp.asarray(MATRIX) @ x.T,
    "sorting": lambda x: (wnp.sort(x, 0), wnp.argsort(x), wnp.unique(x, size=5)),
    "solving": lambda x: wnp.linalg.cholesky(x @ x.T + wnp.eye(6)),
    "transforms": lambda x: wnp.fft.fft(x),
    "loops": _loop,
    "branches": lambda x: lax.cond(x.sum() > 0, wnp.sin, wnp.cos, x),
    "callbacks": lambda x: weft.pure_callback(_twice, weft.ShapeDtypeStruct(x.shape, x.dtype), x) + 1,
    "gradients": weft.grad(lambda x: wnp.sum(wnp.sin(x) ** 2)),
    "tapes": weft.grad(lambda x: lax.fori_loop(0, 3, lambda i, c: wnp.sin(c), x).sum()),
    "hessians": lambda x: weft.hessian(lambda v: wnp.prod(v))(x[0]),
    "batches": weft.vmap(lambda row: wnp.cumsum(row) / wnp.max(row)),
    "remat": weft.grad(weft.checkpoint(lambda x: wnp.exp(wnp.sin(x)).sum())),
    "random": lambda x: weft.random.normal(weft.random.key(3), x.shape) + x,
    "updates": lambda x: x.at[1].set(0).at[:, 2].add(1),
    "inner jit": lambda x: weft.jit(lambda a, b: (a + b, b))(x, 2.0),
}


def read(tree: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in weft.tree.leaves(tree)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits_on_another_device(name: str) -> None:
    function = FUNCTIONS[name]
    first, third = wnp.asarray(VALUES), weft.device_put(VALUES, CPUS[3])
    for f in (function, weft.jit(function)):
        expected = read(f(first))
        for _ in range(3):  # the general way, and that of dispatchers
            result = f(third)
            assert read(result) == expected
            assert {where(x) for x in weft.tree.leaves(result)} == {(3, True)}
    with weft.default_device(CPUS[2]):
        for f in (function, weft.jit(function)):
            for x in (VALUES, first, first):
                result = f(x if f is not function else wnp.array(x))
                assert read(result) == read(function(first))
                assert {where(x) for x in weft.tree.leaves(result)} <= {(2, False)}
    assert {where(x) for x in weft.tree.leaves(weft.jit(function)(first))} == {(0, False)}


def test_alternating_calls_find_their_dispatchers() -> None:
    f = weft.jit(lambda x, y: {"a": x + y})
    xs = [weft.device_put(np.float32([1, 2]), d) for d in CPUS]
    y = wnp.ones(2)
    for _ in range(4):
        assert [where(f(x, y)["a"]) for x in xs] == [(i, True) for i in range(4)]
    assert f.cache_size() == 1 and sum(map(len, f._table.by_hint.values())) == 4


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_of_a_device_is_its_own() -> None:
    third = get_placement(CPUS[3], True).memory
    assert third is get_placement(CPUS[3], False).memory is not HOME.memory
    gc.collect()
    HOME.memory.clear(), third.clear()
    f = weft.jit(lambda x: wnp.sort(wnp.sin(x) + x[::-1]))
    x = weft.device_put(np.ones(1 << 15, np.float32), CPUS[3])
    for _ in range(4):
        y = wnp.exp(f(x))
    assert y._memory.pool is third.pool and HOME.memory.pool.bytes == 0
    del x, y
    gc.collect()
    assert third.pool.bytes >= 1 << 17 and HOME.memory.pool.bytes == 0
    wnp.ones(1 << 15, device=CPUS[3])
    assert HOME.memory.pool.bytes == 0
    small = weft.device_put(np.ones(4, np.float32), CPUS[3])
    for _ in range(4):
        result = f(small)
    home = [weft.jit(lambda x: x * 3)(wnp.ones(4)) for _ in range(3)]
    assert all(result._memory is not x._memory for x in home)
    third.clear()
    assert third.pool.bytes == 0


def test_donation_on_another_device() -> None:
    f = weft.jit(lambda x, y: x + y, donate_argnums=0)
    y = weft.device_put(np.ones(5000, np.float32), CPUS[2])
    for _ in range(4):
        x = weft.device_put(np.ones(5000, np.float32), CPUS[2])
        address = x._memory.address
        result = f(x, y)
        assert x.is_deleted() and where(result) == (2, True) and result._memory.address == address
    for _ in range(4):  # memory of the first device cannot be taken, and is given away all the same
        x = wnp.ones(5000)
        result = f(x, y)
        assert x.is_deleted() and where(result) == (2, True) and result._memory.pool is y._placement.memory.pool
        assert float(result[0]) == 2.0


# -- moving ------------------------------------------------------------------------------------------------------------


def test_device_put() -> None:
    x = wnp.arange(5000.0)
    y = weft.device_put(x, CPUS[1])
    assert where(x) == (0, False) and where(y) == (1, True) and not np.shares_memory(np.asarray(x), np.asarray(y))
    here = weft.device_put(x, CPUS[0])
    assert where(here) == (0, True) and np.shares_memory(np.asarray(x), np.asarray(here))
    assert weft.device_put(y, CPUS[1]) is y and weft.device_put(y) is y and weft.device_put(x) is x
    assert not np.shares_memory(np.asarray(weft.device_put(y, CPUS[1], may_alias=False)), np.asarray(y))
    assert where(weft.device_put(y, SingleDeviceSharding(CPUS[2]))) == (2, True)
    assert where(y.to_device(CPUS[3])) == (3, True)
    result = weft.device_put({"a": x, "b": (x, 2.0)}, {"a": CPUS[1], "b": CPUS[2]})
    assert [where(leaf) for leaf in weft.tree.leaves(result)] == [(1, True), (2, True), (2, True)]
    here.delete()
    assert float(x[3]) == 3.0


def test_device_put_donates() -> None:
    x = wnp.ones(3)
    weft.device_put(x, CPUS[1], donate=True)
    with pytest.raises(weft.errors.DonatedArrayError):
        x + 1
    with pytest.raises(ValueError, match="donated and aliased"):
        weft.device_put(wnp.ones(3), CPUS[1], donate=True, may_alias=True)


def test_device_put_under_transformations() -> None:
    def across(x: Any) -> Any:
        return wnp.sin(weft.device_put(x, CPUS[1])).sum()

    x = wnp.arange(3.0)
    third = weft.device_put(x, CPUS[3])
    expected = np.asarray(wnp.cos(x))
    for value, home in ((x, 0), (third, 3)):
        gradient = weft.grad(across)(value)
        assert where(gradient) == (home, True)
        np.testing.assert_array_equal(np.asarray(gradient), expected)
    assert [where(v) for v in weft.jvp(lambda x: weft.device_put(x, CPUS[1]), (x,), (x,))] == [(1, True)] * 2
    assert where(weft.vmap(lambda v: weft.device_put(v, CPUS[1]))(third)) == (1, True)
    # In a program it is the operand: a program runs on one device.
    assert where(weft.jit(across)(third)) == (3, True) and where(weft.jit(weft.grad(across))(x)) == (0, False)
    assert "device_put" in str(weft.make_jaxpr(across)(x))


def test_copies_keep_the_device_and_pickles_do_not() -> None:
    x = weft.device_put(wnp.arange(3.0), CPUS[2])
    for result in (copy.copy(x), copy.deepcopy(x), x.copy(), wnp.array(x), wnp.copy(x)):
        assert where(result) == (2, True) and result.tolist() == [0.0, 1.0, 2.0]
    assert where(pickle.loads(pickle.dumps(x))) == (0, False)  # another process has other devices
    key = weft.device_put(weft.random.key(0), CPUS[2])
    assert where(weft.random.split(key)) == (2, True) and where(weft.random.uniform(key)) == (2, True)
    assert np.array_equal(weft.random.key_data(copy.deepcopy(key)), weft.random.key_data(key))


def test_creation_functions_take_a_device() -> None:
    x, device = wnp.ones(3), CPUS[2]
    result = [
        *(f((2, 2), device=device) for f in (wnp.zeros, wnp.ones, wnp.empty)),
        *(f(x, device=device) for f in (wnp.array, wnp.asarray, wnp.zeros_like, wnp.ones_like, wnp.empty_like)),
        *(wnp.full(3, 1, device=device), wnp.full_like(x, 1, device=device), wnp.arange(3, device=device)),
        *(wnp.linspace(0, 1, 3, device=device), wnp.eye(2, device=device), x.astype(int, device=device)),
        *(wnp.fft.fftfreq(4, device=device), wnp.fft.rfftfreq(4, device=device)),
    ]
    result.append(weft.make_array_from_callback((3,), SingleDeviceSharding(device), lambda index: np.ones(3)[index]))
    assert {where(m) for m in result} == {(2, True)}
    there = weft.device_put(x, CPUS[1])
    followers = [wnp.zeros_like(there), wnp.full_like(there, 2.0), there[0], *there, wnp.stack([there, x])]
    followers += [wnp.array([there[0], 1.0]), wnp.full(2, there[0]), x[wnp.argmax(there)], *wnp.nonzero(there)]
    followers += [x.at[wnp.argmax(there)].set(0), wnp.unique(there), wnp.isnan(wnp.argmax(there)), there + np.ones(3)]
    assert {where(m) for m in followers} == {(1, True)}


# -- the default device ------------------------------------------------------------------------------------------------


def test_the_default_device() -> None:
    x = wnp.ones(3)
    f = weft.jit(lambda x: x + 1)
    with weft.default_device(CPUS[3]):
        result = [
            wnp.ones(3),
            weft.device_put(np.ones(3)),
            f(x),
            x + 1,
            weft.random.key(0),
            wnp.sin(2.0),
            x.reshape(3, 1),
        ]
        assert {where(m) for m in result} == {(3, False)}
        assert where(wnp.asarray(x)) == where(weft.device_put(x)) == (0, False)
        assert where(f(weft.device_put(x, CPUS[1]))) == (1, True)
    # Who is not committed follows: here to the default device.
    assert {where(m) for m in (f(result[0]), result[0] + 1, result[0] + x, weft.jit(lambda x: x)(result[0]))} == {
        (0, False)
    }
    with weft.default_device("cpu"):
        assert where(x + 1) == (0, False)
    weft.config.update("default_device", CPUS[1])
    try:
        assert where(wnp.zeros(2)) == (1, False)
    finally:
        weft.config.update("default_device", None)
    with pytest.raises(ValueError, match="a device, the name of a platform, or None"):
        weft.default_device(3)
    with weft.default_device(weft.Device(99, "cpu")), pytest.raises(RuntimeError, match="no device"):
        wnp.ones(3)


def test_each_thread_has_its_default_device() -> None:
    f, seen = weft.jit(lambda x: x * 2), {}

    def work(device: Any) -> None:
        with weft.default_device(device):
            seen[device.id] = {where(result) for _ in range(50) for result in (f(wnp.ones(4)), wnp.ones(4) + 1)}

    threads = [threading.Thread(target=work, args=(d,)) for d in CPUS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {d.id: {(d.id, False)} for d in CPUS}


def test_checks_on_another_device() -> None:
    x = weft.device_put(VALUES, CPUS[3])
    read_at = weft.jit(lambda x, i: x[i])
    with weft.checks("all"):
        for _ in range(3):
            assert where(read_at(x, 2)) == (3, True)
            with pytest.raises(IndexError):
                read_at(x, 6)
    with weft.debug_nans(True):
        for f in (wnp.log, weft.jit(wnp.log)):
            with pytest.raises(FloatingPointError):
                f(x)
    with weft.disable_jit(True):
        assert where(read_at(x, 2)) == (3, True)


def test_jit_on_a_device() -> None:
    x, second = wnp.ones(3), weft.device_put(wnp.ones(3), CPUS[1])
    f = weft.jit(lambda x: x + 1, device=CPUS[2])
    assert [where(f(v)) for v in (x, second, 1.0)] == [(2, True)] * 3
    assert where(weft.jit(lambda: wnp.ones(3), device=CPUS[2])()) == (2, True)
    assert where(weft.jit(lambda x: x, backend="cpu")(second)) == (0, True)
    with pytest.raises(ValueError, match="device and backend cannot be combined"):
        weft.jit(f, device=CPUS[0], backend="cpu")
    with pytest.raises(TypeError, match="must be a device"):
        weft.jit(f, device=2)
    donated = weft.device_put(np.ones(5000, np.float32), CPUS[1])
    assert where(weft.jit(lambda x: x + 1, device=CPUS[2], donate_argnums=0)(donated)) == (2, True)
    assert donated.is_deleted()


def test_constants_do_not_determine_the_device() -> None:
    constant = weft.device_put(wnp.ones(3), CPUS[1])
    f = weft.jit(lambda x: x + constant)
    for _ in range(3):
        assert where(f(wnp.ones(3))) == (0, False)
        assert where(f(weft.device_put(wnp.ones(3), CPUS[2]))) == (2, True)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_arguments_on_different_devices() -> None:
    first, second = (weft.device_put(wnp.ones(3), d) for d in CPUS[1:3])

    def add(x: Any, y: Any, scale: Any = 1) -> Any:
        return (x + y["w"]) * scale

    with pytest.raises(ValueError, match="must be committed to the same device") as caught:
        weft.jit(add)(first, {"w": second})
    text = str(caught.value)
    assert "jit of add" in text and "x, f32[3] on CpuDevice(id=1), and y['w'], f32[3] on CpuDevice(id=2)" in text
    assert "weft.device_put(" in text and "test_devices.py" in text
    with pytest.raises(ValueError, match="must be committed to the same device"):
        weft.jit(add, static_argnames="scale")(first, {"w": second}, scale=2)
    with pytest.raises(ValueError, match="add: all arguments must be committed"):
        first + second
    with pytest.raises(ValueError, match="must be committed to the same device"):
        lax.cond(True, lambda x, y: x, lambda x, y: y, first, second)
    with pytest.raises(ValueError, match="must be committed to the same device"):
        wnp.array([first[0], second[0]])
    with pytest.raises(ValueError, match="no device"):
        weft.device_put(first, weft.Device(99, "cpu"))
    # What is not used does not count.
    assert where(weft.jit(lambda x, y: x + 1)(first, second)) == (1, True)
    assert where(add(first, {"w": wnp.ones(3)}, 2)) == (1, True)
