"""Files of models with vocabularies, from Keras to Weft and back. Keras' layers of strings are TensorFlow's."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "jax"
peer = pytest.importorskip("keras")

from tests.keras.test_vocabularies import COLUMNS  # noqa: E402
from weft import keras  # noqa: E402

pytestmark = pytest.mark.peer
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
    layer = make(library, **({} if adapted else words))
    if adapted:
        layer.adapt(data)
    kind = "int64" if name == "integers" else "string"
    return library.Sequential([library.Input((1,), dtype=kind), layer])


def result(model: Any, name: str) -> Any:
    return np.asarray(model.layers[-1](CASES[name][1]))


# Weights of words come from `adapt` only.
GIVEN = [(name, False) for name, (_, _, options) in CASES.items() if options.get("vocabulary", ()) is not None]


@pytest.mark.parametrize(("name", "adapted"), [*((name, True) for name in CASES), *GIVEN])
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


def space_of(library: Any) -> Any:
    space = library.utils.FeatureSpace
    features = {
        "plain": "float",
        "normalized": "float_normalized",
        "bins": space.float_discretized(num_bins=3),
        "word": space.string_categorical(max_tokens=4),
        "integer": "integer_categorical",
        "hashed": space.string_hashed(num_bins=4),
    }
    crosses = [("word", "integer"), space.cross(("word", "hashed"), crossing_dim=5)]
    return space(features, crosses=crosses, crossing_dim=6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras
def test_feature_spaces(tmp_path: pathlib.Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    theirs, ours = space_of(peer), space_of(keras)
    theirs.adapt(tensorflow.data.Dataset.from_tensor_slices(COLUMNS))
    ours.adapt(COLUMNS)
    expected = np.array(theirs(COLUMNS))
    np.testing.assert_allclose(ours(COLUMNS), expected, rtol=1e-6)
    assert ours.get_encoded_features().shape == theirs.get_encoded_features().shape
    theirs.save(tmp_path / "theirs.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "theirs.keras")(COLUMNS), expected, rtol=1e-6)
