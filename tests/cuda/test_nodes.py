"""Loops and branches that call libraries: conditional nodes of graphs, whose values are those of CPUs."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDecision, SimulatedDriver, simulated_gpu
from tests.cuda.test_ptx import ptxas
from weft import lax
from weft.base import settings
from weft.compiler.target.cuda import targets
from weft.compiler.target.cuda.lower import source_text
from weft.compiler.target.cuda.node_code import Advances, Chooses, Holds, NodeCode, SliceCopy
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper
from weft.runtime.cuda import graph_plan
from weft.runtime.cuda.graph_plan import known_nodes
from weft.sharding.device import Device

SIZE = 32
RANDOM = np.random.default_rng(0)
A = (RANDOM.normal(size=(SIZE, SIZE)) / SIZE + np.eye(SIZE)).astype(np.float32)
XS = (RANDOM.normal(size=(7, SIZE, SIZE)) / SIZE).astype(np.float32)
IMAGES = RANDOM.normal(size=(2, 8, 8, 4)).astype(np.float32)
KERNEL = RANDOM.normal(size=(3, 3, 4, 4)).astype(np.float32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    """A GPU on which libraries multiply small matrices in loops too, and few steps are unrolled."""
    with simulated_gpu(monkeypatch) as found:
        monkeypatch.setattr(targets, "LEAST_MATMUL_IN_LOOP", SIZE**3)
        monkeypatch.setattr(graph_plan, "LONGEST", 20)
        targets.of_capability.cache_clear()
        found[1].with_libraries("cublasLt", "cudnn", "cusolver")
        yield found
    targets.of_capability.cache_clear()


def newton(a: Any) -> Any:
    """The inverse, until it is one."""

    def goes_on(carry: Any) -> Any:
        x, steps = carry
        return (steps < 20) & (wnp.max(wnp.abs(a @ x - wnp.eye(SIZE))) > 1e-4)

    return lax.while_loop(goes_on, lambda c: (2 * c[0] - c[0] @ (a @ c[0]), c[1] + 1), (a.T / 4, 0))


def conjugate_gradients(a: Any) -> Any:
    a = a @ a.T
    b = wnp.sin(wnp.arange(SIZE * SIZE, dtype=np.float32)).reshape(SIZE, SIZE)

    def step(carry: Any) -> Any:
        x, r, p, rr, steps = carry
        ap = a @ p
        alpha = rr / wnp.sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        new = wnp.sum(r * r)
        return x, r, r + new / rr * p, new, steps + 1

    return lax.while_loop(lambda c: (c[3] > 1e-3) & (c[4] < 30), step, (b * 0, b, b, wnp.sum(b * b), 0))[::4]


def scan(a: Any, xs: Any = XS) -> Any:
    def step(carry: Any, x: Any) -> Any:
        carry = wnp.tanh(carry @ a + x)
        return carry, (carry.sum(-1), x @ carry)

    return lax.scan(step, wnp.ones((SIZE, SIZE), np.float32), xs)


def long_scan(a: Any) -> Any:
    """Iterations some of which are one body, and some before it."""
    return lax.scan(lambda c, i: (wnp.tanh(c @ a), c[0] + i), a, wnp.arange(19, dtype=np.float32))


def backwards(a: Any) -> Any:
    return lax.scan(lambda c, x: (wnp.tanh(c @ a + x), c[:3, :5]), a, wnp.asarray(XS), reverse=True)


def gradient(a: Any) -> Any:
    return weft.grad(lambda a, xs: scan(a, xs)[0].sum() + scan(a, xs)[1][1].sum(), (0, 1))(a, wnp.asarray(XS))


def chosen(a: Any) -> Any:
    """A branch with a convolution and one without."""

    def convolved(x: Any) -> Any:
        return lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x = wnp.asarray(IMAGES) * a[0, 0]
    return [lax.cond(a[0, 0] > bound, convolved, lambda x: x + 1, x) for bound in (0, 100)]


def switched(a: Any) -> Any:
    branches = [lambda x: x @ x, lambda x: x + 1, lambda x: (x @ x) @ x]
    return [lax.switch(wnp.int32(a[0, 0] * 0) + i, branches, a) for i in (-3, 0, 1, 2, 7)]


def nested(a: Any) -> Any:
    """A `while` loop and a branch in a scan that is a node, with a scan of slices of its slices."""

    def step(carry: Any, x: Any) -> Any:
        carry, steps = lax.while_loop(
            lambda c: (wnp.sum(c[0] * c[0]) > 4) & (c[1] < 3), lambda c: (c[0] @ (a / 3), c[1] + 1), (carry, 0)
        )
        carry = lax.cond(steps > 1, lambda c: c @ a + x, lambda c: c + 1, carry)
        carry, rows = lax.scan(lambda c, row: (c + row @ a, row * c[0, 0]), carry, x.reshape(2, SIZE // 2, SIZE)[:, :1])
        return carry, (steps, rows)

    return lax.scan(step, a * 3, wnp.asarray(XS))


def counted_there(a: Any) -> Any:
    """Loops whose length is known only on the GPU; one of them is empty."""
    count = wnp.int32(a[0, 0] * 0) + 5

    def body(i: Any, c: Any) -> Any:
        return wnp.tanh(c @ a) + i

    return lax.fori_loop(0, count, body, a), lax.fori_loop(0, count - 9, body, a), lax.fori_loop(2, count, body, a)


PROGRAMS = [
    newton, conjugate_gradients, scan, long_scan, backwards, gradient, chosen, switched, nested, counted_there,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_nodes_have_the_values_of_cpus(program: Callable[..., Any], gpu: tuple[Device, SimulatedDriver]) -> None:
    """The host waits for nobody from the second call on, and starts one graph."""
    device, driver = gpu
    f = weft.jit(program)
    expected = [np.asarray(leaf) for leaf in weft.tree.leaves(f(A))]
    x = weft.device_put(A, device)
    for call in range(3):
        driver.calls.clear()
        found = weft.tree.leaves(f(x))
        waits = [c for c in driver.calls if c == "wait" or c.startswith("out")]
        if call:
            assert not waits and driver.calls.count("start") == 1
            assert any(c.startswith("node") for c in driver.calls) and not driver.conditions
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=2e-4, atol=2e-5)
        del found


def text_of(graph: list[tuple[str, Any]]) -> list[str]:
    """A graph, a line for each node, with those of conditional nodes inside of it."""
    lines: list[str] = []
    for name, arguments in graph:
        match name, arguments:
            case "launch", (entry, parameters):
                decides = isinstance(entry, SimulatedDecision)
                lines.append(entry.code.symbol if decides else f"kernel of {len(parameters)}")
            case "node", (_, kind, bodies):
                for body in bodies:
                    lines += [f"{kind}:", *(f"  {line}" for line in text_of(body))]
            case (("copy" | "fill"), (*_, size)):
                lines.append(f"{name} {size}")
            case _:
                lines.append(name)
    return lines


def test_the_text_of_graphs(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(A, device)

    def recorded(function: Callable[..., Any]) -> list[str]:
        f = weft.jit(function)
        for _ in range(2):
            f(x)
        return text_of(driver.recorded)

    assert recorded(lambda a: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: (c @ a) * 2, a)) == [
        "copy 4096",
        "kernel of 3",
        "node_holds",
        "while:",
        "  call",
        "  kernel of 3",
        "  kernel of 3",
        "  node_holds",
    ]
    branches = [lambda a: a @ a, lambda a: a + 1]
    assert recorded(lambda a: lax.switch(wnp.argmax(a[0]), branches, a))[2:] == [
        "node_chooses_i4_2",
        "switch:",
        "  call",
        "switch:",
        "  kernel of 3",
    ]
    # Of 47 iterations five are before the node, which has six at a time; four bytes are read in each, and a row of 128
    # is written.
    steps = ["call", "kernel of 2", "kernel of 3", "node_advances_nf0_1_r4w16"]
    assert recorded(lambda a: lax.scan(lambda c, i: (c @ a + i, c[0]), a, wnp.arange(47, dtype=np.float32)))[2:] == [
        "fill 8",
        "node_advances_nf0_1_r4w16",
        *steps * 5,
        "while:",
        *(f"  {step}" for step in steps * 6),
    ]


def test_slices_of_any_size(gpu: tuple[Device, SimulatedDriver]) -> None:
    """Bytes, pairs of them, and rows that begin at multiples of four or eight bytes."""
    device, driver = gpu
    arrays = [RANDOM.integers(0, 9, (21, *shape)).astype(dtype) for shape, dtype in [
        ((), "int8"), ((3,), "int16"), ((5,), "float32"), ((6,), "float32"), ((700,), "float32"), ((0,), "float32"),
    ]]  # fmt: skip

    def program(a: Any, arrays: Any) -> Any:
        return lax.scan(lambda c, xs: (c @ a, [x * 2 + i for i, x in enumerate(xs)]), a, arrays)

    f = weft.jit(program)
    expected = weft.tree.leaves(f(A, arrays))
    there = weft.device_put((A, arrays), device)
    for _ in range(2):
        found = weft.tree.leaves(f(*there))
    assert "node while" in driver.calls
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_large_slices_stay_where_they_are(gpu: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    """The host starts the steps of such loops, without waiting."""
    device, driver = gpu
    monkeypatch.setattr(graph_plan, "MOST_COPIED", XS[0].nbytes)
    monkeypatch.setattr(graph_plan, "MOST_STEPS", 20)
    f, x = weft.jit(scan), weft.device_put(A, device)
    expected = weft.tree.leaves(f(A))
    for _ in range(3):
        found = weft.tree.leaves(f(x))
    assert "record" not in driver.calls and not any(call.startswith("out") for call in driver.calls)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-4, atol=2e-5)


def test_loops_that_are_too_many_to_be_unrolled_together(
    gpu: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = gpu
    monkeypatch.setattr(graph_plan, "LONGEST", 40)
    monkeypatch.setattr(graph_plan, "MOST_STEPS", 80)
    x = weft.device_put(A, device)

    def program(a: Any, loops: int) -> Any:
        c = a
        for _ in range(loops):
            c = lax.fori_loop(0, 10, lambda i, c: wnp.tanh(c @ a), c)
        return c

    for loops, nodes in ((2, 0), (4, 4)):
        f = weft.jit(lambda a, loops=loops: program(a, loops))
        driver.calls.clear()
        for _ in range(3):
            np.testing.assert_allclose(np.asarray(f(x)), np.asarray(f(A)), rtol=2e-4, atol=2e-5)
        assert driver.calls.count("start") and driver.calls.count("node while") == nodes * driver.calls.count("start")


@pytest.mark.parametrize(
    ("version", "program", "recorded"),
    [(12030, newton, False), (12040, newton, True), (12040, switched, False), (12080, switched, True)],
)
def test_what_the_driver_does_not_know_is_decided_by_the_host(
    version: int, program: Callable[..., Any], recorded: bool, gpu: tuple[Device, SimulatedDriver]
) -> None:
    device, driver = gpu
    driver.conditional_nodes = known_nodes(version)
    x = weft.device_put(A, device)
    f = weft.jit(program)
    expected = [np.asarray(leaf) for leaf in weft.tree.leaves(f(A))]
    for _ in range(2):
        found = weft.tree.leaves(f(x))
    assert ("record" in driver.calls) is recorded
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=2e-4, atol=2e-5)


def with_solver(a: Any) -> Any:
    """cuSOLVER waits on its way."""
    return lax.while_loop(lambda c: c[0, 0] < 2, lambda c: wnp.linalg.cholesky(c @ c.T) + c, a)


def with_callback(a: Any) -> Any:
    def body(c: Any) -> Any:
        c = c @ a
        return weft.pure_callback(lambda v: np.asarray(v) * 2, weft.ShapeDtypeStruct(c.shape, c.dtype), c)

    return lax.while_loop(lambda c: c[0, 0] < 9, body, a)


def with_tape(a: Any) -> Any:
    def loss(a: Any) -> Any:
        return lax.while_loop(lambda c: c[0, 0] < 9, lambda c: wnp.tanh(c @ a) * 2 + c, a).sum()

    return weft.grad(loss)(a)


@pytest.mark.parametrize("program", [with_solver, with_callback, with_tape], ids=lambda f: f.__name__)
def test_the_host_decides_about_what_it_does(program: Callable[..., Any], gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    f = weft.jit(program)
    x = weft.device_put(A, device)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(f(x)), np.asarray(f(A)), rtol=2e-4, atol=2e-4)
    assert "record" not in driver.calls and "out 1" in driver.calls


def test_errors_in_nodes_are_raised_where_values_are_read(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu

    def program(a: Any, least: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < 4, lambda c: (wnp.log(least + wnp.abs(c[0] @ a)), c[1] + 1), (a, 0))[0]

    f = weft.jit(program)
    good, bad = (weft.device_put((A, np.float32(least)), device) for least in (1, -100))
    with weft.debug_nans(True):
        for _ in range(2):
            np.asarray(f(*good))
        driver.calls.clear()
        found = f(*bad)  # nobody waits
        assert "node while" in driver.calls and not any(call.startswith("out") for call in driver.calls)
        with pytest.raises(FloatingPointError, match="nan in result 0 of `log`"):
            np.asarray(found)


def long(a: Any) -> Any:
    """How many iterations a loop had in each of three that are around it."""
    inner = lambda c: lax.while_loop(lambda c: c[1] < 9, lambda c: (wnp.tanh(c[0] @ a), c[1] + 1), (c, 0))
    return lax.scan(lambda c, _: inner(c), a, None, length=3)[1], lax.scan(scan_step(a), a, None, length=90)


def scan_step(a: Any) -> Any:
    return lambda c, _: (wnp.tanh(c @ a), wnp.float32(1))


def test_interrupts_end_loops(gpu: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    """When the host's word is set, each loop ends after the body that it is in."""
    device, driver = gpu
    x = weft.device_put(A, device)
    f = weft.jit(long)
    np.testing.assert_array_equal(np.asarray(f(x)[0]), 9)
    run, word, bodies = driver.run_graph, ctypes.c_uint32.from_address(driver.interrupts.address), 0

    def interrupted(graph: Any) -> None:
        nonlocal bodies
        bodies += 1
        word.value = bodies >= 5
        run(graph)

    monkeypatch.setattr(driver, "run_graph", interrupted)
    f(x)
    # The whole graph, four iterations of the first loop, and the loops after it none.
    assert bodies == 5
    word.value = 0


def test_a_node_is_one_step_of_profiles(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(A, device)
    f = weft.jit(newton)
    f(x)
    with weft.profile(quiet=True) as profile:
        for _ in range(3):
            f(x)
    (loop,) = [k for k in profile.kernels if "while" in k.name]
    assert loop.runs == 3 and loop.seconds > 0 and loop.line.file == __file__
    assert driver.calls.count("node while") == 3
    explained = weft.explain(f, write=False)(x)
    step = next(step for step in explained.data["steps"] if step["kind"] == "while")
    assert step["count"] == 1 and step["seconds"] > 0


def test_a_second_process_records_the_same(
    tmp_path: pathlib.Path, gpu: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    with settings.compilation_cache_dir(str(tmp_path)):
        for _ in range(2):
            with simulated_gpu(monkeypatch) as (device, driver):
                driver.with_libraries("cublasLt")
                f = weft.jit(lambda a: scan(a))
                x = weft.device_put(A, device)
                for _ in range(2):
                    found = weft.tree.leaves(f(x))
                texts.append((text_of(driver.recorded), [np.asarray(leaf).tobytes() for leaf in found]))
        assert not any(call.startswith("compile") for call in driver.calls)
        assert texts[0] == texts[1]
        # Lines of the user are there when somebody asks for times.
        with weft.profile(quiet=True) as profile:
            f(x)
        assert [k.runs for k in profile.kernels if "scan" in k.name and k.line.file == __file__] == [1]


CODES: list[NodeCode] = [
    Holds(),
    Chooses(-4, 3),
    Chooses(1, 2),
    Chooses(-8, 5),
    Advances((), 0, False, False, 1),
    Advances((SliceCopy(False, 16), SliceCopy(True, 4), SliceCopy(False, 1)), 2, True, True, 64),
]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.symbol)
def test_what_decides_becomes_ptx(code: NodeCode, tmp_path: pathlib.Path) -> None:
    text = ptx(source_text(code.symbol, code, hopper()), hopper())
    assert f".visible .entry {code.symbol}(" in text and ".extern .func cudaGraphSetConditional" in text
    assert ("ld.relaxed.sys" in text) == ("%globaltimer" in text) == (not isinstance(code, Chooses))
    if isinstance(code, Advances):
        assert ("atom.acq_rel.gpu" in text) == (code.blocks > 1) and "bar" in text
        assert ("ld.global.v4" in text) == any(each.width == 16 for each in code.slices)
    if ptxas() is not None:
        file = tmp_path / "node.ptx"
        file.write_text(text)
        command = [str(ptxas()), "-arch=sm_90", "-c", "-o", str(tmp_path / "node.cubin"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
