"""Weights of models in other libraries' form come back, and errors list all that does not fit."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from weft import keras
from weft.keras import convert


def model() -> Any:
    """Layers of several kinds, one of them in a model inside."""
    inner = keras.Sequential([keras.layers.Dense(3, use_bias=False, name="second")], name="inner")
    return keras.Sequential(
        [keras.Input((5,), dtype="int32"), keras.layers.Embedding(7, 4, name="words"), inner, keras.layers.Dense(2)]
    )


def cleared(one: Any) -> None:
    one.set_weights([np.zeros_like(weight) for weight in one.get_weights()])


def through_file(one: Any, folder: pathlib.Path) -> None:
    convert.to_safetensors(one, folder / "weights.safetensors")
    cleared(one)
    convert.from_safetensors(one, folder / "weights.safetensors")


WAYS = {
    "torch": (convert.to_torch, convert.from_torch),
    "linen": (convert.to_linen, convert.from_linen),
    "haiku": (convert.to_haiku, lambda one, stored, names: convert.from_haiku(one, *stored, names=names)),
}


@pytest.mark.parametrize("way", WAYS)
def test_round_trips(way: str) -> None:
    to, back = WAYS[way]
    one = model()
    before = one.get_weights()
    names = {"inner/second": "other" if way != "torch" else "blocks.0"}
    stored: Any = to(one, names)
    cleared(one)
    back(one, stored, names)
    for weight, want in zip(one.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, want)


def test_safetensors(tmp_path: pathlib.Path) -> None:
    one = model()
    before = one.get_weights()
    through_file(one, tmp_path)
    for weight, want in zip(one.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, want)


def test_all_differences_are_listed_and_nothing_is_assigned() -> None:
    one = model()
    before = one.get_weights()
    stored = convert.to_torch(one)
    stored["words.weight"] = np.zeros((8, 4), np.float32)
    stored["unknown.weight"] = np.zeros(3, np.float32)
    dense = convert.layer_paths(one)[-1]
    del stored[f"{dense}.bias"]
    with pytest.raises(ValueError) as caught:
        convert.from_torch(one, stored)
    for part in ("(8, 4) for words/embeddings (7, 4)", "no layer for unknown.weight (3,)", f"nothing for {dense}/bias"):
        assert part in str(caught.value), str(caught.value)
    for weight, want in zip(one.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, want)
    with pytest.raises(ValueError, match="inner/second"):
        convert.to_torch(one, {"inner/third": "x"})
    with pytest.raises(ValueError, match="2 modules"):
        convert.names_by_order(one, {"a.weight": 0, "a.bias": 0, "b.weight": 0})
