"""Files of models with vocabularies that Keras wrote, and what its layers computed: Keras' need TensorFlow, ours do
not. tests/peer/test_keras_vocabularies.py compares both where TensorFlow is installed."""

from __future__ import annotations

import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

from weft import keras

FOLDER = pathlib.Path(__file__).parent / "vocabularies"
RESULTS = json.loads((FOLDER / "results.json").read_text())
TEXTS = ["the cat sat", "the dog sat down", "a cat and a dog", "the end"]
WORDS = [["the"], ["cat"], ["dog"], ["the"], ["a"]]
INPUTS: dict[str, Any] = {
    "strings": WORDS,
    "several unknown": WORDS,
    "integers": [[7], [3], [7], [12], [3], [7]],
    "weighted": WORDS,
    "texts": TEXTS,
    "bags": TEXTS,
}
COLUMNS = {
    "plain": np.array([1.0, 2.0, 3.0, 4.0], "float32"),
    "normalized": np.array([1.0, 2.0, 3.0, 4.0], "float32"),
    "bins": np.array([0.1, 0.5, 0.9, 0.95], "float32"),
    "word": np.array(["x", "y", "x", "z"]),
    "integer": np.array([3, 4, 3, 5]),
    "hashed": np.array(["p", "q", "r", "s"]),
}


def file_of(name: str) -> pathlib.Path:
    return FOLDER / f"{name.replace(' ', '_')}.keras"


@pytest.mark.parametrize("name", INPUTS)
def test_layers_in_files_of_keras(name: str) -> None:
    pytest.importorskip("h5py")
    layer = keras.models.load_model(file_of(name)).layers[-1]
    np.testing.assert_allclose(layer(np.array(INPUTS[name])), RESULTS[name], rtol=1e-6)


@pytest.mark.parametrize("name", INPUTS)
def test_layers_that_have_seen_the_same_data(name: str) -> None:
    with zipfile.ZipFile(file_of(name)) as archive:
        described = json.loads(archive.read("config.json"))["config"]["layers"][-1]
    config = {**described["config"], "vocabulary": None, "idf_weights": None, "dtype": None}
    layer = getattr(keras.layers, described["class_name"]).from_config(config)
    layer.adapt(np.array(INPUTS[name]))
    np.testing.assert_allclose(layer(np.array(INPUTS[name])), RESULTS[name], rtol=1e-6)


def test_columns_in_a_file_of_keras() -> None:
    pytest.importorskip("h5py")
    space = keras.models.load_model(FOLDER / "columns.keras")
    np.testing.assert_allclose(space(COLUMNS), RESULTS["columns"], rtol=1e-6)
