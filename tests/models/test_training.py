"""Training: packing, adapters, many devices and resuming give the numbers of the plain computation."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.models.tiny import DECODERS, make, tokens
from weft import models, optim
from weft.errors import ArgumentError
from weft.sharding import AxisType, NamedSharding, PartitionSpec


def close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance)


def train(
    model: models.Model, params: Any, batches: Any, steps: int, state: Any = None
) -> tuple[Any, Any, list[float]]:
    """Take steps of Adam, and return the parameters, the state and the losses."""
    optimizer = optim.adam(1e-2)
    state = optimizer.init(params) if state is None else state

    @weft.jit
    def step(params: Any, state: Any, ids: Any) -> tuple[Any, Any, Any]:
        loss, gradient = weft.value_and_grad(lambda p: models.next_token_loss(model, p, ids))(params)
        change, state = optimizer.update(gradient, state, params)
        return optim.apply_updates(params, change), state, loss

    losses = []
    for i in range(steps):
        params, state, loss = step(params, state, batches(i))
        losses.append(float(loss))
    return params, state, losses


def test_packed_texts_have_the_loss_of_single_ones() -> None:
    model = make(DECODERS["qwen3"])
    texts = [tokens(n, seed=n) for n in (5, 3, 9, 4, 12)]
    ids, pieces = models.pack_texts([text.tolist() for text in texts], 14)
    assert sorted(len(text) for text in texts) == sorted(
        int((row == n).sum()) for row in pieces for n in range(row.max() + 1)
    )
    packed = models.next_token_loss(model, model.params, wnp.asarray(ids), pieces=wnp.asarray(pieces))
    single = [float(models.next_token_loss(model, model.params, wnp.asarray(text[None]))) for text in texts]
    weights = [len(text) - 1 for text in texts]
    close(packed, np.average(single, weights=weights))


def test_long_texts_are_cut() -> None:
    ids, pieces = models.pack_texts([[1, 2, 3, 4, 5]], 3)
    assert ids.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert pieces.tolist() == [[0, 0, 0], [0, 0, -1]]
    with pytest.raises(ArgumentError, match="at least one"):
        models.pack_texts([[1]], 0)


def test_adapters_begin_as_nothing_and_merge_into_the_matrices(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["qwen2_moe"])
    params, adapters = models.add_lora(model.params, weft.random.key(0), rank=2, targets=r"\.(query|shared\.up)$")
    assert {name.rpartition(".")[2] for name in adapters} == {"query", "up"}
    ids = wnp.asarray(tokens(2, 7))
    close(model.apply(params, ids), model(ids), 0)
    changed = weft.tree.map(lambda x: x + 0.1, adapters)
    params = models.set_lora(model.params, changed)
    assert np.abs(np.asarray(model.apply(params, ids)) - np.asarray(model(ids))).max() > 0.1
    merged = model.replace(models.merge_lora(params))
    assert weft.tree.structure(merged.params) == weft.tree.structure(model.params)
    close(merged(ids), model.apply(params, ids), 1e-4)
    merged.save(tmp_path)
    np.testing.assert_array_equal(models.load(tmp_path)(ids), merged(ids))
    with pytest.raises(ArgumentError, match="targets"):
        models.add_lora(model.params, weft.random.key(0), targets="nonesuch")


def test_only_adapters_are_trained() -> None:
    model = make(DECODERS["gpt2"])
    _, adapters = models.add_lora(model.params, weft.random.key(0), rank=2)
    optimizer = optim.adam(2e-2)
    state, ids = optimizer.init(adapters), wnp.asarray(tokens(2, 9))

    @weft.jit
    def step(adapters: Any, state: Any) -> tuple[Any, Any, Any]:
        loss, gradient = weft.value_and_grad(
            lambda a: models.next_token_loss(model, models.set_lora(model.params, a), ids, remat=True)
        )(adapters)
        change, state = optimizer.update(gradient, state)
        return optim.apply_updates(adapters, change), state, loss

    losses = []
    for _ in range(8):
        adapters, state, loss = step(adapters, state)
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.slow
def test_short_floats_follow_the_loss() -> None:
    model = make(DECODERS["llama"], spread=0.05)
    ids = wnp.asarray(tokens(2, 9))
    gradient = weft.grad(lambda p: models.next_token_loss(model, models.cast(p, wnp.bfloat16), ids))(model.params)
    want = weft.grad(lambda p: models.next_token_loss(model, p, ids))(model.params)
    for a, b in zip(*map(weft.tree.leaves, (gradient, want)), strict=True):
        assert a.dtype == np.float32
        assert np.abs(np.asarray(a - b)).max() <= 0.1 * max(1e-3, np.abs(np.asarray(b)).max())


def test_each_device_has_its_part(tmp_path: pathlib.Path) -> None:
    make(DECODERS["qwen3"]).save(tmp_path)
    mesh = weft.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    loaded = models.load(tmp_path, sharding=models.shard(mesh)).params
    for path in ("query", "output"):
        matrix = loaded["layers"][0][0]["attention"][path]["weight"]
        assert {shard.data.size for shard in matrix.addressable_shards} == {matrix.size // 8}
    whole = models.load(tmp_path).params
    for a, b in zip(*map(weft.tree.leaves, (loaded, whole)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_eight_devices_have_the_losses_of_one(family: str, tmp_path: pathlib.Path) -> None:
    model = make(DECODERS[family])
    model.save(tmp_path)
    batches = lambda i: wnp.asarray(tokens(8, 10, seed=i))
    _, _, want = train(model, model.params, batches, 3)
    mesh = weft.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    spread = models.load(tmp_path, sharding=models.shard(mesh))
    up = spread.params["layers"][0][0]["mlp"]["up"]["weight"]
    assert up.sharding.spec == PartitionSpec(None, "model", "data")
    assert {shard.data.size for shard in up.addressable_shards} == {up.size // 8}
    place = lambda i: weft.device_put(batches(i), NamedSharding(mesh, PartitionSpec("data")))
    params, _, got = train(spread, spread.params, place, 3)
    close(got, want, 1e-4)
    assert params["layers"][0][0]["mlp"]["up"]["weight"].sharding.spec == up.sharding.spec
    prompts = tokens(2, 5)
    np.testing.assert_array_equal(
        spread.generate(prompts, 8, stop_tokens=()), model.generate(prompts, 8, stop_tokens=())
    )


def test_training_resumes(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["gpt2"])
    batches = lambda i: wnp.asarray(tokens(2, 8, seed=i))
    whole, _, losses = train(model, model.params, batches, 4)
    params, state, first = train(model, model.params, batches, 2)
    manager = weft.checkpointing.CheckpointManager(tmp_path)
    manager.save(2, (params, state))
    manager.wait_until_finished()
    params, state = manager.restore(2, (params, state))
    again, _, second = train(model, params, lambda i: batches(i + 2), 2, state)
    assert [*first, *second] == losses
    for a, b in zip(*map(weft.tree.leaves, (whole, again)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_masked_tokens_have_no_loss() -> None:
    model = make(DECODERS["gpt2"])
    ids = wnp.asarray(tokens(1, 8))
    mask = np.arange(8)[None] >= 5
    logits = np.asarray(weft.nn.log_softmax(model(ids)))[0]
    want = -np.mean([logits[i - 1, int(ids[0, i])] for i in range(5, 8)])
    close(models.next_token_loss(model, model.params, ids, mask=wnp.asarray(mask)), want)
