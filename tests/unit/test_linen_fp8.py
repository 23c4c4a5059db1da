"""Products in eight-bit floats: close to the exact ones, and their scales follow what was seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.linen as nn
import weft.numpy as wnp
from weft import lax
from weft.linen import fp8_ops

CLASSES = [nn.Fp8DotGeneralOp, nn.Fp8DirectDotGeneralOp, nn.NANOOFp8DotGeneralOp]


@pytest.mark.parametrize("kind", CLASSES)
def test_training_of_a_layer(kind: Any) -> None:
    rng = np.random.default_rng(0)
    x = wnp.asarray(rng.uniform(size=(4, 8)), np.float32)
    layer, exact = nn.Dense(6, dot_general_cls=kind), nn.Dense(6)
    state = layer.init(weft.random.key(0), x)
    assert set(state) == {"params", fp8_ops.OVERWRITE_WITH_GRADIENT}
    expected = weft.grad(lambda v: (exact.apply(v, x) ** 2).sum())({"params": state["params"]})["params"]["kernel"]
    step = weft.jit(weft.grad(lambda v: (layer.apply(v, x) ** 2).sum()))
    for _ in range(2):  # the first call only sees values, the second one scales them
        gradient = step(state)
        state = {"params": state["params"], **{k: v for k, v in gradient.items() if k != "params"}}
    (scales,) = state[fp8_ops.OVERWRITE_WITH_GRADIENT].values()
    largest = float(wnp.finfo(kind.e4m3_dtype).max)
    np.testing.assert_allclose(scales["input_scale"], np.max(x) / largest, rtol=1e-6)
    np.testing.assert_allclose(scales["input_amax_history"][0], np.max(x), rtol=1e-6)
    np.testing.assert_allclose(layer.apply(state, x), exact.apply({"params": state["params"]}, x), atol=0.1)
    found = gradient["params"]["kernel"]
    assert np.linalg.norm(found - expected) < 0.1 * np.linalg.norm(expected)


def test_einsum_and_functions() -> None:
    rng = np.random.default_rng(0)
    x, w = (wnp.asarray(rng.uniform(size=s), np.float32) for s in ((2, 4, 8), (2, 8, 6)))
    module = nn.Fp8Einsum(amax_history_length=4)
    state = module.init(weft.random.key(0), "bij,bjk->bik", x, w)
    np.testing.assert_allclose(module.apply(state, "bij,bjk->bik", x, w), np.einsum("bij,bjk->bik", x, w), rtol=0.1)
    numbering = (((2,), (1,)), ((0,), (0,)))
    found = fp8_ops.fp8_scaled_dot_general(x, w, numbering)
    np.testing.assert_allclose(found, np.einsum("bij,bjk->bik", x, w), rtol=0.1)
    for numbering, other in (((((2,), (1,)), ((0,), (0,))), w), ((((1, 2), (2, 1)), ((), ())), w[:, :, :4])):
        _, pull = weft.vjp(lambda a, b, n=numbering: lax.dot_general(a, b, n), x, other)
        g = wnp.asarray(rng.standard_normal(lax.dot_general(x, other, numbering).shape), np.float32)
        options: dict[str, Any] = {"dimension_numbers": numbering, "precision": None, "preferred_element_type": None}
        np.testing.assert_allclose(fp8_ops.dot_general_transpose_lhs(g, x, other, **options), pull(g)[0], rtol=1e-4)
        np.testing.assert_allclose(fp8_ops.dot_general_transpose_rhs(g, x, other, **options), pull(g)[1], rtol=1e-4)


def test_names_of_axes_under_vmap() -> None:
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            w = nn.partitioning.param_with_axes("w", nn.initializers.ones, (x.shape[-1], 3), axes=("in", "out"))
            count = nn.partitioning.variable_with_axes("stats", "count", wnp.zeros, (3,), axes=("out",))
            assert isinstance(count, nn.partitioning.PartitionedVariable)
            count.value = count.value + 1
            return x @ w + count.value

    mapped = nn.partitioning.vmap_with_axes(
        Layer,
        variable_axes={"params": 1, "stats": 0},
        split_rngs={"params": True},
        partitioning_axis_names={"params": "layer", "stats": "other"},
    )
    x = wnp.ones((2, 4, 5))
    state = mapped().init(weft.random.key(0), x)
    assert state["params"]["w"].shape == (5, 2, 3)
    names = nn.partitioning.get_axis_names
    assert tuple(names(state["params_axes"])["w"]) == ("in", "layer", "out")
    assert tuple(names(state["stats_axes"])["count"]) == ("other", "out")
    y, changed = mapped().apply(state, x, mutable=["stats"])
    np.testing.assert_array_equal(y, 7 * np.ones((2, 4, 3)))
    np.testing.assert_array_equal(changed["stats"]["count"], 2 * np.ones((2, 3)))
