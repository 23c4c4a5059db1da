"""Programs for symbolic sizes: at each size they are the concrete program, to the bit, whatever sizes came before."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from tests.compiler.running import MACHINES
from weft import lax
from weft.base.compile_options import get_compile_options
from weft.base.settings import symbolic_sizes
from weft.compiler import pipeline
from weft.compiler.compile import compile_program
from weft.compiler.family import OutlineAtSizes, compile_instance
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.merge import merge_loops
from weft.compiler.kernel.printer import kernel_symbol, to_text
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.cost import estimate
from weft.compiler.program.emissions import SYMBOLIC_KINDS, emission_at
from weft.compiler.program.ir import Copy, Kind, Launch, Program, Slot
from weft.compiler.program.prepared import PreparedPrograms
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.target.cpu import kernels, link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import lower
from weft.compiler.target.cpu.targets import host
from weft.compiler.verify import verify_program
from weft.indexing.dimension import symbol
from weft.ir.at_sizes import at_sizes
from weft.runtime.cpu import guarded
from weft.runtime.cpu.executable import Executable
from weft.runtime.cpu.guarded import Edge, GuardedExecutable
from weft.runtime.execute import get_executable

SIZES = (2, 3, 7, 16, 17, 64, 100)


@pytest.fixture(autouse=True)
def only_declared_symbols() -> Iterator[None]:
    """Functions without `dynamic` have concrete programs here."""
    with symbolic_sizes("declared"):
        yield


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: Any) -> Any:
    mask = np.arange(q.shape[1])[:, None] >= np.arange(q.shape[1])
    return softmax(np.where(mask, q @ q.transpose(0, 2, 1), -1e9)) @ q


def normal(*shape: int, dtype: Any = "float32") -> Any:
    seed = int(onp.prod(shape)) + len(shape)
    return np.asarray((onp.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype))


def row(n: int) -> Any:
    return normal(5, n)


# Functions, the symbolic shape of their argument, and an argument for a size.
PROGRAMS: dict[str, tuple[Callable[..., Any], str, Callable[[int], Any]]] = {
    "elementwise": (lambda x: np.tanh(2 * x + 1) * x, "_, t", row),
    "softmax": (lambda x: softmax(np.tanh(x * 2 + 1) * x), "_, t", row),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), "_, t", row),
    "columns": (lambda x: x.sum(0), "t, _", lambda n: normal(n, 33)),
    "all": (lambda x: (x * x).mean(), "b, t", lambda n: normal(3, n)),
    "gradient": (weft.grad(lambda x: (softmax(x) ** 2).mean()), "b, t", lambda n: normal(4, n)),
    "bfloat16": (lambda x: (x * 3).sum(-1), "_, t", lambda n: normal(5, n, dtype=np.bfloat16)),
    "int8": (lambda x: x.max(0) + x.sum(0), "t, _", lambda n: normal(n, 9, dtype="int8")),
    "broadcasts": (lambda x: x[:, None] * x[None, :] + np.arange(x.shape[0]), "t", lambda n: normal(n)),
    "mask": (lambda x: np.where(np.arange(x.shape[1]) < x.shape[1] // 2, x, 0), "_, t", row),
    "pad": (lambda x: np.pad(x, ((1, 2), (3, 0))), "_, t", row),
    "flip and slice": (lambda x: x[::-1, 1:] + x[:, :-1], "_, t", row),
    "every other": (lambda x: x[:, ::2], "_, t", row),
    "reshape": (lambda x: x.reshape(-1) + 1, "b, t", row),
    "merge and split": (lambda x: (x.reshape(-1) * 2).reshape(x.shape).sum(0), "b, t", row),
    "transpose": (lambda x: x.T + 1, "_, t", row),
    "concatenate": (lambda x: np.concatenate([x, -x, x[:, :1]], 1), "_, t", row),
    "roll": (lambda x: np.roll(x, 3, 1), "_, t", row),
    "gather": (lambda x: x[:, np.array([0, 1, -1])], "_, t", row),
    "scatter": (lambda x: x.at[:, 1].add(2.0), "_, t", row),
    "cumsum": (lambda x: np.cumsum(x, 1), "_, t", row),
    "argmax": (lambda x: np.argmax(x, 1), "_, t", row),
    "sort": (lambda x: np.sort(x, 1), "_, t", row),
    "sorted pairs": (lambda x: lax.sort((x.astype("int32"), x), num_keys=1), "_, t", row),
    "top_k": (lambda x: lax.top_k(x, 2), "_, t", row),
    "many updates": (lambda x: np.zeros(40).at[(x * 3).astype("int32")].add(x), "t", lambda n: normal(7 * n)),
    "embedding": (lambda x: normal(50, 8)[np.abs(x).astype("int32")], "_, t", row),
    "update": (lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 2, (1, 0)), "_, t", row),
    "slices": (lambda x: np.split(np.concatenate([x, x], 1), 2, 1), "_, t", row),
    "pool": (lambda x: weft.nn.max_pool(x, (2,), (2,)), "_, t, _", lambda n: normal(2, n, 3)),
    "convolution": (
        lambda x: lax.conv_general_dilated(x, normal(4, 3, 3), (1,), "SAME"),
        "b, _, t",
        lambda n: normal(2, 3, n),
    ),
    "gradient of a convolution": (
        weft.grad(lambda x: (lax.conv_general_dilated(x, normal(4, 3, 3), (2,), "SAME") ** 2).sum()),
        "b, _, t",
        lambda n: normal(2, 3, n),
    ),
    "convolution of an even size": (
        lambda x: lax.conv_general_dilated(np.concatenate([x, x + x]), normal(2, 1, 3), (1,), "SAME"),
        "t, _, _",
        lambda n: normal(n, 1, 7),
    ),
    "matmul": (lambda x: x @ x.T, "_, t", row),
    "rows of a matmul": (lambda x: np.tanh(x @ normal(8, 40)), "t, _", lambda n: normal(n, 8)),
    "columns of a matmul": (lambda x: normal(9, 8) @ x + 1, "_, t", lambda n: normal(8, n)),
    "both": (lambda x: x @ x.T, "t, _", lambda n: normal(n, 24)),
    "matrix and vector": (lambda x: x @ x[0], "b, t", lambda n: normal(n, n)),
    "transposed": (lambda x: x.T @ x, "t, _", lambda n: normal(n, 20)),
    "integers": (lambda x: x @ x.T, "t, _", lambda n: normal(n, 12, dtype="int8")),
    "batched float64": (lambda x: np.einsum("bij,bkj->bik", x, x), "_, t, _", lambda n: normal(3, n, 6)),
    "attention": (attention, "b, t, _", lambda n: normal(2, n, 8)),
    "scan": (lambda x: lax.scan(lambda c, y: (c * 0.5 + y, c), np.zeros(5), x.T), "_, t", row),
    "gradient of a scan": (
        weft.grad(lambda x: lax.scan(lambda c, y: (c * y, c), np.ones(5), x.T)[0].sum()),
        "_, t",
        row,
    ),
    "while": (lambda x: lax.fori_loop(0, x.shape[1], lambda i, c: c + x[:, i], np.zeros(5)), "_, t", row),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, x), "_, t", row),
    "random": (lambda x: x + weft.random.uniform(weft.random.key(1), x.shape), "_, t", row),
    "cholesky": (lambda x: np.linalg.cholesky(x @ x.T + 9 * np.eye(x.shape[0])), "t, _", lambda n: normal(n, 3)),
}


def bits(tree: Any) -> list[bytes]:
    return [onp.asarray(leaf).tobytes() for leaf in weft.tree.leaves(tree)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_instances_are_the_concrete_programs(name: str) -> None:
    function, shape, argument = PROGRAMS[name]
    concrete, family = weft.jit(lambda x: function(x)), weft.jit(lambda x: function(x), dynamic={0: shape})
    for size in SIZES:
        x = argument(size)
        assert bits(family(x)) == bits(concrete(x)), size
        of = [get_executable(f._find((x,), {})[0].jaxpr).program for f in (family, concrete)]
        # If sizes are known, a roll is two slices, and slices of what is concatenated may be its parts; contractions
        # may copy other operands.
        if name not in ("roll", "slices") and not any(step.label == "contraction" for step in of[1].all_steps()):
            assert of[0].temporary_bytes == of[1].temporary_bytes


# Where indices are clamped, their bounds are constants in concrete kernels. Contractions have other tiles.
KERNELS = [
    name
    for name in PROGRAMS
    if name
    not in (
        "roll",
        "gather",
        "scatter",
        "update",
        "scan",
        "gradient of a scan",
        "while",
        "cond",
        "cholesky",
        "convolution of an even size",
    )
]


@pytest.mark.parametrize("name", KERNELS)
def test_emissions_at_sizes_are_the_concrete_ones(name: str) -> None:
    """The kernels of a class have the text of the concrete kernels at its sizes; contractions have other tiles."""
    function, shape, argument = PROGRAMS[name]
    staged = weft.jit(lambda x: function(x), dynamic={0: shape})._find((argument(7),), {})[0].jaxpr
    fused = pipeline.run(staged.general, host(), pipeline.ALL_PASSES)
    programs = PreparedPrograms(fused, (), host())
    for size in SIZES:
        sizes = {s: size if s.name == "t" else n for s, n in staged.sizes.items()}
        instance = build(OutlineAtSizes(sizes).jaxpr(fused), (), host(), sizes=sizes)
        concrete = build(at_sizes(fused, sizes), (), host())
        launches = [[s for s in p.all_steps() if isinstance(s, Launch)] for p in (instance, concrete)]
        # Loops that are one only at this size are merged only in the concrete program.
        kernels = [[to_text(merge_loops(s.concrete)) for s in of if s.label != "contraction"] for of in launches]
        assert kernels[0] == kernels[1], size
        verify_program(assign(instance), host().memory_spaces)
        prepared = programs.at(sizes)
        if prepared is not None:  # it has the steps that are built for the size
            verify_program(prepared, host().memory_spaces)
            assert rows(prepared) == rows(instance), size
            assert prepared.temporary_bytes == instance.temporary_bytes
            assert prepared.nanoseconds == pytest.approx(estimate(instance, host().kernel))


def rows(program: Program) -> list[tuple[Any, ...]]:
    """Launches and copies, with what they touch; equal constants may be one."""

    def memory(slot: Slot) -> tuple[Any, ...]:
        if slot.kind is Kind.CONSTANT:
            return (program.constants[slot.index].tobytes(),)
        return slot.kind, slot.index, slot.size, slot.offset

    found: list[tuple[Any, ...]] = []
    for step in program.all_steps():
        if isinstance(step, Launch):
            found.append((step.kernel, step.grain, step.sizes, step.iterations, *map(memory, step.slots)))
        elif isinstance(step, Copy):
            found.append((step.size, memory(step.target), memory(step.source)))
    return found


@pytest.mark.parametrize("name", ["scan", "gradient of a scan", "while", "softmax", "attention"])
def test_better_code_has_the_same_bits(name: str) -> None:
    """Loops have code of their own then, with kernels whose sizes are symbolic."""
    function, shape, argument = PROGRAMS[name]
    concrete, family = weft.jit(lambda x: function(x)), weft.jit(lambda x: function(x), dynamic={0: shape})
    for size in (40, 41):
        x = argument(size)
        results = bits(family(x))
        executable = get_executable(family._find((x,), {})[0].jaxpr)
        executable.optimise()
        assert not executable.can_improve
        assert bits(family(x)) == results == bits(concrete(x)), size


def better(x: Any, family: Any) -> tuple[Any, list[list[Tier]]]:
    """Compile better code for a program, a kernel at a time, and see which tiers its kernels have in between."""
    executable = get_executable(family._find((x,), {})[0].jaxpr)
    seen: list[list[Tier]] = []
    take = executable._take

    def took(code: Any) -> None:
        take(code)
        seen.append([kernel.tier for kernel in code.kernels.values()])

    executable._take = took
    executable.optimise(yields=True)
    return executable, seen


def with_own_kernels(power: int) -> Any:
    """A family of programs whose kernels no other test has compiled."""
    return weft.jit(
        lambda x: softmax(lax.integer_pow(x @ x.T, power)) @ lax.integer_pow(np.cumsum(x, 0), power),
        dynamic={0: "t, _"},
    )


def test_kernels_that_do_most_of_the_work_are_better_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "STATEMENTS_OF_A_PIECE", 0)
    family, x = with_own_kernels(11), normal(83, 24)
    results = bits(family(x))
    executable, (first, last) = better(x, family)
    work = executable.program.prepared.work_of_kernels(executable.program.integers)
    assert list(work.values()) == sorted(work.values(), reverse=True) and len(work) > 2
    assert first[0] is Tier.LIGHT and Tier.QUICK in first and first == sorted(first, key=lambda t: -t.value)
    assert set(last) == {Tier.LIGHT} and not executable.can_improve
    assert bits(family(x)) == results


def test_the_newest_program_is_better_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "STATEMENTS_OF_A_PIECE", 0)
    family, small, large = with_own_kernels(13), normal(9, 24), normal(83, 24)
    family(small)
    family(large)
    newest = get_executable(family._find((large,), {})[0].jaxpr)
    older, _ = better(small, family)
    assert older.program.prepared is not newest.program.prepared
    assert older.can_improve and not newest.can_improve
    older.optimise(yields=True)
    assert not older.can_improve


def test_nobody_waits_for_code_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new class of sizes is compiled while LLVM works on better code."""
    family = with_own_kernels(17)
    family(normal(9, 24))
    executable = get_executable(family._find((normal(9, 24),), {})[0].jaxpr)
    make, at_work, done = link._object, threading.Event(), threading.Event()

    def slow(text: str, target: Any, tier: Tier) -> Any:
        if tier is Tier.LIGHT:
            at_work.set()
            done.wait(60)
        return make(text, target, tier)

    monkeypatch.setattr(link, "_object", slow)
    thread = threading.Thread(target=lambda: executable.optimise(yields=True))
    thread.start()
    try:
        assert at_work.wait(60)
        called = threading.Thread(target=lambda: [family(normal(size, 24)) for size in (40, 83)], daemon=True)
        called.start()
        called.join(60)
        assert not called.is_alive() and thread.is_alive()
    finally:
        done.set()
        thread.join()


def test_analyses_are_for_the_sizes() -> None:
    function, shape, argument = PROGRAMS["attention"]
    concrete, family = weft.jit(lambda x: function(x)), weft.jit(lambda x: function(x), dynamic={0: shape})
    family(argument(9))
    ours, expected = (f.lower(argument(40)).compile() for f in (family, concrete))
    assert ours.cost_analysis() == expected.cost_analysis()
    assert ours.memory_analysis().argument_size_in_bytes == expected.memory_analysis().argument_size_in_bytes
    assert "40" in ours.as_text() and "staged 1 times" in str(family.cache_report())


@pytest.mark.parametrize("name", ["softmax", "columns", "all", "mask"])
def test_order_of_arrival_does_not_matter(name: str) -> None:
    """In whatever order sizes come, results have the same bits, and the same kernels were emitted."""
    function, shape, argument = PROGRAMS[name]
    seen = set()
    for sizes in itertools.islice(itertools.permutations((3, 17, 33, 64, 100)), 0, 120, 17):
        staged = weft.jit(lambda x: function(x), dynamic={0: shape})
        results = {size: tuple(bits(staged(argument(size)))) for size in sizes}
        programs = [get_executable(staged._find((argument(s),), {})[0].jaxpr).program for s in sorted(sizes)]
        names = tuple(tuple(kernel_symbol(s.kernel) for s in p.all_steps() if isinstance(s, Launch)) for p in programs)
        seen.add((tuple(results[size] for size in sorted(sizes)), names))
    assert len(seen) == 1


def test_one_trace_and_few_kernels() -> None:
    traces = []

    def function(x: Any) -> Any:
        traces.append(x.shape)
        return softmax(np.tanh(x * 2 + 1) * x)

    family = weft.jit(function, dynamic={"x": "_, t"})
    names = set()
    for size in range(17, 117):
        x = normal(4, size)
        family(x)
        program = get_executable(family._find((x,), {})[0].jaxpr).program
        names |= {kernel_symbol(s.kernel) for s in program.all_steps() if isinstance(s, Launch)}
    assert len(traces) == 1 and len(names) <= 3


def test_calls_never_make_the_steps_of_an_instance() -> None:
    """Steps at sizes are for those who look at them. Dispatchers, queues and donated arguments do without."""
    family = weft.jit(lambda x, y: (softmax(x), y + 1), dynamic={"x": "_, t"}, donate_argnums=(1,))
    for size in (40, 41):
        x = normal(4, size)
        results = [bits(family(x, np.zeros((64, 64))))[0] for _ in range(3)]
        assert len(set(results)) == 1
        program = get_executable(family._find((x, np.zeros((64, 64))), {})[0].jaxpr, (False, True)).program
        assert isinstance(program, ProgramAtSizes) and "steps" not in vars(program)
        assert program.takes(1) == program.arguments[1].donated and not program.takes(0)
        assert not program.calls_python and "steps" in vars(program)


def test_sizes_below_two_have_programs_of_their_own() -> None:
    family = weft.jit(lambda x: (x + 1).sum(0), dynamic={0: "b, t"})
    for shape in ((0, 3), (1, 3), (3, 1), (1, 1), (3, 0), (3, 3)):
        x = np.ones(shape)
        assert (family(x) == (x + 1).sum(0)).all() and family(x).shape == shape[1:]


def test_transformations_of_a_family() -> None:
    family = weft.jit(lambda x: softmax(x), dynamic={0: "_, t"})
    for size in (5, 6):
        x = normal(3, size)
        assert np.allclose(
            weft.grad(lambda y: (family(y) ** 2).sum())(x), weft.grad(lambda y: (softmax(y) ** 2).sum())(x)
        )
        assert bits(weft.jit(lambda y: family(y) * 2)(x)) == bits(weft.jit(lambda y: softmax(y) * 2)(x))
        assert np.allclose(weft.vmap(family)(np.stack([x, x])), np.stack([softmax(x)] * 2))


def test_trees_static_and_donated_arguments() -> None:
    def step(state: Any, x: Any, scale: float, *, shift: Any) -> Any:
        return {"w": state["w"] + x.sum(0) * scale, "b": state["b"] + shift}

    shapes = {"state": {"w": None, "b": "n"}, 1: {0: "t"}, "shift": "n"}
    family = weft.jit(step, static_argnums=2, donate_argnums=0, dynamic=shapes)
    for t, n in itertools.product((2, 5), (3, 4)):
        states = [{"w": np.ones(7), "b": np.zeros(n)} for _ in range(2)]
        got, expected = (f(s, normal(t, 7), 2.0, shift=normal(n)) for f, s in zip((family, step), states, strict=True))
        assert weft.tree.all(weft.tree.map(lambda a, b: bool((a == b).all()), got, expected))


def test_wrong_sizes_are_named() -> None:
    f = lambda x, y: x + y
    with pytest.raises(ValueError, match="a size of y must be t, as dynamic says"):
        weft.jit(f, dynamic={"x": "t", "y": "t"})(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="must fit its rank"):
        weft.jit(f, dynamic={"x": "b, t"})(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="the call must have all arguments"):
        weft.jit(f, dynamic={"z": "t"})(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="dynamic must be a dict"):
        weft.jit(f, dynamic=["t"])
    even = weft.jit(lambda x: x.reshape(2, -1).sum(0), dynamic={0: "2*t"})
    assert even(np.ones(6)).shape == (3,)
    with pytest.raises(ValueError, match="a size of x must be 2\\*t"):
        even(np.ones(7))


def test_symbolic_kernels_lower_for_every_machine() -> None:
    from weft.compiler.target.cpu.targets import host_avx2, host_scalar

    t = symbol("t", 2)
    struct = weft.ShapeDtypeStruct((4, t), "float32")
    for target in (host(), host_avx2(), host_scalar()):
        fused = pipeline.run(weft.jit(softmax).trace(struct).jaxpr, target, pipeline.ALL_PASSES)
        for equation in fusions(fused):
            kind, jaxpr, hero = (equation.params[name] for name in ("kind", "jaxpr", "hero"))
            assert kind in SYMBOLIC_KINDS
            for size in (3, 100):
                for launch in emission_at(kind, jaxpr, hero, target, 0, {t: size}).launches:
                    assert launch.kernel.sizes and "define" in lower(launch.kernel, target)


MEMORY = ["softmax", "columns", "all", "every other", "transpose", "concatenate", "attention", "columns of a matmul"]
MEMORY += ["both", "cumsum", "argmax", "sort", "many updates", "pool", "convolution", "int8", "bfloat16", "broadcasts"]


@pytest.mark.skipif(os.name != "posix", reason="pages are guarded by mprotect")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MEMORY)
def test_code_for_symbolic_sizes_stays_in_its_memory(name: str, machine: str) -> None:
    """Guard pages around every buffer, at all sizes; results are those of the concrete code for the same machine."""
    function, shape, argument = PROGRAMS[name]
    target = MACHINES[machine]()
    for n, size in enumerate((7, 64, 100)):
        x = argument(size)
        staged = weft.jit(lambda x: function(x), dynamic={0: shape})._find((x,), {})[0]
        arrays = [onp.asarray(c) for c in (*staged.constants, x)]
        expected = Executable(compile_program(staged.jaxpr.plain(), (), target))(arrays)
        executable = GuardedExecutable(
            compile_instance(staged.jaxpr, (), target, get_compile_options(), False), list(Edge)[n % 2]
        )
        assert bits(guarded.call(executable, arrays)) == bits(expected), size


def test_sizes_that_are_remembered_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.api.signatures.MOST_SIZES", 4)
    traces = []

    def function(x: Any) -> Any:
        traces.append(x.shape)
        return x + 1

    family = weft.jit(function, dynamic={0: "t"})
    for size in (*range(2, 12), 2, 3):
        assert family(np.ones(size)).shape == (size,)
    assert len(traces) == 1 and family.cache_size() == 4
