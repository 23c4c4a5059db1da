"""Modules of StableHLO: their text, and what has no equivalent there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.fuzz.checks import case_of
from tests.fuzz.generator import NO_RULE, generate
from weft import export, lax
from weft.compiler.target.stablehlo import emit, jacobi
from weft.compiler.target.stablehlo.parser import parse
from weft.errors import NotSupportedError
from weft.sharding import AxisType


def text(function: Any, *args: Any, **options: Any) -> str:
    return emit(weft.jit(function).trace(*args).jaxpr, **options)


def test_a_module_has_types_names_and_aliases() -> None:
    module = text(lambda x, y: (x + 2 * y, wnp.sum(x)), np.ones(3, np.float32), np.float32(1), donated=(0, None))
    assert "func.func public @main(%arg0: tensor<3xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<f32>)" in module
    assert '"stablehlo.multiply"(' in module
    assert "-> (tensor<3xf32>, tensor<f32>)" in module


def test_equal_programs_have_equal_text() -> None:
    def step(x: Any) -> Any:
        return lax.scan(lambda c, a: (wnp.sin(c) + a, c), x[0], x)

    assert text(step, np.ones((3, 2))) == text(step, np.ones((3, 2)))


def test_hashes_of_one_shape_are_one_function() -> None:
    def draw(seed: Any) -> Any:
        first, second = weft.random.split(weft.random.key(seed))
        return weft.random.bits(first, (4,)), weft.random.bits(second, (4,))

    module = text(draw, np.int32(3))
    called = {line.rpartition("callee = @")[2].partition("}")[0] for line in module.splitlines() if "func.call" in line}
    assert len(called) < module.count("func.call")
    assert all(f"func.func private @{name}(" in module for name in called)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: weft.debug.print("{}", x), "calls back into Python"),
        (weft.grad(lambda x: lax.while_loop(lambda c: c < 9.0, lambda c: c * x, x)), "without a bound"),
    ],
    ids=["callback", "tape"],
)
def test_what_has_no_equivalent_is_an_error_with_the_line(function: Any, reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason) as caught:
        text(function, 2.0)
    assert "test_stablehlo.py" in str(caught.value)


def test_exports_have_a_module_for_each_size() -> None:
    spec = weft.ShapeDtypeStruct(export.symbolic_shape("n, 2*n"), np.float32)
    exported = export.export(weft.jit(lambda x: wnp.sum(x, axis=0)), format="stablehlo")(spec)
    module = exported.mlir_module(sizes={"n": 3})
    (function,) = parse(module).values()
    assert function.result_types == ("tensor<6xf32>",)
    with pytest.raises(ValueError, match="a number for each symbolic size") as caught:
        exported.serialize()
    assert "'n': 8" in str(caught.value)
    derivative = exported.vjp().mlir_module(sizes={"n": 2})
    assert "tensor<2x4xf32>, %arg1: tensor<4xf32>" in derivative


def test_formats_of_exports() -> None:
    exported = export.export(weft.jit(wnp.sin), format="stablehlo")(np.float32(1))
    assert exported.serialize().decode() == exported.mlir_module() == exported.mlir_module_serialized.decode()
    assert export.deserialize(exported.serialize(format="weft")).call(np.float32(0)) == 0
    with pytest.raises(ValueError, match="must be 'weft' or 'stablehlo'"):
        export.export(weft.jit(wnp.sin), format="hlo")
    with pytest.raises(ValueError, match="vjp_order must be 0"):
        exported.serialize(vjp_order=1)


def test_sharded_functions_are_replicas_of_their_local_program() -> None:
    mesh = weft.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    x = weft.device_put(np.ones((4, 6), np.float32), weft.NamedSharding(mesh, weft.P("x", "y")))
    module = weft.jit(lambda x: wnp.tanh(x @ x.T)).lower(x).as_text("stablehlo")
    (function,) = parse(module).values()
    assert "mhlo.num_replicas = 4" in module and "stablehlo.all_reduce" in module
    assert [kind for _, kind in function.body.arguments] == ["tensor<2x3xf32>"]


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_well_formed(seed: int) -> None:
    try:
        case = case_of(generate(seed))
        with weft.enable_x64(case.wide):
            functions = parse(emit(case.jaxpr))
    except (NotSupportedError, *NO_RULE):
        return  # callbacks, tapes, derivatives that do not exist
    assert sum(f.is_public for f in functions.values()) == 1


def test_factorizations_are_those_of_lapack() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 7, 7)) + 1j * rng.normal(size=(2, 7, 7))
    hermitian = a + np.conj(np.swapaxes(a, -1, -2))
    with weft.enable_x64(True):
        found = jacobi.eigh(hermitian, lower=True, sort_eigenvalues=True)
        found += jacobi.svd(a[..., :4], full_matrices=True, compute_uv=True)
    vectors, values, s, u, v = map(np.asarray, found)
    limit = 60 * np.finfo(np.float64).eps * np.abs(hermitian).max()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(hermitian), atol=limit)
    np.testing.assert_allclose(hermitian @ vectors, vectors * values[:, None, :], atol=limit)
    np.testing.assert_allclose(s, np.linalg.svd(a[..., :4], compute_uv=False), atol=limit)
    np.testing.assert_allclose(u[..., :4] * s[:, None, :] @ v, a[..., :4], atol=limit)
    np.testing.assert_allclose(np.conj(np.swapaxes(u, -1, -2)) @ u, [np.eye(7)] * 2, atol=limit)
