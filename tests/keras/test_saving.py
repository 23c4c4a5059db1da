"""Files of models: what is written is read back, a model is never loaded by half, and a file runs nothing."""

from __future__ import annotations

import copy
import io
import json
import pathlib
import pickle
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
    paths = list(weights.collect_weights(trained))
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
    with pytest.raises(FileFormatError, match="must be a dict"):
        keras.models.load_model(tmp_path / "system.keras")
    for module, name in (("os", "system"), ("keras.ops", "arange"), ("keras.callbacks", "CSVLogger")):
        calls = {"module": module, "class_name": name, "config": {"stop": 10**9}}
        (tmp_path / "calls.keras").write_bytes(_edited(tmp_path / "lambda.keras", calls.__ror__))
        with pytest.raises(ArgumentError if module != "keras.ops" else FileFormatError):
            keras.models.load_model(tmp_path / "calls.keras")


def test_a_graph_computes_nothing_with_arguments_of_a_file(tmp_path: pathlib.Path) -> None:
    """Graphs of operations load; calls without a tensor of the model are refused."""
    x = keras.Input((4,))
    model = keras.Model(x, keras.ops.mean(keras.ops.concatenate([x, x * 2], axis=1), axis=-1))
    file, value = tmp_path / "graph.keras", np.arange(8, dtype=np.float32).reshape(2, 4)
    model.save(file)
    again = keras.models.load_model(file)
    np.testing.assert_array_equal(again.predict(value, verbose=0), model.predict(value, verbose=0))

    def without_tensor(config: Any) -> Any:
        layer = next(layer for layer in config["config"]["layers"] if layer["inbound_nodes"])
        layer["inbound_nodes"] = [{"args": [10**9, 2], "kwargs": {}}]
        return config

    file.write_bytes(_edited(file, without_tensor))
    with pytest.raises(FileFormatError, match="must have a tensor"):
        keras.models.load_model(file)


def test_a_model_larger_than_its_weights_is_refused(tmp_path: pathlib.Path) -> None:
    """The sizes of a config are compared with the bytes of the file before anything is allocated."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.save(tmp_path / "model.keras")

    def enlarged(config: Any) -> Any:
        config["config"]["layers"][1]["config"]["units"] = 2**36
        return config

    (tmp_path / "large.keras").write_bytes(_edited(tmp_path / "model.keras", enlarged))
    with pytest.raises(FileFormatError, match="more weights than it stores"):
        keras.models.load_model(tmp_path / "large.keras")


def test_arrays_that_declare_more_than_is_stored(tmp_path: pathlib.Path) -> None:
    h5py = pytest.importorskip("h5py")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    for options in ({}, {"chunks": (1 << 20,), "compression": "gzip"}):
        file = tmp_path / "w.weights.h5"
        model.save_weights(file)
        with h5py.File(file, "a") as opened:
            del opened["layers/dense/vars/0"]
            opened.create_dataset("layers/dense/vars/0", shape=(1 << 36,), dtype="f4", **options)
        with pytest.raises(FileFormatError, match="must not declare more bytes"):
            model.load_weights(file)


def test_shared_layers_are_shared_again(tmp_path: pathlib.Path) -> None:
    shared = keras.layers.Dense(4)
    inner = []
    for name in ("a", "b"):
        x = keras.Input((4,))
        inner.append(keras.Model(x, keras.layers.ReLU()(shared(x)), name=name))
    x = keras.Input((4,))
    model = keras.Model(x, inner[1](inner[0](x)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.get_layer("a").layers[1] is again.get_layer("b").layers[1] and len(again.weights) == 2
    value = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(again.predict(value, verbose=0), model.predict(value, verbose=0))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_trained_models(trained: Any, duplicate: Any) -> None:
    """A copy has variables of its own and goes on alone; the programs of `fit` are not copied."""
    again = duplicate(trained)
    x, y = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
    np.testing.assert_array_equal(again.predict(x, verbose=0), trained.predict(x, verbose=0))
    steps = int(trained.optimizer.iterations)
    again.fit(x, y, verbose=0)
    assert int(again.optimizer.iterations) == steps + 1 and int(trained.optimizer.iterations) == steps


def test_folders_and_file_objects(trained: Any, container: str, tmp_path: pathlib.Path) -> None:
    trained.save(tmp_path / "folder", zipped=False)
    assert (tmp_path / "folder" / f"model.weights.{container}").is_file()
    stream = io.BytesIO()
    trained.save(stream)
    stream.seek(0)
    for source in (tmp_path / "folder", stream):
        for one, other in zip(trained.weights, keras.models.load_model(source).weights, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    with pytest.raises(ArgumentError, match=r"cannot end in \.keras"):
        trained.save(tmp_path / "model.keras", zipped=False)


def test_weights_are_renamed_for_another_model(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = lambda names: keras.Sequential([keras.Input((3,)), *[keras.layers.Dense(3) for _ in names]])
    model, target, file = make("a"), make("ab"), tmp_path / "w.safetensors"
    model.save_weights(file)
    editor = keras.saving.KerasFileEditor(file)
    assert editor.compare(model) == {"status": "success", "error_count": 0, "match_count": 2}
    assert editor.compare(target)["error_count"] == 1
    editor.add_object("layers/other", {"0": np.ones((3, 3))})
    editor.rename_object("other", "dense_1")
    assert editor.compare(target)["error_count"] == 1
    editor.add_weights("dense_1", {"1": np.zeros(3)})
    editor.save(file)
    target.load_weights(file)
    np.testing.assert_array_equal(target.layers[1].get_weights()[0], np.ones((3, 3)))
    editor.delete_weight("layers/dense_1", "1")
    editor.delete_object("dense_1")
    editor.summary()
    assert "dense" in capsys.readouterr().out and editor.compare(model)["status"] == "success"
    with pytest.raises(ArgumentError, match="name of one object"):
        editor.delete_object("nothing")


def test_containers_that_contain_themselves() -> None:
    class Cyclic(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks: list[Any] = [keras.layers.Dense(2)]
            self.blocks.append(self.blocks)

        def call(self, x: Any) -> Any:
            return self.blocks[0](x)

    model = Cyclic()
    model(np.ones((1, 3), np.float32))
    assert len(model.weights) == 2 and "blocks/dense" in weights.collect_weights(model)


def test_models_that_are_not_built(tmp_path: pathlib.Path) -> None:
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("adam", "mse")
    with pytest.warns(UserWarning, match="before it is built"):
        model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.compiled and not again.built
    assert again.predict(np.ones((1, 3)), verbose=0).shape == (1, 2)


def test_objects_to_skip(tmp_path: pathlib.Path) -> None:
    make = lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Dense(3)])
    model, file = make(), tmp_path / "w.safetensors"
    for save, load in ((True, True), (False, True)):
        model.save_weights(file, objects_to_skip=model.layers[:1] if save else None)
        other = make()
        before = other.layers[0].get_weights()[0]
        other.load_weights(file, objects_to_skip=other.layers[:1] if load else None)
        np.testing.assert_array_equal(other.layers[0].get_weights()[0], before)
        np.testing.assert_array_equal(other.layers[1].get_weights()[0], model.layers[1].get_weights()[0])
    with pytest.raises(ArgumentError, match="objects_to_skip"):
        model.load_weights(tmp_path / "m.keras", objects_to_skip=[])


def test_the_older_format_of_whole_models(trained: Any, tmp_path: pathlib.Path) -> None:
    """Weights, the arguments of `compile` and the optimizer come back from an .h5 file; so do weights alone."""
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "model.h5"
    trained.save(file)
    again = keras.models.load_model(file)
    for one, other in zip(
        trained.weights + trained.optimizer.variables, again.weights + again.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.path)
    for by_name in (False, True):
        fresh = keras.models.clone_model(trained)
        fresh.load_weights(file, by_name=by_name)
        np.testing.assert_array_equal(fresh.get_weights()[0], trained.get_weights()[0])
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(CheckpointMismatchError, match="layers with weights in the file, 1 in the model"):
        other.load_weights(file)
    with h5py.File(file, "a") as opened:
        del opened["model_weights"]
        opened["model_weights"] = h5py.ExternalLink("other.h5", "/model_weights")
    with pytest.raises(FileFormatError, match="link to elsewhere"):
        keras.models.load_model(file)


def test_models_of_keras_2(tmp_path: pathlib.Path) -> None:
    """Configs without modules, `batch_input_shape` and calls as lists, as Keras 2 wrote them."""
    h5py = pytest.importorskip("h5py")
    zeros, policy = {"class_name": "Zeros", "config": {}}, {"class_name": "Policy", "config": {"name": "float32"}}
    dense = {"units": 2, "activation": "relu", "bias_initializer": zeros, "dtype": policy, "name": "dense"}
    node = [[["x", 0, 0, {}]]]
    layers = [
        {"class_name": "InputLayer", "name": "x", "inbound_nodes": [], "config": {"batch_input_shape": [None, 3]}},
        {"class_name": "Dense", "name": "dense", "inbound_nodes": node, "config": dense},
        {"class_name": "Add", "name": "add", "inbound_nodes": [[["dense", 0, 0, {}], ["dense", 0, 0, {}]]]},
    ]
    layers[0]["config"] |= {"dtype": "float32", "sparse": False, "ragged": False, "name": "x"}
    layers[2]["config"] = {"name": "add", "trainable": True, "dtype": "float32"}
    graph = {"name": "model", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["add", 0, 0]]}
    adam = {"name": "Adam", "learning_rate": 0.5, "decay": 0.0, "beta_1": 0.9, "epsilon": 1e-7, "amsgrad": False}
    training = {"loss": "mse", "metrics": ["mae"], "weighted_metrics": None, "loss_weights": None}
    training["optimizer_config"] = {"class_name": "Adam", "config": adam}
    kernel, bias = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(2, np.float32)
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": graph}).encode()
        file.attrs["training_config"] = json.dumps(training).encode()
        weights_group = file.create_group("model_weights")
        weights_group.attrs["layer_names"] = [b"x", b"dense", b"add"]
        for name in ("x", "dense", "add"):
            weights_group.create_group(name).attrs["weight_names"] = np.zeros(0, "S1")
        own = weights_group["dense"]
        own.attrs["weight_names"] = [b"dense/kernel:0", b"dense/bias:0"]
        own["dense/kernel:0"], own["dense/bias:0"] = kernel, bias
    model = keras.models.load_model(tmp_path / "old.h5")
    value = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(model.predict(value, verbose=0), 2 * (value @ kernel + bias))
    assert float(model.optimizer.learning_rate) == 0.5 and model.layers[1].activation is keras.activations.relu


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
    with pytest.raises(ArgumentError, match=r"must end in \.keras"):
        functional().save(tmp_path / "model.png")
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
    with pytest.raises(ArgumentError, match="must fit into one file"):
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


def _freeze(model: Any, frozen: tuple[bool, ...]) -> Any:
    for layer, flag in zip([layer for layer in model.layers if layer.weights], frozen, strict=True):
        layer.trainable = not flag
    return model


def _chain(form: str, frozen: tuple[bool, ...]) -> Any:
    layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    if form == "sequential":
        return _freeze(keras.Sequential([keras.Input((4,)), *layers]), frozen)
    x = y = keras.Input((4,))
    for layer in layers:
        y = layer(y)
    inner = _freeze(keras.Model(x, y), frozen)
    if form == "functional":
        return inner
    x = keras.Input((4,))
    return keras.Model(x, keras.layers.Dense(1)(inner(x)))


@pytest.mark.parametrize("form", ["sequential", "functional", "nested"])
@pytest.mark.parametrize("frozen", [(True, False, False), (False, True, True), (True, True, True)])
def test_copies_keep_which_layers_are_frozen(form: str, frozen: tuple[bool, ...], tmp_path: pathlib.Path) -> None:
    model = _chain(form, frozen)
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    flags = lambda m: [layer.trainable for layer in m._flatten_layers(include_self=False)]
    counts = lambda m: (len(m.trainable_weights), len(m.non_trainable_weights))
    for again in (
        keras.models.load_model(tmp_path / "m.keras"),
        keras.models.model_from_json(model.to_json()),
        type(model).from_config(model.get_config()),
        keras.models.clone_model(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        assert (flags(again), counts(again)) == (flags(model), counts(model))
