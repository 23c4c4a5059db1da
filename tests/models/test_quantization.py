"""Quantized weights: laws of the representation, of its products, and of models that have them."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.models.tiny import DECODERS, ENCODERS, PAIRS, SEQUENCES, images, make, source, tokens
from weft import lax, models
from weft.errors import ArgumentError
from weft.models.quantization import FEW_ROWS, Quantized, leaves, multiply_experts, multiply_integers, quantize_leaf
from weft.sharding import AxisType

SCHEMES = ("int8", "int4")
KEYS = ("head", "weight")
# Numbers of inputs with whole groups, a group of their own, and a last group that zeros fill.
SHAPES = [(6, 64), (5, 128), (3, 7), (4, 96), (2, 1), (3, 130)]


def matrix(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    return wnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).astype(dtype)


def wide(x: Any) -> np.ndarray:
    return np.asarray(wnp.asarray(x).astype(wnp.float32))


def steps(weight: Quantized) -> np.ndarray:
    """Return the scale of each number of a matrix."""
    scales = wide(weight.scales)[..., None]
    if weight.bits == 4:
        size = 2 * weight.values.shape[-1] // weight.scales.shape[-1]
        scales = np.repeat(scales[..., 0], size, axis=-1)[..., : weight.columns]
    return np.broadcast_to(scales, weight.shape)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float32, wnp.bfloat16, np.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_change_by_half_a_scale_at_most(shape: tuple[int, ...], dtype: Any, scheme: str) -> None:
    w = matrix(shape, dtype).at[0].set(0)
    q = quantize_leaf(KEYS, w, scheme, 32)
    assert (q.shape, q.dtype, q.ndim) == (w.shape, w.dtype, 2)
    rounding = {np.float32: 1e-6, wnp.bfloat16: 2.0**-7, np.float16: 2.0**-10}[dtype] * np.abs(wide(w))
    assert (np.abs(wide(q.dequantize()) - wide(w)) <= 0.5 * steps(q) + rounding).all()
    assert not wide(q.dequantize())[0].any()
    levels = 127 if scheme == "int8" else 7
    assert steps(q).max() <= np.abs(wide(w)).max() / levels * 1.01


@pytest.mark.parametrize(("scheme", "levels"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("dtype", [np.float32, wnp.bfloat16, np.float16])
def test_multiples_of_a_scale_are_exact(dtype: Any, scheme: str, levels: int) -> None:
    numbers = np.random.default_rng(0).integers(-levels, levels + 1, (3, 4, 64))
    numbers[..., ::32] = levels
    w = wnp.asarray((numbers * 2.0 ** np.array([[-6], [-2], [0], [1]])[None]).astype(np.float32)).astype(dtype)
    q = quantize_leaf(KEYS, w[0], scheme, 32)
    np.testing.assert_array_equal(wide(q.dequantize()), wide(w[0]))
    again = quantize_leaf(KEYS, q.dequantize(), scheme, 32)
    np.testing.assert_array_equal(np.asarray(again.values), np.asarray(q.values))
    stacked = quantize_leaf(("layers", 0, 0, "mlp", "up", "weight"), w, scheme, 32)
    np.testing.assert_array_equal(wide(stacked.dequantize()), wide(w))
    np.testing.assert_array_equal(wide(stacked[1].dequantize()), wide(w[1]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float32, wnp.bfloat16])
@pytest.mark.parametrize("outer", [(), (1,), (2, 2), (3, FEW_ROWS)])
@pytest.mark.parametrize("shape", [(5, 128), (3, 7), (4, 96)])
def test_products_are_those_of_the_dequantized_matrix(
    shape: tuple[int, ...], outer: tuple[int, ...], dtype: Any, scheme: str
) -> None:
    q = quantize_leaf(KEYS, matrix(shape), scheme, 64)
    x = matrix((*outer, shape[1]), dtype, seed=1)
    y = weft.jit(multiply_integers)(x, q)
    assert (y.shape, y.dtype) == ((*outer, shape[0]), x.dtype)
    want = wide(x) @ wide(q.dequantize()).T
    tolerance = 1e-5 if dtype is np.float32 else 2e-2
    np.testing.assert_allclose(wide(y), want, atol=tolerance * np.sqrt(shape[1]), rtol=tolerance)
    # Errors of a product: half a scale for each of its terms.
    bound = 0.5 * (np.abs(wide(x)) @ steps(q).T)
    assert (np.abs(want - wide(x) @ wide(matrix(shape)).T) <= bound * 1.001 + 1e-5).all()


def test_sums_of_float16_do_not_overflow() -> None:
    w, x = wnp.full((2, 1024), 2.0**-7, wnp.float16), wnp.ones((1, 1024), wnp.float16)
    np.testing.assert_allclose(wide(multiply_integers(x, quantize_leaf(KEYS, w, "int8"))), 8.0, rtol=1e-2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_few_rows_need_no_copy_of_the_matrix(scheme: str) -> None:
    q = quantize_leaf(KEYS, matrix((256, 512)), scheme, 32)
    for rows in (1, FEW_ROWS):
        text = str(weft.jit(multiply_integers).lower(matrix((rows, 512)), q).compile().program)
        used = int(text.split("temporaries ")[1].split()[0])
        assert used < 256 * 512, text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_products_under_transformations(scheme: str) -> None:
    stack = quantize_leaf(("layers", 0, 0, "mlp", "up", "weight"), matrix((3, 32, 32)), scheme)
    full, x = wide(stack.dequantize()), matrix((2, 32), seed=1)
    loop = weft.jit(lambda x, w: lax.scan(lambda c, one: (multiply_integers(c, one), None), x, w)[0])
    want = wide(x) @ full[0].T @ full[1].T @ full[2].T
    np.testing.assert_allclose(loop(x, stack), want, rtol=1e-4, atol=1e-3)
    each = weft.vmap(multiply_integers, in_axes=(None, 0))(x, stack)
    np.testing.assert_allclose(each, np.einsum("ri,noi->nro", wide(x), full), rtol=1e-4, atol=1e-4)
    mapped = weft.vmap(multiply_integers, in_axes=(0, None))(x, stack[0])
    np.testing.assert_allclose(mapped, wide(x) @ full[0].T, rtol=1e-4, atol=1e-4)
    gradient = weft.grad(lambda x: (multiply_integers(x, stack[1]) ** 2).sum())(x)
    np.testing.assert_allclose(gradient, 2 * wide(x) @ full[1].T @ full[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rows", [2, 12])
def test_experts_of_few_and_of_many_rows(rows: int, scheme: str) -> None:
    w, owners = matrix((4, 32, 6)), wnp.asarray(np.sort(np.arange(rows) * 3 % 4).astype(np.int32))
    sizes = wnp.asarray(np.bincount(np.asarray(owners), minlength=4).astype(np.int32))
    q = quantize_leaf(("mlp", "experts", "up"), w, scheme)
    x = matrix((rows, 32), seed=1)
    got = weft.jit(multiply_experts)(x, q, sizes, owners)
    want = np.stack([row @ wide(q.dequantize())[o].T for row, o in zip(wide(x), np.asarray(owners), strict=True)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("family", "scheme"),
    [("gpt2", "int4"), ("qwen3", "int8"), ("qwen3", "int4"), ("qwen2_moe", "int8"), ("qwen3_moe", "int4")],
)
def test_decoders_compute_with_their_dequantized_parameters(family: str, scheme: str) -> None:
    model = make(DECODERS[family])
    small = model.quantize(scheme, group=32)
    plain = model.replace(models.dequantize(small.params))
    assert weft.tree.structure(plain.params) == weft.tree.structure(model.params)
    ids = tokens(2, 9)
    np.testing.assert_allclose(small(ids), plain(ids), rtol=1e-3, atol=1e-3)
    prompts = [tokens(5).tolist(), tokens(3, seed=1).tolist()]
    found = small.generate(prompts, max_new_tokens=6, stop_tokens=())
    np.testing.assert_array_equal(found, plain.generate(prompts, max_new_tokens=6, stop_tokens=()))
    assert models.count_parameters(small.params) == models.count_parameters(model.params)


@pytest.mark.parametrize("fields", [ENCODERS["bert-masked"], PAIRS["clip"], SEQUENCES["t5"], SEQUENCES["whisper"]])
def test_other_models_compute_with_their_dequantized_parameters(fields: dict[str, Any]) -> None:
    model = make(fields)
    small = model.quantize("int8")
    plain = model.replace(models.dequantize(small.params))
    ids = tokens(2, 7)
    inputs = {"clip": (ids, images(2)), "bert": (ids,)}.get(fields["model_type"]) or (source(fields), ids)
    assert any(isinstance(leaf, Quantized) for leaf in leaves(small.params))
    np.testing.assert_allclose(small(*inputs), plain(*inputs), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("scheme", "ratio"), [("int8", 3.9), ("int4", 7.0)])
def test_matrices_shrink(scheme: str, ratio: float) -> None:
    model = models.read_config({**DECODERS["qwen3"], "hidden_size": 256, "intermediate_size": 512})
    params = models.init(model, weft.random.key(0))
    small = models.quantize(params, scheme)
    pairs = zip(leaves(params), leaves(small), strict=True)
    assert sum(q.nbytes for _, q in pairs if isinstance(q, Quantized)) > 0
    assert sum(w.nbytes for w in leaves(params)) / sum(w.nbytes for w in leaves(small)) > ratio
    again = models.quantize(small, "int8")
    assert [type(x) for x in leaves(again)] == [type(x) for x in leaves(small)]


def test_norms_routers_and_positions_stay() -> None:
    for family in ("gpt2", "qwen2_moe", "gemma2"):
        params = models.quantize(make(DECODERS[family]).params, "int4")
        named = weft.tree_util.tree_leaves_with_path(params, is_leaf=lambda x: isinstance(x, Quantized))
        for path, leaf in named:
            name = weft.tree_util.keystr(path)
            stays = any(part in name for part in ("norm", "after", "bias", "router", "positions", "shared_gate"))
            assert isinstance(leaf, Quantized) != stays, name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_adapters_of_quantized_models_learn(scheme: str) -> None:
    model = make(DECODERS["qwen3"]).quantize(scheme)
    params, adapters = models.add_lora(model.params, weft.random.key(0), rank=2)
    ids = wnp.asarray(tokens(2, 8))

    def loss(adapters: Any) -> Any:
        return models.next_token_loss(model, models.set_lora(params, adapters), ids, remat=True)

    before, gradient = weft.value_and_grad(loss)(adapters)
    after = weft.tree.map(lambda x, g: x - 0.02 * g, adapters, gradient)
    assert float(loss(after)) < float(before)
    changed = models.set_lora(params, after)
    merged = models.merge_lora(changed)
    np.testing.assert_allclose(model.apply(merged, ids), model.apply(changed, ids), rtol=1e-3, atol=1e-3)


def test_files(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["qwen3_moe"])
    model.save(tmp_path / "plain")
    ids = tokens(7)
    for scheme in SCHEMES:
        small = models.load(tmp_path / "plain", quantize=scheme)
        np.testing.assert_array_equal(small(ids), model.quantize(scheme)(ids))
        with pytest.raises(ArgumentError, match="dequantize"):
            small.save(tmp_path / "refused")
        assert not (tmp_path / "refused").exists()
        back = small.replace(models.dequantize(small.params))
        back.save(tmp_path / scheme)
        np.testing.assert_array_equal(models.load(tmp_path / scheme)(ids), back(ids))


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_matrices_stay_on_their_devices(tmp_path: pathlib.Path, family: str) -> None:
    make(DECODERS[family]).save(tmp_path)
    mesh = weft.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    spread = models.load(tmp_path, quantize="int8", sharding=models.shard(mesh))
    weight = spread.params["layers"][0][0]["attention"]["query"]["weight"]
    assert weight.values.sharding.shard_shape(weight.shape) != weight.shape
    np.testing.assert_allclose(spread(tokens(2, 9)), models.load(tmp_path, quantize="int8")(tokens(2, 9)), atol=1e-4)


def test_unknown_schemes_are_refused(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["gpt2"])
    with pytest.raises(ArgumentError, match="int8, int4"):
        model.quantize("float8")
    with pytest.raises(ArgumentError, match="int8, int4"):
        models.load(tmp_path, quantize="gptq")
    with pytest.raises(ArgumentError, match="even"):
        model.quantize("int4", group=33)
