"""Files of models: what is written is read back, a model is never loaded by half, and a file runs nothing."""

from __future__ import annotations

import io
import json
import pathlib
import random
import zipfile
from typing import Any

import numpy as np
import pytest

from weft import keras
from weft.errors import ArgumentError, CheckpointMismatchError, FileFormatError, WeftError
from weft.keras.saving import weights


@keras.saving.register_keras_serializable(package="tests")
class Block(keras.layers.Layer):
    """Layers in attributes, in a list and in a dict."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.two = [keras.layers.Dense(units), keras.layers.Dense(units)]
        self.named = {"a": keras.layers.Dense(2)}
        self._last = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        for layer in self.two:
            x = layer(x)
        return self._last(self.named["a"](x))


def functional() -> Any:
    x = keras.Input((4,))
    h = keras.layers.BatchNormalization()(keras.layers.Dense(5, activation="relu")(x))
    return keras.Model(x, Block()(keras.layers.Dropout(0.5, seed=3)(h)))


@pytest.fixture
def trained() -> Any:
    model = functional()
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(np.ones((8, 4), np.float32), np.ones((8, 2), np.float32), epochs=2, verbose=0)
    return model


@pytest.fixture(params=["safetensors", "h5"])
def container(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What weights are written to: safetensors where h5py is missing."""
    if request.param == "h5":
        pytest.importorskip("h5py")
    else:
        monkeypatch.setattr(weights, "has_h5py", lambda: False)
    return request.param


def test_a_model_goes_on_where_it_was(trained: Any, container: str, tmp_path: pathlib.Path) -> None:
    """Weights, seeds and the optimizer: further training is the same, to the bit."""
    file = tmp_path / "model.keras"
    trained.save(file)
    assert f"model.weights.{container}" in zipfile.ZipFile(file).namelist()
    again = keras.models.load_model(file)
    x, y = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
    np.testing.assert_array_equal(trained.predict(x, verbose=0), again.predict(x, verbose=0))
    variables = [model.variables + model.optimizer.variables for model in (trained, again)]
    for one, other in zip(*variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.path)
    histories = [model.fit(x, y, epochs=2, shuffle=False, verbose=0).history for model in (trained, again)]
    assert histories[0] == histories[1]


def test_paths_are_keras(trained: Any) -> None:
    paths = list(weights.weights_of(trained))
    assert paths[:3] == ["", "layers/input_layer", "layers/dense"]
    inside = [path.removeprefix("layers/block/") for path in paths if path.startswith("layers/block/")]
    assert inside == ["named/dense", "two/dense", "two/dense_1", "_last"]
    assert paths[-1] == "optimizer" and "layers/dropout/seed_generator" in paths


@pytest.mark.parametrize("ending", [".safetensors", ".weights.h5"])
def test_weights_alone(trained: Any, ending: str, tmp_path: pathlib.Path) -> None:
    if ending.endswith("h5"):
        pytest.importorskip("h5py")
    file = tmp_path / f"w{ending}"
    trained.save_weights(file)
    other = functional()
    other.load_weights(file)
    for one, two in zip(trained.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    with pytest.raises(ArgumentError, match="exists"):
        trained.save_weights(file, overwrite=False)


def test_a_model_is_never_loaded_by_half(trained: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "w.safetensors"
    trained.save_weights(file)
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6), keras.layers.Dense(2)])
    before = [w.numpy() for w in other.weights]
    with pytest.raises(CheckpointMismatchError) as raised:
        other.load_weights(file)
    text = str(raised.value)
    assert "layers/dense/vars/0: (4, 5) in the file, (4, 6) in the model" in text
    assert "layers/dense_1/vars/0: missing" in text and "layers/block/two/dense" in text
    for one, two in zip(before, other.weights, strict=True):
        np.testing.assert_array_equal(one, two.numpy())
    with pytest.warns(UserWarning, match="are not those of"):
        other.load_weights(file, skip_mismatch=True)


def test_files_run_nothing(tmp_path: pathlib.Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x * 2)])
    with pytest.warns(UserWarning, match="lambda"):
        model.save(tmp_path / "lambda.keras")
    with pytest.raises(FileFormatError, match="code that would be run"):
        keras.models.load_model(tmp_path / "lambda.keras")
    again = keras.models.load_model(tmp_path / "lambda.keras", safe_mode=False)
    np.testing.assert_array_equal(again(np.ones((1, 3), np.float32)), np.full((1, 3), 2.0))
    other = {"module": "os", "class_name": "system", "config": "true"}
    edited = _edited(tmp_path / "lambda.keras", lambda config: {**config, **other})
    (tmp_path / "system.keras").write_bytes(edited)
    with pytest.raises(ArgumentError, match="not known"):
        keras.models.load_model(tmp_path / "system.keras")


def _edited(file: pathlib.Path, edit: Any, **more: str) -> bytes:
    """An archive with another config, and with more members."""
    out = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(out, "w") as changed:
        for name in archive.namelist():
            data = archive.read(name)
            changed.writestr(name, json.dumps(edit(json.loads(data))) if name == "config.json" else data)
        for name, text in more.items():
            changed.writestr(name, text)
    return out.getvalue()


@pytest.mark.parametrize("make", [keras.layers.StringLookup, keras.layers.TextVectorization])
def test_vocabularies(make: Any, tmp_path: pathlib.Path) -> None:
    layer = make()
    layer.adapt(np.array(["b", "a", "b"]))
    model, file = keras.Sequential([keras.Input((1,), dtype="string"), layer]), tmp_path / "model.keras"
    model.save(file)
    assert keras.models.load_model(file).layers[-1].get_vocabulary() == layer.get_vocabulary()

    def with_vocabulary(value: Any) -> Any:
        def edit(config: Any) -> Any:
            config["config"]["layers"][-1]["config"]["vocabulary"] = value
            return config

        return edit

    # As Keras writes what was adapted.
    text = "\n".join(layer.get_vocabulary())
    path = f"assets/layers/{'string_lookup' if make is keras.layers.StringLookup else 'text_vectorization'}"
    file.write_bytes(_edited(file, with_vocabulary(None), **{f"{path}/vocabulary.txt": text}))
    assert keras.models.load_model(file).layers[-1].get_vocabulary() == layer.get_vocabulary()
    # A file does not say which others are read.
    secret = tmp_path / "secret"
    secret.write_text("token\n")
    file.write_bytes(_edited(file, with_vocabulary(str(secret))))
    with pytest.raises(FileFormatError, match="name a file to be read as a vocabulary"):
        keras.models.load_model(file)
    assert "token" in keras.models.load_model(file, safe_mode=False).layers[-1].get_vocabulary()


def test_what_cannot_be_saved(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match=r"ends in \.keras"):
        functional().save(tmp_path / "model.h5")
    with pytest.raises(ArgumentError, match="no weights yet"):
        keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "model.keras")
    with pytest.raises(ArgumentError, match="There is no file"):
        keras.models.load_model(tmp_path / "nothing.keras")
    assert not list(tmp_path.iterdir())


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with some bytes changed, cut out, or repeated; or cut short."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(content))
        match rng.randrange(4):
            case 0:
                content[at] = rng.randrange(256)
            case 1:
                del content[at : at + rng.randrange(1, 50)]
            case 2:
                content[at:at] = content[at : at + rng.randrange(1, 50)]
            case 3:
                content[at : at + 4] = rng.randbytes(4)
    return bytes(content[: rng.randrange(1, len(content))] if rng.random() < 0.1 else content)


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_files(count: int, container: str, tmp_path: pathlib.Path) -> None:
    """Each is read, or one of Weft's errors says what is wrong."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.save(tmp_path / "model.keras")
    data = (tmp_path / "model.keras").read_bytes()
    rng = random.Random(count)
    for n in range(count):
        (tmp_path / "changed.keras").write_bytes(mutated(data, rng))
        try:
            keras.models.load_model(tmp_path / "changed.keras")
        except WeftError:
            pass
        except Exception as error:
            raise AssertionError(f"file {n}: {type(error).__name__}: {error}") from error


def test_weights_in_several_files(trained: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("h5py")
    file = tmp_path / "model.weights.json"
    trained.save_weights(file, max_shard_size=3e-7)
    shards = sorted(path.name for path in tmp_path.glob("*.h5"))
    assert len(shards) > 1 and shards[0] == "model_00000.weights.h5"
    expected = [np.array(weight) for weight in trained.get_weights()]
    trained.set_weights([np.zeros_like(weight) for weight in expected])
    trained.load_weights(file)
    for found, weight in zip(trained.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, weight)
    with pytest.raises(ArgumentError, match="is in one file"):
        trained.save_weights(file, max_shard_size=1e-9)
    for names in (["../other.weights.h5"], ["missing.weights.h5"], [3], {"a": 1}):
        file.write_text(json.dumps({"weight_map": {"/vars": names}}))
        with pytest.raises(FileFormatError):
            trained.load_weights(file)


def test_weights_of_a_trained_model_in_one_that_is_only_compiled(
    trained: Any, container: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / ("model.weights.h5" if container == "h5" else "model.safetensors")
    trained.save_weights(file)
    fresh = functional()
    fresh.compile("adam", "mse")
    fresh.load_weights(file)
    # The optimizer goes on where it was, though this one had not been built.
    assert int(fresh.optimizer.iterations) == 2
    for one, other in zip(trained.optimizer.variables, fresh.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    # Another optimizer stays as it is, and the weights are loaded.
    other = functional()
    other.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="optimizer of .* is another one"):
        other.load_weights(file)
    np.testing.assert_array_equal(other.get_weights()[0], trained.get_weights()[0])
    assert int(other.optimizer.iterations) == 0
    # What a layer does not have is an error as before, and nothing is assigned.
    wider = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    wider.compile("sgd", "mse")
    before = wider.get_weights()
    with pytest.raises(CheckpointMismatchError):
        wider.load_weights(file)
    np.testing.assert_array_equal(before[0], wider.get_weights()[0])
