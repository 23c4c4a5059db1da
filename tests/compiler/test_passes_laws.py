"""The law of passes: a pass preserves the bits of all results, and is idempotent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.random
from tests.compiler.host import run_passes
from tests.compiler.passes_bits import PASSES, assert_same_bits, results_of
from tests.laws.laws import assert_close
from tests.laws.samples import Case, every_sample
from tests.laws.test_programs import PROGRAMS as SMALL_PROGRAMS
from weft import lax, nn
from weft.base.settings import config, enable_x64, threefry_partitionable
from weft.base.tree import flatten
from weft.compiler import pipeline
from weft.compiler.passes.decompose import decompose
from weft.compiler.target.cpu.targets import host
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import get_aval
from weft.ir.verifier import verify
from weft.scipy.special.primitives.defined import DefinedFunction
from weft.trace.stage import stage

pytestmark = pytest.mark.usefixtures("by_meaning")


def check(program: Jaxpr, arrays: list[Any], monkeypatch: Any) -> None:
    """Each pass alone, and all in the order of the pipeline, with the form checked between them."""
    expected = results_of(program, arrays, monkeypatch)
    for name, function in PASSES.items():
        after = verify(function(program))
        if after is not program:
            assert [v.aval.strong() for v in after.outvars] == [v.aval.strong() for v in program.outvars], name
            assert_same_bits(results_of(after, arrays, monkeypatch), expected, name)
        assert function(after) is after, f"{name} changes the program when it is run again"
    log: list[pipeline.Stage] = []
    run_passes(program, log=log, check=True)
    for entry in log:
        if entry.changed:
            assert_same_bits(results_of(entry.jaxpr, arrays, monkeypatch), expected, f"{entry.name} in the pipeline")
    for entry, step in zip(log, pipeline.EXACT_PASSES, strict=True):
        assert step.run(entry.jaxpr, host()) is entry.jaxpr, f"{step.name} changes its own result"


# ------------------------------------------------------------------------------------------------------------- samples


@every_sample()
def test_sample(case: Case, monkeypatch: Any) -> None:
    check(defined(case, stage(case.bind, [a.aval for a in case.operands])[0], monkeypatch), case.arrays, monkeypatch)
    if case.operands:  # nothing is an argument, so that all may be folded
        check(defined(case, stage(lambda: case.bind(*case.operands), [])[0], monkeypatch), [], monkeypatch)


def defined(case: Case, program: Jaxpr, monkeypatch: Any) -> Jaxpr:
    """The program itself; a special function by its definition, which is within its primitive's error bound."""
    if not isinstance(case.primitive, DefinedFunction):
        return program
    program = decompose(program)
    results = results_of(program, case.arrays if program.invars else [], monkeypatch)
    for i, (actual, expected) in enumerate(zip(results, case.results, strict=True)):
        assert_close(actual, expected, case.tolerance, f"{case}, result {i}")
    return program


@every_sample(lambda case: case.primitive.name.startswith("random_"))
def test_older_random_bits(case: Case, monkeypatch: Any) -> None:
    with threefry_partitionable(not config.threefry_partitionable):
        check(stage(case.bind, [a.aval for a in case.operands])[0], case.arrays, monkeypatch)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("partitionable", [True, False])
def test_random_bits_of_every_width(size: int, partitionable: bool, monkeypatch: Any) -> None:
    def draw(seed: Any) -> list[Any]:
        keys = weft.random.split(weft.random.key(seed), size)
        bits = [weft.random.bits(keys[0], (size,), dtype) for dtype in (np.uint8, np.uint16, np.uint32, np.uint64)]
        more = weft.vmap(lambda k: weft.random.bits(k, (size, 3), np.uint16))(keys)
        return [*bits, more, weft.random.key_data(weft.random.fold_in(keys[0], size))]

    with enable_x64(True), threefry_partitionable(partitionable):
        for seed in (np.int32(-3), np.uint64(2**40 + 5), np.int64(-7)):
            check_function(draw, (np.asarray(seed),), monkeypatch)


# ------------------------------------------------------------------------------------------------------------ programs


def check_function(function: Callable[..., Any], args: Any, monkeypatch: Any) -> None:
    leaves, tree = flatten(args)
    program, _ = stage(
        lambda *flat: [
            wnp.asarray(r) if not hasattr(r, "aval") else r for r in flatten(function(*tree.unflatten(flat)))[0]
        ],
        [get_aval(leaf) for leaf in leaves],
    )
    check(program, [np.asarray(storage_array(leaf)) for leaf in leaves], monkeypatch)


def summed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all float results."""

    def total(*args: Any) -> Any:
        parts = [wnp.sum(r) for r in flatten(function(*args))[0] if wnp.issubdtype(r.dtype, wnp.floating)]
        return sum(parts[1:], parts[0]) if parts else wnp.zeros(())

    return total


@pytest.mark.parametrize("name", SMALL_PROGRAMS)
def test_small_program(name: str, monkeypatch: Any) -> None:
    function, args = SMALL_PROGRAMS[name]
    with enable_x64(True):
        check_function(function, args, monkeypatch)


def is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


@pytest.mark.parametrize("name", [n for n, (_, args) in SMALL_PROGRAMS.items() if is_float(args[0])])
@pytest.mark.parametrize("transformation", ["gradient", "batched"])
def test_transformed_small_program(name: str, transformation: str, monkeypatch: Any) -> None:
    function, args = SMALL_PROGRAMS[name]
    with enable_x64(True):
        first = args[0]
        if transformation == "gradient":
            check_function(weft.grad(summed(function)), args, monkeypatch)
        else:
            mapped = weft.vmap(function, in_axes=(0, *(None for _ in args[1:])))
            check_function(mapped, (np.stack([first, first * 0.5]), *args[1:]), monkeypatch)


def uniform(*shape: int) -> np.ndarray:
    """Numbers that look random and are the same in each run."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(1, count + 1) * 12.9898) * 0.7).astype(np.float32).reshape(shape)


def mlp(weights: Any, x: Any) -> Any:
    for w, b in weights:
        x = wnp.tanh(x @ w + b)
    return x


def layer_norm(x: Any, scale: Any) -> Any:
    mean = wnp.mean(x, -1, keepdims=True)
    variance = wnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / wnp.sqrt(variance + 1e-5) * scale


def attention(x: Any, w: Any) -> Any:
    q, k, v = (x @ w[i] for i in range(3))
    scores = wnp.einsum("ik,jk->ij", q, k) / np.float32(2.0)
    mask = wnp.tril(wnp.ones(scores.shape, bool))
    return nn.softmax(wnp.where(mask, scores, -wnp.inf), axis=-1) @ v


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = wnp.tanh(w @ h + x)
        return h, h * 2.0

    return lax.scan(step, wnp.zeros(w.shape[0]), xs)


def convolutional(x: Any, kernel: Any) -> Any:
    y = nn.relu(lax.conv(x, kernel, (1, 1), "SAME"))
    return lax.reduce_window(y, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -wnp.mean(wnp.sum(nn.one_hot(labels, logits.shape[-1]) * nn.log_softmax(logits), -1))


def dropout(x: Any, seed: Any) -> Any:
    keep = weft.random.bernoulli(weft.random.key(seed), 0.75, x.shape)
    return wnp.where(keep, x / 0.75, 0.0)


def adam_step(w: Any, x: Any) -> Any:
    gradient = weft.grad(lambda w: wnp.sum(wnp.sin(x @ w) ** 2))(w)
    first, second = 0.1 * gradient, 0.001 * gradient**2
    return w - 1e-3 * (first / 0.1) / (wnp.sqrt(second / 0.001) + 1e-8)


def newton(x: Any) -> Any:
    return lax.while_loop(lambda s: wnp.abs(s * s - x) > 1e-4, lambda s: 0.5 * (s + x / s), x)


def constant_branch(x: Any) -> Any:
    return lax.switch(wnp.int32(1), [wnp.sin, lambda v: v * 1.0 + wnp.array([1.0, 2.0, 3.0]), wnp.exp], x)


def scattered(x: Any) -> Any:
    return x.at[wnp.array([0, 2, 0])].add(wnp.cumsum(x)[:3]) * wnp.take(x, wnp.array([2, 1, 1]))


def rematerialised(w: Any, x: Any) -> Any:
    layer = weft.checkpoint(lambda w, x: wnp.sin(wnp.sin(x @ w)))
    return layer(w, layer(w, x))


def index_arithmetic(x: Any) -> Any:
    rows, columns = wnp.meshgrid(wnp.arange(3), wnp.arange(3), indexing="ij")
    return wnp.where(rows >= columns, x, -x) + wnp.eye(3) * wnp.arange(3)[::-1]


WEIGHTS = [(uniform(4, 4), uniform(4)), (uniform(4, 4) + 0.1, uniform(4) * 0.5)]
MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (WEIGHTS, uniform(3, 4))),
    "layer_norm": (layer_norm, (uniform(3, 4), uniform(4))),
    "attention": (attention, (uniform(5, 4), uniform(3, 4, 4))),
    "recurrent": (recurrent, (uniform(4, 4), uniform(6, 4))),
    "convolutional": (convolutional, (uniform(2, 3, 6, 6), uniform(4, 3, 3, 3))),
    "cross_entropy": (cross_entropy, (uniform(4, 5), np.array([0, 3, 1, 4], np.int32))),
    "dropout": (dropout, (uniform(4, 5), np.int32(3))),
    "adam_step": (adam_step, (uniform(4, 2), uniform(3, 4))),
    "newton": (newton, (np.float32(2.0),)),
    "constant_branch": (constant_branch, (uniform(3),)),
    "scattered": (scattered, (uniform(3),)),
    "rematerialised": (rematerialised, (uniform(4, 4), uniform(3, 4))),
    "index_arithmetic": (index_arithmetic, (uniform(3, 3),)),
    "normals": (lambda seed: weft.random.normal(weft.random.key(seed), (3, 4)), (np.int32(5),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, monkeypatch: Any) -> None:
    function, args = MODELS[name]
    check_function(function, args, monkeypatch)


@pytest.mark.parametrize("name", [n for n in MODELS if n != "normals"])
def test_gradient_of_model(name: str, monkeypatch: Any) -> None:
    function, args = MODELS[name]
    check_function(weft.value_and_grad(summed(function)), args, monkeypatch)


@pytest.mark.parametrize("name", ["mlp", "layer_norm", "recurrent", "scattered", "newton"])
def test_batched_gradient_of_model(name: str, monkeypatch: Any) -> None:
    function, args = MODELS[name]
    last = np.stack([np.asarray(args[-1]), np.asarray(args[-1]) * np.float32(1.5)])
    axes = (*(None for _ in args[:-1]), 0)
    check_function(weft.vmap(weft.grad(summed(function)), in_axes=axes), (*args[:-1], last), monkeypatch)
