"""GGUF files that the `gguf` package writes: the same logits as the model that they were made from."""

from __future__ import annotations

import pathlib
from typing import Any

import gguf
import numpy as np
import pytest

from tests.models.tiny import DECODERS, make, tokens
from weft import models
from weft.errors import ArgumentError, CheckpointMismatchError, FileFormatError
from weft.models import gguf_files, names, parameters

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
TYPES = gguf.GGMLQuantizationType


def write(path: pathlib.Path, model: models.Model, kind: Any, leave_out: str = "") -> None:
    """Write a model as llama.cpp's converter does: rows of Llama's heads in pairs, Gemma's norms plus 1."""
    config, tower = model.config, model.config.tower
    family = config.family.removesuffix("_text")
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(len(tower.kinds))
    writer.add_context_length(config.context)
    writer.add_embedding_length(tower.width)
    writer.add_feed_forward_length(tower.hidden)
    writer.add_head_count(tower.heads)
    writer.add_head_count_kv(tower.key_heads)
    writer.add_key_length(tower.head_size)
    writer.add_layer_norm_rms_eps(tower.epsilon)
    if window := config.raw.get("sliding_window"):
        writer.add_sliding_window(window)
    values = parameters.flat(model.params, config)
    inner = {path: name for name, path in gguf_files._LAYER.items() if family == "gemma2" or name[:5] != "post_"}
    inner |= {"pre_feedforward_layernorm": "ffn_norm"} if family == "gemma2" else {}
    outer = {path: name for name, path in gguf_files._OUTER.items()}
    for tensor in names.write_tensors(values, models.families.find_names(config), config):
        array = values[tensor.pieces[0].path]()
        stem, _, ending = tensor.name.rpartition(".")
        own = outer.get(stem) or f"blk.{stem.split('.')[2]}.{inner[stem.split('.', 3)[3]]}"
        if own == leave_out:
            continue
        if family == "llama" and own.endswith(("attn_q", "attn_k")):
            heads = tower.heads if own.endswith("q") else tower.key_heads
            array = array.reshape(heads, 2, -1, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        if family == "gemma2" and "norm" in own:
            array = array + 1
        if array.ndim == 1 or kind == TYPES.F32:
            writer.add_tensor(f"{own}.{ending}", array)
        else:
            writer.add_tensor(f"{own}.{ending}", gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kind", "tolerance"), [(TYPES.F32, 1e-6), (TYPES.F16, 2e-3), (TYPES.Q8_0, 0.03), (TYPES.Q4_0, 0.5)]
)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2"])
def test_logits(family: str, kind: Any, tolerance: float, tmp_path: pathlib.Path) -> None:
    fields = {**DECODERS[family], **WIDE, "rope_parameters": None, "use_sliding_window": False}
    if family == "gemma2":
        fields |= {"query_pre_attn_scalar": 16, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    model = make(fields, spread=0.05)
    write(tmp_path / "model.gguf", model, kind)
    loaded = models.load(tmp_path / "model.gguf")
    want, got = np.asarray(model(tokens(9))), np.asarray(loaded(tokens(9)))
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    loaded.save(tmp_path / "folder")
    np.testing.assert_array_equal(models.load(tmp_path / "folder")(tokens(9)), got)


def test_blocks_of_four_bits_with_their_own_scales(tmp_path: pathlib.Path) -> None:
    numbers = np.random.default_rng(0)
    blocks = numbers.integers(0, 256, (8, 144), np.uint8)
    blocks[:, :4] = np.array([0.01, 0.005], np.float16).view(np.uint8)  # scales of the scales
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("output.weight", blocks, raw_shape=(8, 144), raw_dtype=TYPES.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = gguf_files.GgufFile(str(tmp_path / "x.gguf")).read("lm_head.weight")
    assert found.shape == (8, 256)
    # The first 32 numbers of a block: 4 bits, times a 6-bit scale, minus a 6-bit offset.
    scale, offset = 0.01 * (blocks[:, 4] & 63), 0.005 * (blocks[:, 8] & 63)
    np.testing.assert_allclose(
        found[:, :32], (blocks[:, 16:48] & 15) * scale[:, None] - offset[:, None], rtol=1e-3, atol=1e-3
    )


def test_files_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no such file")
    with pytest.raises(FileFormatError, match="No GGUF file"):
        models.load(tmp_path / "x.gguf")
    writer = gguf.GGUFWriter(tmp_path / "y.gguf", "nonesuch")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ArgumentError, match="nonesuch"):
        models.load(tmp_path / "y.gguf")
    write(tmp_path / "z.gguf", make({**DECODERS["qwen3"], **WIDE}), TYPES.F32, leave_out="blk.1.ffn_up")
    with pytest.raises(CheckpointMismatchError, match=r"1 missing: layers\.1\.mlp\.up"):
        models.load(tmp_path / "z.gguf")
