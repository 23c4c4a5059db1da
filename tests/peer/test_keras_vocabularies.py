"""Files of models with vocabularies, from Keras to Weft and back. Keras' layers of strings are TensorFlow's."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "jax"
peer = pytest.importorskip("keras")
pytest.importorskip("tensorflow")

from weft import keras  # noqa: E402

TEXTS = ["the cat sat", "the dog sat down", "a cat and a dog", "the end"]
WORDS = np.array([["the"], ["cat"], ["dog"], ["the"], ["a"]])
NUMBERS = np.array([[7], [3], [7], [12], [3], [7]])
CASES: dict[str, Any] = {
    "strings": (lambda k, **o: k.layers.StringLookup(**o), WORDS, {}),
    "several unknown": (lambda k, **o: k.layers.StringLookup(num_oov_indices=3, mask_token="", **o), WORDS, {}),
    "integers": (lambda k, **o: k.layers.IntegerLookup(**o), NUMBERS, {"vocabulary": [3, 7]}),
    "weighted": (lambda k, **o: k.layers.StringLookup(output_mode="tf_idf", **o), WORDS, {"vocabulary": None}),
    "texts": (lambda k, **o: k.layers.TextVectorization(output_sequence_length=4, **o), np.array(TEXTS), {}),
    "bags": (
        lambda k, **o: k.layers.TextVectorization(output_mode="tf_idf", **o),
        np.array(TEXTS),
        {"vocabulary": None},
    ),
}


def model_of(library: Any, name: str, adapted: bool) -> Any:
    make, data, options = CASES[name]
    words = {"vocabulary": ["the", "cat"], **options}
    if not adapted and words["vocabulary"] is None:
        pytest.skip("weights come from adapt")
    layer = make(library, **({} if adapted else words))
    if adapted:
        layer.adapt(data)
    kind = "int64" if name == "integers" else "string"
    return library.Sequential([library.Input((1,), dtype=kind), layer])


def result(model: Any, name: str) -> Any:
    return np.asarray(model.layers[-1](CASES[name][1]))


@pytest.mark.parametrize("adapted", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_vocabularies_go_both_ways(name: str, adapted: bool, tmp_path: pathlib.Path) -> None:
    theirs, ours = model_of(peer, name, adapted), model_of(keras, name, adapted)
    np.testing.assert_allclose(result(ours, name), result(theirs, name), rtol=1e-6)
    theirs.save(tmp_path / "theirs.keras")
    ours.save(tmp_path / "ours.keras")
    read = keras.models.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(result(read, name), result(theirs, name), rtol=1e-6)
    assert read.layers[-1].get_vocabulary() == theirs.layers[-1].get_vocabulary()
    back = peer.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_allclose(result(back, name), result(ours, name), rtol=1e-6)
