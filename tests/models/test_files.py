"""Checkpoints: files return what was saved, and what does not fit is one clear error."""

from __future__ import annotations

import json
import pathlib
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.models.tiny import ALL, DECODERS, make, tokens
from weft import models
from weft.errors import ArgumentError, CheckpointMismatchError, FileFormatError
from weft.models import files, names, parameters


def close(got: Any, want: Any, tolerance: float) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * float(np.abs(np.asarray(want)).max()))


@pytest.mark.parametrize("family", sorted(ALL))
def test_files_return_what_was_saved(family: str, tmp_path: pathlib.Path) -> None:
    model = make(ALL[family])
    model.save(tmp_path / "one")
    model.save(tmp_path / "many", largest=10_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    for folder in ("one", "many"):
        loaded = models.load(tmp_path / folder)
        assert weft.tree.structure(loaded.params) == weft.tree.structure(model.params)
        for a, b in zip(*map(weft.tree.leaves, (loaded.params, model.params)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("family", sorted(ALL))
def test_each_parameter_has_one_name(family: str) -> None:
    config = models.read_config(ALL[family])
    table = models.families.find_names(config)
    paths = list(parameters.shapes(config))
    written = names.write_tensors(paths, table, config)
    pieces = [piece.path for tensor in written for piece in tensor.pieces]
    assert sorted(pieces) == sorted(paths)
    for tensor in written:
        path = names.find_path(tensor.name, table)
        assert path is not None
        assert names.read_tensor(tensor.name, path, config) == tensor


def rewrite(folder: pathlib.Path, change: Any) -> None:
    """Write the tensors of a checkpoint again, changed."""
    source = files.SafetensorsFolder(str(folder))
    arrays = {name: np.array(source.read(name)) for name in source.shapes}
    change(arrays)
    (folder / "model.safetensors").write_bytes(b"".join(files.tensor_file.chunks(list(arrays.items()))))


def test_one_error_lists_all_tensors_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    make(DECODERS["qwen3"]).save(tmp_path)

    def change(arrays: dict[str, np.ndarray]) -> None:
        del arrays["model.layers.2.mlp.up_proj.weight"]
        arrays["surprise"] = np.zeros(3, np.float32)
        arrays["model.layers.1.self_attn.rotary_emb.inv_freq"] = np.zeros(3, np.float32)  # a table that is not needed
        arrays["model.norm.weight"] = np.zeros(7, np.float32)

    rewrite(tmp_path, change)
    with pytest.raises(CheckpointMismatchError) as caught:
        models.load(tmp_path)
    text = str(caught.value)
    assert "1 missing: layers.2.mlp.up.weight." in text
    assert "1 extra: surprise." in text
    assert "1 misshapen: model.norm.weight is (7,), must be (32,)." in text


def test_a_bare_model_has_no_prefix(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["gpt2"])
    model.save(tmp_path)

    def change(arrays: dict[str, np.ndarray]) -> None:
        for name in list(arrays):
            arrays[name.removeprefix("transformer.")] = arrays.pop(name)

    rewrite(tmp_path, change)
    np.testing.assert_array_equal(models.load(tmp_path)(tokens(5)), model(tokens(5)))


def test_dtypes_are_cast_on_the_way(tmp_path: pathlib.Path) -> None:
    make(DECODERS["llama"]).save(tmp_path)
    short = models.load(tmp_path, dtype=wnp.bfloat16)
    assert {leaf.dtype for leaf in weft.tree.leaves(short.params)} == {wnp.dtype("bfloat16")}
    close(short(tokens(6)), models.load(tmp_path)(tokens(6)), 0.1)
    short.save(tmp_path / "short")
    assert json.loads((tmp_path / "short" / "config.json").read_text())["dtype"] == "bfloat16"
    assert models.load(tmp_path / "short").params["norm"]["weight"].dtype == wnp.bfloat16


def test_a_process_reads_only_the_rows_of_its_devices(tmp_path: pathlib.Path) -> None:
    model = make(DECODERS["llama"])
    model.save(tmp_path)
    source = files.SafetensorsFolder(str(tmp_path))
    config = models.read_config(tmp_path)
    places, wanted = files.find_places(config, source, "here"), parameters.shapes(config)
    leaf = next(leaf for leaf in parameters.leaves(config) if leaf.name == "layers.0.0.mlp.up.weight")
    index = (slice(1, 3), slice(12, 24), slice(0, 32))
    block = files._fill(leaf, np.dtype(np.float32), places, source, wanted, index)
    np.testing.assert_array_equal(block, np.asarray(model.params["layers"][0][0]["mlp"]["up"]["weight"])[index])


@pytest.mark.parametrize(
    ("write", "error", "text"),
    [
        ({}, FileFormatError, "must have a config.json"),
        ({"config.json": "{"}, FileFormatError, "must be valid JSON"),
        ({"config.json": "[]"}, FileFormatError, "one JSON object"),
        ({"config.json": '{"model_type": "nonesuch"}'}, ArgumentError, "'nonesuch'"),
        ({"config.json": '{"model_type": "llama"}'}, ArgumentError, "must have the field"),
        ({"config.json": "llama"}, FileFormatError, "must have model.safetensors"),
        ({"config.json": "llama", "pytorch_model.bin": "x"}, FileFormatError, "a pickle runs code"),
        ({"config.json": "llama", "model.safetensors": "x"}, FileFormatError, "No safetensors file"),
        ({"config.json": "llama", "model.safetensors.index.json": "{}"}, FileFormatError, "weight_map"),
        (
            {"config.json": "llama", "model.safetensors.index.json": '{"weight_map": {"a": "../b.safetensors"}}'},
            FileFormatError,
            "in its folder",
        ),
        (
            {"config.json": "llama", "model.safetensors.index.json": '{"weight_map": {"a": "b.safetensors"}}'},
            FileFormatError,
            "no b.safetensors",
        ),
    ],
)
def test_folders_that_are_no_models(
    write: dict[str, str], error: type[Exception], text: str, tmp_path: pathlib.Path
) -> None:
    for name, content in write.items():
        (tmp_path / name).write_text(json.dumps(DECODERS["llama"]) if content == "llama" else content)
    with pytest.raises(error, match=text):
        models.load(tmp_path)


def test_a_name_that_is_no_folder() -> None:
    with pytest.raises(ArgumentError, match="must be a folder"):
        models.load("./no/such/folder")


def test_a_header_with_no_tensors_is_an_error(tmp_path: pathlib.Path) -> None:
    make(DECODERS["llama"]).save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(CheckpointMismatchError, match="missing"):
        models.load(tmp_path)


@pytest.mark.slow
def test_a_process_never_holds_a_large_checkpoint(tmp_path: pathlib.Path) -> None:
    """One of 256 processes loads its rows of 70 billion parameters, from a file whose bytes are holes."""
    shape = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "vocab_size": 128256}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8}
    config = models.read_config({"model_type": "llama", **shape, **heads})
    wanted = parameters.shapes(config)
    assert 69e9 < sum(int(np.prod(size)) for size in wanted.values()) < 72e9
    header, end = {}, 0
    for tensor in names.write_tensors(wanted, models.families.find_names(config), config):
        size = wanted[tensor.pieces[0].path]
        nbytes = 2 * int(np.prod(size))
        header[tensor.name] = {"dtype": "BF16", "shape": list(size), "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header).encode()
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)

    source = files.SafetensorsFolder(str(tmp_path))
    places = files.find_places(config, source, "here")
    own = 0
    tracemalloc.start()
    blocks = []
    for leaf in parameters.leaves(config):
        index = [slice(0, size) for size in leaf.shape]
        if len(leaf.shape) > 1 and leaf.shape[-2] % 256 == 0:
            index[-2] = slice(0, leaf.shape[-2] // 256)
        blocks.append(files._fill(leaf, wnp.dtype("bfloat16"), places, source, wanted, tuple(index)))
        own += blocks[-1].nbytes
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert own < 141e9 / 200
    assert peak < 1.1 * own
