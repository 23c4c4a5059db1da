"""Programs on a plugin's devices: jit, eager operations, derivatives, donation, errors, and the code on disk."""

from __future__ import annotations

import gc
import itertools
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.runtime.pjrt import executable as executable_module
from weft.runtime.pjrt.client import Client
from weft.sharding.device import Device

CPU = weft.devices("cpu")[0]


def network(params, x):
    for w, b in params:
        x = wnp.tanh(x @ w + b)
    return wnp.mean(x**2)


def make_params(device: Device):
    rng = np.random.default_rng(0)
    sizes = [(8, 16), (16, 16), (16, 4)]
    params = [(rng.normal(size=s).astype(np.float32), np.zeros(s[1], np.float32)) for s in sizes]
    return weft.device_put(params, device), weft.device_put(rng.normal(size=(5, 8)).astype(np.float32), device)


def assert_trees_close(found, expected, tolerance: float = 2e-5) -> None:
    for a, b in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        weft.jit,
        weft.value_and_grad,
        lambda f: weft.jit(weft.grad(f)),
        lambda f: lambda p, x: weft.vmap(f, in_axes=(None, 0))(p, x[:, None]),
        lambda f: weft.jit(weft.vmap(weft.grad(f), in_axes=(None, 0))),
        lambda f: weft.jit(weft.remat(f)),
        lambda f: lambda p, x: weft.jvp(f, (p, x), (p, x)),
        lambda f: weft.hessian(lambda p, x: f([(p[0][0], p[0][1])], x)),
    ],
)
def test_transformations(transform, device: Device) -> None:
    found = transform(network)(*make_params(device))
    expected = transform(network)(*make_params(CPU))
    assert_trees_close(found, expected)
    assert weft.tree.leaves(found)[0].device is device


def test_calls_repeat_without_compiling(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.jit(lambda x, y: wnp.sin(x) * y)
    x = weft.device_put(np.arange(4.0, dtype=np.float32), device)
    first = f(x, 2.0)
    monkeypatch.setattr(Client, "compile", lambda *args: pytest.fail("compiled again"))
    monkeypatch.setattr(Client, "load", lambda *args: pytest.fail("loaded again"))
    for _ in range(4):
        np.testing.assert_array_equal(f(x, 2.0), first)
        assert f(x, 2.0).device is device


def test_eager_operations_are_programs_of_one_equation(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.device_put(np.arange(12.0, dtype=np.float32).reshape(3, 4), device)
    y = x * 3 + x.T.reshape(3, 4) - wnp.sort(x, axis=0)[::-1]
    compiled: list[str] = []
    compile_module = executable_module.load_or_compile
    record = lambda client, compilation, devices: (
        compiled.append(compilation.name) or compile_module(client, compilation, devices)
    )
    monkeypatch.setattr(executable_module, "load_or_compile", record)
    z = x * 3 + x.T.reshape(3, 4) - wnp.sort(x, axis=0)[::-1]
    np.testing.assert_array_equal(y, z)
    assert y.device is device and not compiled


def test_operations_that_stablehlo_lacks_run_on_the_host_outside_of_programs(device: Device) -> None:
    rng = np.random.default_rng(1)
    value = rng.normal(size=(4, 3)).astype(np.float32)
    x = weft.device_put(value, device)
    with weft.default_device(device):
        doubled = weft.pure_callback(lambda a: a * 2, weft.ShapeDtypeStruct((4, 3), np.float32), x)
    assert doubled.device is device
    np.testing.assert_array_equal(doubled, value * 2)
    singular = wnp.linalg.svd(x, compute_uv=False)
    assert singular.device is device
    np.testing.assert_allclose(singular, np.linalg.svd(value, compute_uv=False), rtol=1e-5)


def test_uncommitted_operands_follow_committed_ones(device: Device) -> None:
    x = weft.device_put(np.arange(3.0, dtype=np.float32), device)
    assert (x + wnp.ones(3)).device is device and (wnp.ones(3) @ x).device is device
    assert weft.jit(lambda x, y: x + y)(x, wnp.ones(3)).device is device
    with pytest.raises(errors.ArgumentError, match="committed to the same device"):
        x + weft.device_put(np.ones(3, np.float32), CPU)


def test_programs_elsewhere_read_copies(device: Device) -> None:
    with weft.default_device(device):
        x, y = wnp.arange(4.0), wnp.ones(4)
    f = weft.jit(lambda x, y: x + y)
    here = weft.device_put(np.ones(4, np.float32), CPU)
    mesh = weft.sharding.Mesh(np.array(weft.devices("cpu")[:2]), ("a",))
    sharded = weft.device_put(np.ones(4, np.float32), weft.NamedSharding(mesh, weft.P("a")))
    for _ in range(4):
        np.testing.assert_array_equal(f(x, here), [1, 2, 3, 4])
        np.testing.assert_array_equal(f(x, sharded), [1, 2, 3, 4])
        np.testing.assert_array_equal(sharded * x, [0, 1, 2, 3])
        with weft.default_device(CPU):
            assert f(x, y).device is CPU
            np.testing.assert_array_equal(f(x, y), [1, 2, 3, 4])
            np.testing.assert_allclose(wnp.exp(x), np.exp(np.arange(4.0)), rtol=1e-6)
            assert float(x @ y) == 6 and wnp.concatenate([x, y]).device is CPU


def test_donation(device: Device) -> None:
    step = weft.jit(lambda x, y: (x * 2 + y, y.sum()), donate_argnums=0)
    y = weft.device_put(np.ones((64, 64), np.float32), device)
    x = weft.device_put(np.zeros((64, 64), np.float32), device)
    for i in range(5):
        before = x
        x, _ = step(x, y)
        assert before.is_deleted() and float(x[0, 0]) == 2 ** (i + 1) - 1
    with pytest.raises(errors.DonatedArrayError):
        np.asarray(before)
    with pytest.raises(errors.DonatedArrayError, match="must not be another argument"):
        step(y, y)
    with weft.default_device(device):
        shared = wnp.full((64, 64), 31.0)
    alias = weft.device_put(shared, device)  # a second array over the same memory
    step(shared, y)
    assert shared.is_deleted() and float(alias[0, 0]) == 31
    compiled = step.lower(y, y).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == 64 * 64 * 4
    unused = weft.jit(lambda x: x.sum(), donate_argnums=0)
    z = y + 1
    assert float(unused(z)) == 2 * 64 * 64 and z.is_deleted()


def test_control_flow(device: Device) -> None:
    def f(x):
        x, ys = lax.scan(lambda c, i: (wnp.sin(c) + i, c.sum()), x, wnp.arange(5.0))
        x = lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, wnp.abs(x))
        return lax.cond(x[0] > 10, lambda x: x - 1, lambda x: x + 1, x), ys

    x = np.arange(1.0, 4.0, dtype=np.float32)
    assert_trees_close(weft.jit(f)(weft.device_put(x, device)), weft.jit(f)(x))


READS = {
    "slice": lambda x, i, size: lax.dynamic_slice(x, (i,), (size,)),
    "gather": lambda x, i, size: lax.gather(
        x, i[None], lax.GatherDimensionNumbers((0,), (), (0,)), (size,), mode="clip"
    ),
}


@pytest.mark.parametrize("outer", READS)
@pytest.mark.parametrize("inner", READS)
def test_slices_of_slices_clamp_each_start(inner: str, outer: str, device: Device) -> None:
    """XLA makes one slice of two, and clamps the sum of their starts."""

    def read(x, i, j):
        return READS[outer](READS[inner](x, i, 4), j, 3)

    def write(x, i, j):
        part = lax.dynamic_update_slice(READS[inner](x, i, 4), -READS[outer](x, j, 3), (j,))
        return lax.dynamic_update_slice(x, part, (i,))

    x, bounds = np.arange(6, dtype=np.float32), np.arange(-2, 6)
    there = weft.device_put(x, device)
    for dtype in (np.int8, np.uint32):
        for starts in itertools.product(bounds[bounds >= np.iinfo(dtype).min].astype(dtype), repeat=2):
            for function in map(weft.jit, (read, write)):
                np.testing.assert_array_equal(function(there, *starts), function(x, *starts))


def test_random_numbers_are_the_same(device: Device) -> None:
    draw = weft.jit(
        lambda key: (weft.random.bits(key, (3, 5)), weft.random.permutation(key, 7), weft.random.uniform(key))
    )
    for seed in range(3):
        here, there = draw(weft.random.key(seed)), draw(weft.device_put(weft.random.key(seed), device))
        for a, b in zip(here, there, strict=True):
            assert b.device is device
            np.testing.assert_array_equal(a, b)


def test_platform_dependent_chooses_by_the_hardware(device: Device) -> None:
    f = weft.jit(lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: x + 2))
    assert float(f(weft.device_put(np.float32(1), device))) == 2


def test_exported_programs_run_on_it(device: Device) -> None:
    from weft import export
    from weft.runtime.platforms import target_name, target_names

    f = weft.jit(lambda x: wnp.tanh(x) @ x)
    value = np.ones((3, 3), np.float32)
    exported = export.export(f)(value)
    assert target_name("pjrt:cpu") == "cpu" and target_names() == exported.platforms == ("cpu", "cuda")
    x = weft.device_put(value, device)
    again = export.deserialize(exported.serialize())
    with weft.default_device(device):
        np.testing.assert_allclose(again.call(x), f(value), rtol=1e-5)
    assert export.export(f)(x).platforms == ("cpu", "cuda")


def test_closed_over_arrays_stay_where_they_are(device: Device) -> None:
    w = weft.device_put(np.arange(3.0, dtype=np.float32), device)
    f = weft.jit(lambda x: x * w)
    x = weft.device_put(np.ones(3, np.float32), device)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), w)
    np.testing.assert_array_equal(f(np.ones(3, np.float32)), w)


def test_errors_of_the_plugin_have_its_message(device: Device) -> None:
    client = weft.runtime.pjrt.devices.get_client(device)
    with pytest.raises(errors.JaxRuntimeError, match="The compilation of `f` failed on the plugin 'cpu'") as caught:
        client.compile("module { func.func @main() { nonsense } }", b"", "`f`")
    assert "test_programs.py" in str(caught.value) and caught.value.received


def test_inspection(device: Device) -> None:
    x = weft.device_put(np.ones((4, 4), np.float32), device)
    compiled = weft.jit(lambda x: x @ x).lower(x).compile()
    assert "stablehlo.dot_general" in compiled.program and "stablehlo" in compiled.as_text()
    assert compiled.memory_analysis().argument_size_in_bytes == 64 and compiled.cost_analysis()["flops"] >= 112
    np.testing.assert_array_equal(compiled(x), 4 * np.ones((4, 4)))
    compiled.verify()
    with pytest.raises(errors.NotSupportedError, match="Weft's own compiler"):
        _ = compiled.llvm


def test_executables_are_stored_on_disk(device: Device, tmp_path: pathlib.Path) -> None:
    script = """
    import sys
    import numpy as np, weft, weft.numpy as wnp
    from weft.runtime.pjrt.client import Client
    count = 0
    def compile(self, *args, before=Client.compile):
        global count
        count += 1
        return before(self, *args)
    Client.compile = compile
    x = weft.device_put(np.ones(5, np.float32), weft.devices("pjrt:cpu")[0])
    f = weft.jit(lambda x: wnp.sin(x) @ x)
    print(float(f(x)), count)
    """
    environment = {"WEFT_COMPILATION_CACHE_DIR": str(tmp_path), **dict(__import__("os").environ)}
    environment["WEFT_COMPILATION_CACHE_DIR"] = str(tmp_path)
    run = lambda: subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    first, second = run(), run()
    assert first[0] == second[0] and first[1] == "1" and second[1] == "0"
    assert any(path.suffix == ".x" for path in tmp_path.rglob("*"))


def test_no_memory_leaks(device: Device) -> None:
    f = weft.jit(lambda x: (x + 1, x * 2))
    x = weft.device_put(np.ones(16, np.float32), device)
    f(x)
    gc.collect()
    count = sum(isinstance(o, executable_module.Buffer) for o in gc.get_objects())
    for _ in range(100):
        f(x)
    gc.collect()
    assert sum(isinstance(o, executable_module.Buffer) for o in gc.get_objects()) <= count
