"""Programs of collectives: tables of boxes compute what the kernels of the same jaxpr do, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.compiler.program import stored
from weft.compiler.program.ir import Call, Fill, Launch
from weft.compiler.target.cpu.groups import SHARED, group_compilation, group_program
from weft.compiler.target.cpu.targets import host
from weft.ir.jaxpr import Equation, Var
from weft.ir.types import array_type
from weft.primitives import collectives
from weft.primitives.collectives import gathers
from weft.runtime.cpu.exchange import group_jaxpr
from weft.runtime.cpu.executable import Executable, compile_executable

GATHER = {"axis_name": "i", "tiled": True}


def collective(primitive: Any, shape: tuple[int, ...], dtype: Any, params: Any) -> Equation:
    aval = array_type(shape, np.dtype(dtype))
    return Equation([Var(aval)], [Var(primitive.type(aval, **params))], primitive, params, frozenset())


def operands(members: int, shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    numbers = random.integers(-99, 99, (members, *shape)) / (8 if np.dtype(dtype).kind in "fc" else 1)
    values = numbers.astype(dtype)
    if values.dtype.kind in "fc" and values.size > 2:
        values.reshape(-1)[:2] = np.nan, -0.0
    return list(values)


CASES: list[tuple[str, int, tuple[int, ...], Any, dict[str, Any]]] = [
    ("psum", 2, (), np.int32, {"axes": ("i",)}),
    ("psum", 3, (5, 7), np.float32, {"axes": ("i",)}),
    ("psum", 8, (37,), np.complex64, {"axes": ("i",)}),
    ("psum", 8, (64, 1030), np.float32, {"axes": ("i",)}),  # shared among threads
    ("psum", 4, (9,), np.uint8, {"axes": ("i",), "axis_index_groups": ((0, 2), (3, 1))}),
    ("reduce_scatter", 4, (3, 8, 5), np.float32, {**GATHER, "axis_size": 4, "scatter_dimension": 1}),
    ("reduce_scatter", 8, (64, 32, 128), np.float32, {**GATHER, "axis_size": 8, "scatter_dimension": 2}),
    ("reduce_scatter", 4, (3, 4), np.int32, {**GATHER, "axis_size": 4, "scatter_dimension": 1, "tiled": False}),
    ("reduce_scatter", 24, (3, 48, 5), np.float32, {**GATHER, "axis_size": 24, "scatter_dimension": 1}),
    ("all_gather", 4, (3, 5), np.float32, {**GATHER, "axis_size": 4, "all_gather_dimension": 1}),
    ("all_gather", 4, (3, 5), np.bool_, {**GATHER, "axis_size": 4, "all_gather_dimension": 2, "tiled": False}),
    ("all_gather", 8, (7, 64, 128), np.float32, {**GATHER, "axis_size": 8, "all_gather_dimension": 1}),
    ("all_to_all", 4, (4, 3, 5), np.float32, {"axis_name": "i", "axis_size": 4, "split_axis": 0, "concat_axis": 1}),
    ("all_to_all", 8, (64, 8, 64), np.float32, {"axis_name": "i", "axis_size": 8, "split_axis": 1, "concat_axis": 0}),
    ("ppermute", 4, (3, 0), np.float32, {"axis_name": "i", "perm": ((0, 1),)}),
    ("ppermute", 4, (3, 2), np.float16, {"axis_name": "i", "perm": ((0, 1), (3, 0))}),
    ("pbroadcast", 8, (5,), np.float32, {"axis_name": "i", "axis_size": 8, "source": 3}),
]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_of_many_are_those_of_few(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of a reduce-scatter are added in one order, whether they are sliced before or after."""
    params = {**GATHER, "axis_size": 8, "scatter_dimension": 1}
    equation, results = collective(collectives.reduce_scatter, (3, 16, 5), dtype, params), []
    for many in (2, 100):
        monkeypatch.setattr(gathers, "MANY", many)
        found = Executable(compile_executable(group_jaxpr(equation, 8), (), host()).compilation)
        results.append([np.asarray(x).tobytes() for x in found(operands(8, (3, 16, 5), dtype))])
    assert results[0] == results[1]


@pytest.mark.parametrize(("name", "members", "shape", "dtype", "params"), CASES)
def test_tables_compute_what_kernels_do(
    name: str, members: int, shape: tuple[int, ...], dtype: Any, params: dict[str, Any]
) -> None:
    equation = collective(getattr(collectives, name), shape, dtype, params)
    jaxpr = group_jaxpr(equation, members)
    found = group_compilation(jaxpr, host())
    assert found is not None
    direct = group_program(equation, members, host())  # without the jaxpr
    assert direct is not None and stored.to_bytes(direct) == stored.to_bytes(found.program)
    steps = found.program.steps
    assert all(isinstance(s, (Call, Fill)) for s in steps)
    values = operands(members, shape, dtype)
    if sum(v.nbytes for v in values) > SHARED:
        assert any(s.tiles > 1 for s in steps if isinstance(s, Call))
    results = Executable(found)(values)
    expected = compile_executable(jaxpr, (), host())(values)
    for a, b in zip(results, expected, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "params"),
    [
        ("psum", (4,), np.float16, {"axes": ("i",)}),  # added in float32
        ("pmax", (4,), np.float32, {"axes": ("i",)}),
        ("all_gather", (4096, 8), np.float32, {**GATHER, "axis_size": 4, "all_gather_dimension": 1}),  # short rows
    ],
)
def test_what_tables_cannot_say_is_compiled(
    name: str, shape: tuple[int, ...], dtype: Any, params: dict[str, Any]
) -> None:
    equation = collective(getattr(collectives, name), shape, dtype, params)
    jaxpr = group_jaxpr(equation, 4)
    assert group_compilation(jaxpr, host()) is None and group_program(equation, 4, host()) is None
    program = compile_executable(jaxpr, (), host()).program
    assert any(isinstance(s, Launch) for s in program.all_steps())
