"""Layers that prepare data: values from Keras' documentation, and properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.keras as keras
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.layers.preprocessing.hashes import fingerprint, sip_hash

layers = keras.layers


def test_hashes_are_the_known_ones() -> None:
    letters = [letter.encode() for letter in "ABCDE"]
    assert [fingerprint(letter) % 3 for letter in letters] == [1, 0, 1, 1, 2]
    assert [sip_hash(letter, (133, 137)) % 3 for letter in letters] == [1, 2, 1, 0, 2]
    assert sip_hash(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)) == 0xA129CA6149BE45E5
    # Each length has its own branch.
    sizes = (0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 128, 200)
    assert len({fingerprint(b"x" * size) for size in sizes}) == len(sizes)


def test_hashing() -> None:
    column = [[letter] for letter in "ABCDE"]
    assert layers.Hashing(num_bins=3)(column).tolist() == [[1], [0], [1], [1], [2]]
    masked = layers.Hashing(num_bins=3, mask_value="")
    assert masked([["A"], ["B"], [""], ["C"], ["D"]]).tolist() == [[1], [1], [0], [2], [2]]
    assert layers.Hashing(num_bins=3, salt=[133, 137])(column).tolist() == [[1], [2], [1], [0], [2]]
    assert layers.Hashing(num_bins=3, salt=133)(column).tolist() == [[0], [0], [2], [1], [0]]
    assert layers.Hashing(num_bins=4, output_mode="multi_hot")([[1, 2], [1, 1]]).sum(axis=1).tolist() == [2.0, 1.0]


def test_hashed_crossing() -> None:
    layer = layers.HashedCrossing(num_bins=5)
    features = (np.array(["A", "B", "A", "B", "A"]), np.array([101, 101, 101, 102, 102]))
    assert layer(features).tolist() == [1, 4, 1, 1, 3]
    assert layers.HashedCrossing(num_bins=5, output_mode="one_hot")(features).shape == (5, 5)


def test_string_lookup() -> None:
    layer = layers.StringLookup(vocabulary=["a", "b", "c", "d"])
    assert layer([["a", "c", "d"], ["d", "z", "b"]]).tolist() == [[1, 3, 4], [4, 0, 2]]
    layer = layers.StringLookup()
    layer.adapt([["a", "c", "d"], ["d", "z", "b"]])
    assert layer.get_vocabulary() == ["[UNK]", "d", "z", "c", "b", "a"]
    back = layers.StringLookup(vocabulary=layer.get_vocabulary(), invert=True)
    assert back([[5, 3, 1], [1, 0, 4]]).tolist() == [["a", "c", "d"], ["d", "[UNK]", "b"]]
    several = layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=2, mask_token="")
    assert several.get_vocabulary() == ["", "[UNK]", "[UNK]", "a", "b"]
    assert several(["", "a", "b"]).tolist() == [0, 3, 4]
    assert set(several(list("uvwxyz")).tolist()) == {1, 2}
    counts = layers.StringLookup(vocabulary=["a", "b"], output_mode="count")
    assert counts([["a", "b", "b", "?"]]).tolist() == [[1.0, 1.0, 2.0]]
    weights = layers.StringLookup(vocabulary=["a", "b"], idf_weights=[0.5, 1.0], output_mode="tf_idf")
    assert weights([["a", "b", "b", "?"]]).tolist() == [[0.75, 0.5, 2.0]]
    again = layers.StringLookup.from_config(layer.get_config())
    assert again.get_vocabulary() == layer.get_vocabulary()
    with pytest.raises(ArgumentError, match="num_oov_indices=0"):
        layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"])
    with pytest.raises(ArgumentError, match="again"):
        layers.StringLookup(vocabulary=["a", "a"])


def test_integer_lookup() -> None:
    layer = layers.IntegerLookup(vocabulary=[12, 36, 1138, 42])
    assert layer([[12, 1138, 42], [42, 1000, 36]]).tolist() == [[1, 3, 4], [4, 0, 2]]
    several = layers.IntegerLookup(vocabulary=[12, 36], num_oov_indices=2)
    assert several([[12, 36, 7, 8]]).tolist() == [[2, 3, 1, 0]]
    back = layers.IntegerLookup(vocabulary=[12, 36], invert=True)
    assert back([[1, 2, 0]]).tolist() == [[12, 36, -1]]
    adapted = layers.IntegerLookup()
    adapted.adapt(np.array([[12, 1138, 42], [42, 1000, 36]]))
    assert adapted.get_vocabulary() == [-1, 42, 1138, 1000, 36, 12]


def test_text_vectorization() -> None:
    layer = layers.TextVectorization(max_tokens=5000, output_sequence_length=4)
    layer.adapt(["foo bar", "bar baz", "baz bada boom"])
    assert layer.get_vocabulary() == ["", "[UNK]", "baz", "bar", "foo", "boom", "bada"]
    assert layer([["foo qux bar"], ["qux baz"]]).tolist() == [[4, 1, 3, 0], [1, 2, 0, 0]]
    fixed = layers.TextVectorization(vocabulary=["earth", "wind", "and", "fire"], output_mode="multi_hot")
    assert fixed(["Earth, wind; FIRE!"]).tolist() == [[0.0, 1.0, 1.0, 0.0, 1.0]]
    pairs = layers.TextVectorization(ngrams=2, vocabulary=["the", "the cat"])
    assert pairs(["the cat"]).tolist() == [[2, 1, 3]]
    letters = layers.TextVectorization(split="character", standardize=None, vocabulary=["a", "B"])
    assert letters(["aBc"]).tolist() == [[2, 3, 1]]
    again = layers.TextVectorization.from_config(layer.get_config())
    assert again(["foo qux bar"]).tolist() == [[4, 1, 3, 0]]


def test_category_encoding() -> None:
    data = np.array([[0, 1], [0, 0], [1, 2], [3, 1]])
    multi = layers.CategoryEncoding(num_tokens=4)(data)
    assert multi.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    one = layers.CategoryEncoding(num_tokens=4, output_mode="one_hot")(np.array([3, 2, 0, 1]))
    assert one.argmax(axis=1).tolist() == [3, 2, 0, 1]
    weights = np.array([[0.1, 0.2], [0.1, 0.1], [0.2, 0.3], [0.4, 0.2]])
    count = layers.CategoryEncoding(num_tokens=4, output_mode="count")(data, count_weights=weights)
    np.testing.assert_allclose(count[1], [0.2, 0, 0, 0], rtol=1e-6)


def test_discretization() -> None:
    data = np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]], np.float32)
    layer = layers.Discretization(bin_boundaries=[0.0, 1.0, 2.0])
    assert layer(data).tolist() == [[0, 2, 3, 1], [1, 3, 2, 1]]
    assert weft.jit(lambda x: layer(x))(data).tolist() == layer(data).tolist()
    adapted = layers.Discretization(num_bins=4, epsilon=0.01)
    adapted.adapt(data)
    assert adapted(data).tolist() == [[0, 2, 3, 2], [1, 3, 3, 1]]
    assert layers.Discretization.from_config(adapted.get_config())(data).tolist() == adapted(data).tolist()


def test_normalization() -> None:
    data = np.random.default_rng(0).normal(2, 3, (40, 5, 3)).astype(np.float32)
    layer = layers.Normalization()
    layer.adapt(data)
    out = np.asarray(layer(data))
    np.testing.assert_allclose(out.mean(axis=(0, 1)), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(axis=(0, 1)), 1, rtol=1e-5)
    by_batches = layers.Normalization()
    by_batches.adapt(data[i : i + 16] for i in range(0, 40, 16))
    np.testing.assert_allclose(by_batches(data), out, atol=1e-5)
    back = layers.Normalization(mean=layer.adapt_mean.numpy(), variance=layer.adapt_variance.numpy(), invert=True)
    np.testing.assert_allclose(back(out), data, atol=1e-4)
    again = layers.Normalization.from_config(back.get_config())
    np.testing.assert_allclose(again(out), data, atol=1e-4)
    assert layers.Normalization(axis=None, mean=1.0, variance=4.0)(np.array([5.0], np.float32)).tolist() == [2.0]


@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomFlip(seed=3),
        layers.RandomRotation(0.2, seed=3),
        layers.RandomTranslation(0.2, (-0.1, 0.3), fill_mode="constant", seed=3),
        layers.RandomZoom(0.3, seed=3),
        layers.RandomContrast(0.5, value_range=(0, 1), seed=3),
        layers.RandomBrightness(0.5, value_range=(0, 1), seed=3),
        layers.RandomCrop(4, 3, seed=3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_random_layers_draw_in_training_only(layer: keras.layers.Layer) -> None:
    images = wnp.asarray(np.random.default_rng(0).random((3, 6, 5, 2)).astype(np.float32))
    np.testing.assert_array_equal(layer(images, training=False), images)
    assert layer.generator.state.numpy().tolist() == [3, 0]
    first, second = layer(images), layer(images)
    assert not np.array_equal(first, second)
    values = [v.value for v in layer.non_trainable_variables]
    layer.generator.state.assign(np.array([3, 0], np.uint32))
    out, _ = weft.jit(lambda values: layer.stateless_call([], values, images))([v * 0 + w for v, w in zip(
        values, [np.array([3, 0], np.uint32)], strict=True)])  # fmt: skip
    np.testing.assert_allclose(out, first, rtol=1e-5, atol=1e-6)
    one = layer(images[0])
    assert one.shape == layer(images).shape[1:]
    both = layer({"images": images, "labels": wnp.arange(3), "segmentation_masks": wnp.ones((3, 6, 5, 1))})
    assert both["images"].shape == first.shape and both["labels"].tolist() == [0, 1, 2]
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


def test_resizing_and_cropping() -> None:
    images = wnp.asarray(np.random.default_rng(0).random((2, 6, 5, 3)).astype(np.float32))
    assert layers.Resizing(3, 4)(images).shape == (2, 3, 4, 3)
    whole = layers.Resizing(3, 4, interpolation="nearest")((images * 255).astype(wnp.uint8))
    assert whole.shape == (2, 3, 4, 3)
    np.testing.assert_array_equal(layers.CenterCrop(2, 3)(images), images[:, 2:4, 1:4])
    assert layers.CenterCrop(8, 8)(images[0]).shape == (8, 8, 3)
    assert layers.Rescaling(2.0, offset=1.0)(wnp.ones((1, 2))).tolist() == [[3.0, 3.0]]


class Column:
    """A column of a table as pandas has it: it converts to an array as a whole, and a loop goes over its entries."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.shape = self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values, dtype)

    def __iter__(self) -> Any:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


def test_columns_of_tables() -> None:
    words = layers.StringLookup()
    words.adapt(Column(["red", "blue", "red"]))
    assert words.get_vocabulary() == ["[UNK]", "red", "blue"]
    assert words(Column(["blue", "green"])).tolist() == [2, 0]
    numbers = layers.IntegerLookup()
    numbers.adapt(Column([7, 9, 7]))
    assert numbers.get_vocabulary() == [-1, 7, 9]
    texts = layers.TextVectorization()
    texts.adapt(Column(["a b", "b c"]))
    assert texts.get_vocabulary() == ["", "[UNK]", "b", "c", "a"]
    scaled = layers.Normalization(axis=None)
    scaled.adapt(Column([1.0, 3.0]))
    np.testing.assert_allclose(scaled.mean, [2.0])
    found = layers.Discretization(num_bins=2)
    found.adapt(Column([1.0, 2.0, 3.0, 4.0]))
    same = layers.Discretization(num_bins=2)
    same.adapt(np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.bin_boundaries == same.bin_boundaries
    assert layers.Dense(2)(Column([[1.0, 2.0]])).shape == (1, 2)
    with pytest.raises(ArgumentTypeError, match="not one string"):
        layers.StringLookup().adapt("red")
