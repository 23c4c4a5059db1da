"""`weft.keras.utils`, `weft.keras.tree` and `weft.keras.preprocessing`."""

from __future__ import annotations

import collections
import importlib
import importlib.util
import os
import pathlib
import tarfile
import wave
import zipfile
from typing import Any

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError, FileFormatError, NotSupportedError
from weft.keras import tree, utils

Pair = collections.namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    "structure",
    [5, None, [], {"b": 1, "a": [2, (3, None)]}, Pair(1, [2]), [[], {"x": ()}], {"x": {"y": None}}],
    ids=str,
)
def test_structures_are_what_their_leaves_and_paths_say(structure: Any) -> None:
    leaves = tree.flatten(structure)
    assert tree.pack_sequence_as(structure, leaves) == structure
    assert [leaf for _, leaf in tree.flatten_with_path(structure)] == leaves
    assert tree.map_structure(lambda leaf: leaf, structure) == structure
    assert tree.traverse(lambda part: None, structure) == structure
    tree.assert_same_structure(structure, tree.map_structure(lambda leaf: 0, structure))
    tree.assert_same_paths(structure, tree.lists_to_tuples(structure))
    assert tree.is_nested(structure) == (structure not in (5, None))


def test_structures_with_options() -> None:
    assert tree.flatten_with_path(Pair(1, [2])) == [((0,), 1), ((1, 0), 2)]
    assert tree.flatten_with_path({"b": 1, "a": [2]}) == [(("a", 0), 2), (("b",), 1)]
    assert tree.map_structure(lambda leaf: 7, [1, None], none_is_leaf=False) == [7, None]
    assert tree.map_structure_up_to([0, 0], lambda x, y: (x, y), [[1, 2], 3], [4, 5]) == [([1, 2], 4), (3, 5)]
    assert tree.traverse(lambda part: tree.MAP_TO_NONE if part == 1 else None, [1, (2,)]) == [None, (2,)]
    assert tree.traverse(lambda part: "tuple" if isinstance(part, tuple) else None, [1, (2,)]) == [1, "tuple"]
    assert tree.traverse(lambda part: sum(part) if isinstance(part, list) else None, [1, [2, 3]], top_down=False) == 6
    assert tree.map_shape_structure(len, {"a": (1, None), "b": [(2, 3), [4]]}) == {"a": 2, "b": [2, 1]}
    for call in (
        lambda: tree.map_structure(lambda x, y: x, [1, 2], (1, 2)),
        lambda: tree.map_structure(lambda x: x),
        lambda: tree.pack_sequence_as([1, 2], [1]),
        lambda: tree.assert_same_structure([1, [2]], [1, 2]),
        lambda: tree.assert_same_paths([1, 2], [1]),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_classes_and_norms() -> None:
    np.testing.assert_array_equal(utils.to_categorical([[0], [2]]), [[1, 0, 0], [0, 0, 1]])
    assert utils.to_categorical([[0, 1], [2, 1]], 4).shape == (2, 2, 4)
    found = weft.jit(lambda x: utils.to_categorical(x, 3))(np.array([0, 2]))
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 1]])
    with pytest.raises(IndexError, match="from 0 to 1"):
        utils.to_categorical([0, 3], 2)
    np.testing.assert_allclose(utils.normalize([[3.0, 4.0], [0.0, 0.0]]), [[0.6, 0.8], [0.0, 0.0]])


def test_sequences() -> None:
    sequences = [[1], [2, 3], [4, 5, 6], []]
    np.testing.assert_array_equal(utils.pad_sequences(sequences), [[0, 0, 1], [0, 2, 3], [4, 5, 6], [0, 0, 0]])
    np.testing.assert_array_equal(
        utils.pad_sequences(sequences, 2, padding="post", truncating="post", value=-1),
        [[1, -1], [2, 3], [4, 5], [-1, -1]],
    )
    assert utils.pad_sequences([[[1, 2]], [[3, 4], [5, 6]]]).shape == (2, 2, 2)
    assert utils.pad_sequences([["a"], ["b", "c"]], dtype=object, value="x").tolist() == [["x", "a"], ["b", "c"]]
    for call in (
        lambda: utils.pad_sequences([1, 2]),
        lambda: utils.pad_sequences([[1]], padding="before"),
        lambda: utils.pad_sequences([["a"]], value="x"),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_batches() -> None:
    assert utils.pack_x_y_sample_weight(1) == 1
    assert utils.pack_x_y_sample_weight([1]) == ([1],)
    assert utils.unpack_x_y_sample_weight(utils.pack_x_y_sample_weight(1, 2, 3)) == (1, 2, 3)
    with pytest.raises(ArgumentError):
        utils.unpack_x_y_sample_weight((1, 2, 3, 4))


def test_config() -> None:
    config = utils.Config(a=1)
    config.b = 2
    assert (config.as_dict(), "a" in config, len(config), list(config)) == ({"a": 1, "b": 2}, True, 2, ["a", "b"])
    config.freeze()
    with pytest.raises(ArgumentError, match="frozen"):
        config.c = 3
    with pytest.raises(AttributeError):
        _ = config.missing


def test_files(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    origin = (tmp_path / "a.txt").as_uri()
    cache = tmp_path / "cache"
    path = utils.get_file(origin=origin, cache_dir=cache)
    assert (path, pathlib.Path(path).read_text()) == (str(cache / "datasets" / "a.txt"), "words")
    (tmp_path / "a.txt").write_text("other")
    assert pathlib.Path(utils.get_file(origin=origin, cache_dir=cache)).read_text() == "words"
    assert pathlib.Path(utils.get_file(origin=origin, cache_dir=cache, force_download=True)).read_text() == "other"
    with pytest.raises(FileFormatError, match="checksum"):
        utils.get_file("b.txt", origin, file_hash="0" * 64, cache_dir=cache)
    assert not (cache / "datasets" / "b.txt").exists()
    with pytest.raises(FileNotFoundError, match="could not be downloaded"):
        utils.get_file(origin=(tmp_path / "none.txt").as_uri(), cache_dir=cache)


def test_archives(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "a.txt", "in/a.txt")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as opened:
        opened.add(tmp_path / "a.txt", "in/a.txt")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.write(tmp_path / "a.txt", "../../a.txt")
    for name in ("z.zip", "t.tar.gz"):
        folder = utils.get_file(origin=(tmp_path / name).as_uri(), extract=True, cache_dir=tmp_path / "cache")
        assert (pathlib.Path(folder) / "in" / "a.txt").read_text() == "words"
    with pytest.raises(FileFormatError, match="outside"):
        utils.get_file(origin=(tmp_path / "bad.zip").as_uri(), extract=True, cache_dir=tmp_path / "cache")
    with pytest.raises(FileFormatError, match="no archive"):
        utils.get_file(origin=(tmp_path / "a.txt").as_uri(), extract=True, cache_dir=tmp_path / "cache")


def texts_in(folder: pathlib.Path) -> None:
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for i in range(5):
            (folder / name / f"{i}.txt").write_text(f"{name} {i}")


def test_texts_of_a_folder(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts_in(tmp_path)
    loader = utils.text_dataset_from_directory(tmp_path, batch_size=4, shuffle=False)
    assert "Found 10 files belonging to 2 classes" in capsys.readouterr().out
    assert loader.class_names == ["cats", "dogs"]
    batches = list(loader)
    assert [str(text) for texts, _ in batches for text in texts][:2] == ["cats 0", "cats 1"]
    assert np.concatenate([labels for _, labels in batches]).tolist() == [0] * 5 + [1] * 5
    options = {"validation_split": 0.3, "seed": 3, "verbose": False, "batch_size": 10}
    training, validation = utils.text_dataset_from_directory(tmp_path, subset="both", **options)
    alone = utils.text_dataset_from_directory(tmp_path, subset="validation", label_mode="categorical", **options)
    assert sorted(training.file_paths + validation.file_paths) == sorted(loader.file_paths)
    assert validation.file_paths == alone.file_paths and len(alone.file_paths) == 3
    assert next(iter(alone))[1].shape == (3, 2)
    assert isinstance(
        next(iter(utils.text_dataset_from_directory(tmp_path, label_mode=None, verbose=False))), np.ndarray
    )
    for wrong in ({"validation_split": 0.3}, {"label_mode": "one"}, {"labels": [1]}, {"class_names": ["a"]}):
        with pytest.raises(ArgumentError):
            utils.text_dataset_from_directory(tmp_path, **wrong)


def test_sounds_of_a_folder(tmp_path: pathlib.Path) -> None:
    for i, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        with wave.open(str(tmp_path / name / "x.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(np.full(5 + i, 16384, "<i2").tobytes())
    sounds, labels = next(iter(utils.audio_dataset_from_directory(tmp_path, shuffle=False, verbose=False)))
    assert (sounds.shape, sounds.dtype, labels.tolist()) == ((2, 6, 1), np.float32, [0, 1])
    assert sounds[:, :, 0].tolist() == [[0.5] * 5 + [0.0], [0.5] * 6]
    fixed = utils.audio_dataset_from_directory(tmp_path, output_sequence_length=3, shuffle=False, verbose=False)
    assert next(iter(fixed))[0].shape == (2, 3, 1)


def test_windows_of_a_series() -> None:
    data = np.arange(10)
    loader = utils.timeseries_dataset_from_array(data, data * 10, 3, sequence_stride=2, sampling_rate=2, batch_size=2)
    batches = list(loader)
    assert [x.tolist() for x, _ in batches] == [[[0, 2, 4], [2, 4, 6]], [[4, 6, 8]]]
    assert [y.tolist() for _, y in batches] == [[0, 20], [40]]
    part = utils.timeseries_dataset_from_array(data, None, 2, start_index=3, end_index=6)
    assert [batch.tolist() for batch in part] == [[[3, 4], [4, 5]]]


def test_two_parts() -> None:
    x, y = np.arange(10.0), np.arange(10) * 2
    left, right = utils.split_dataset((x, y), left_size=0.7)
    assert [float(a) for a, _ in left] == list(range(7)) and [int(b) for _, b in right] == [14, 16, 18]
    left, right = utils.split_dataset(list("abcde"), right_size=2, shuffle=True, seed=1)
    assert len(list(left)) == 3 and len(list(right)) == 2
    with pytest.raises(ArgumentError):
        utils.split_dataset(x, left_size=11)


def test_images_as_arrays(tmp_path: pathlib.Path) -> None:
    assert utils.img_to_array(np.ones((2, 3))).shape == (2, 3, 1)
    assert utils.img_to_array(np.ones((2, 3, 3)), "channels_first").shape == (3, 2, 3)
    smart = keras.preprocessing.image.smart_resize(np.ones((4, 8, 3), "float32"), (2, 2))
    assert isinstance(smart, np.ndarray) and smart.shape == (2, 2, 3)
    if importlib.util.find_spec("PIL") is None:
        with pytest.raises(NotSupportedError, match="Pillow"):
            utils.array_to_img(np.ones((2, 3, 3)))
        return
    image = np.random.RandomState(0).randint(0, 255, (6, 9, 3)).astype("float32")
    for name in ("one", "two"):
        os.mkdir(tmp_path / name)
        utils.save_img(tmp_path / name / "x.png", image, scale=False)
    np.testing.assert_array_equal(utils.img_to_array(utils.load_img(tmp_path / "one" / "x.png")), image)
    assert utils.load_img(tmp_path / "one" / "x.png", target_size=(4, 4), keep_aspect_ratio=True).size == (4, 4)
    for options in ({}, {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True}, {"interpolation": "bicubic"}):
        loader = utils.image_dataset_from_directory(tmp_path, image_size=(4, 4), verbose=False, **options)
        images, _ = next(iter(loader))
        np.testing.assert_allclose(images[0], keras.ops.image.resize(image, (4, 4), **options), rtol=1e-4, atol=1e-3)


def test_sources_of_tensors() -> None:
    x, y = keras.Input((3,)), keras.Input((3,))
    result = keras.ops.add(keras.ops.exp(x), keras.ops.multiply(x, y))
    found = utils.get_source_inputs(result)
    assert len(found) == 2 and found[0] is x and found[1] is y


@pytest.mark.parametrize("name", utils.__all__)
def test_names_are_there(name: str) -> None:
    assert getattr(utils, name) is not None


def test_feature_spaces(tmp_path):
    space = keras.utils.FeatureSpace
    city, rooms = np.array(["Rome", "Oslo", "Rome"]), np.array([1, 2, 2])
    data = {"age": np.array([20.0, 40.0, 60.0]), "city": city, "rooms": rooms}
    part = lambda rows: {name: column[rows] for name, column in data.items()}
    features = {"age": "float_normalized", "city": "string_categorical", "rooms": "integer_categorical"}
    found = space(features, crosses=[("city", "rooms")], crossing_dim=4)
    with pytest.raises(ArgumentError, match="age, city, rooms depend on data"):
        found(data)
    found.adapt([part(slice(0, 2)), part(slice(2, 3))])
    result = np.asarray(found(data))
    assert result.shape == (3, 1 + 3 + 3 + 4) == (3, found.get_encoded_features().shape[1])
    np.testing.assert_allclose(result[:, 0], [-1.2247448, 0, 1.2247448], rtol=1e-6)
    np.testing.assert_array_equal(result[:, 1:4], [[0, 1, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(found(part(1)), result[1])
    found.save(tmp_path / "space.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "space.keras")(data), result)
    integers = space({"city": space.string_hashed(8, output_mode="int")})
    with pytest.raises(ArgumentError, match="not concatenated"):
        integers(data)
    assert space({"city": space.string_hashed(8, output_mode="int")}, "dict")(data)["city"].shape == (3, 1)
    with pytest.raises(ArgumentError, match="no columns street"):
        space(features, crosses=[("city", "street")])
    with pytest.raises(ArgumentError, match="no such feature"):
        space({"age": "number"})


def test_graphs_for_graphviz():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Add(name="sum")([x, keras.layers.Dense(4, name="d")(x)]), name="m")
    text = keras.utils.model_to_dot(model, show_shapes=True, rankdir="LR").to_string()
    assert text.startswith('digraph "m" {\n  rankdir=LR;') and "n0 -> n1;" in text and "n1 -> n2;" in text
    assert 'n1 [label="d (Dense)\\nin (None, 4)\\nout (None, 4)"];' in text
    assert str(keras.utils.model_to_dot(model, subgraph=True)).startswith('subgraph "cluster_m"')


def test_progress_of_metrics_that_are_averaged():
    bar = keras.utils.Progbar(4, verbose=0, stateless_metrics=["loss"])
    bar.update(1, [("loss", 2.0), ("accuracy", 0.5)])
    bar.update(2, [("loss", 4.0), ("accuracy", 0.25)])
    assert bar.values() == {"loss": 3.0, "accuracy": 0.25}
    with pytest.raises(ArgumentError, match="either"):
        keras.utils.Progbar(4, stateful_metrics=["a"], stateless_metrics=["b"])
