"""Operations of symbolic tensors: control flow in functional models, and sizes that tracing cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.keras as keras
import weft.numpy as wnp
from weft.errors import ArgumentError

ops = keras.ops
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@keras.saving.register_keras_serializable()
def double(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("vectorized_map", lambda x: ops.vectorized_map(double, x)),
        ("map", lambda x: ops.map(double, x)),
        ("scan", lambda x: ops.scan(lambda carry, row: (carry + row, row * 2), ops.zeros((3,)), x)[1]),
        ("associative_scan", lambda x: ops.associative_scan(lambda a, b: a + b, x)),
        ("fori_loop", lambda x: ops.fori_loop(0, 3, lambda _, value: value + 1, x)),
        ("while_loop", lambda x: ops.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, value + 1), (0, x))[1]),
    ],
)
def test_control_flow_in_functional_models(name: str, call: Any) -> None:
    inputs = keras.Input((3,))
    outputs = call(inputs)
    assert outputs.shape == (None, 3), name
    model = keras.Model(inputs, outputs)
    np.testing.assert_allclose(model(ROWS), call(ROWS))
    np.testing.assert_allclose(weft.jit(lambda x: model(x))(ROWS), call(ROWS))
    assert weft.grad(lambda x: model(x).sum())(wnp.asarray(ROWS)).shape == ROWS.shape


def test_a_model_with_a_map_goes_through_its_config() -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, ops.vectorized_map(double, inputs))
    again = keras.Model.from_config(model.get_config())
    np.testing.assert_allclose(again(ROWS), 2 * ROWS)


@pytest.mark.parametrize("shape", [(4, 3), (None, 3), (None, None)])
def test_boxes_to_the_end_of_an_axis(shape: Any) -> None:
    x = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(ops.slice(x, (1, 1), (-1, 1)), x[1:, 1:2])
    np.testing.assert_array_equal(weft.jit(lambda x: ops.slice(x, (1, 1), (-1, -1)))(x), x[1:, 1:])
    with pytest.raises(ArgumentError, match="must begin at an index that is not traced"):
        weft.jit(lambda x, i: ops.slice(x, (i, 1), (-1, 1)))(x, 1)
    expected = tuple(None if size is None else size - 1 for size in shape)
    assert ops.slice(keras.KerasTensor(shape), (1, 1), (-1, -1)).shape == expected


@pytest.mark.parametrize(
    ("call", "eager"),
    [
        (lambda x: ops.unique(x), [2]),
        (lambda x: ops.unique(x, return_inverse=True, return_counts=True), [2, 2, 2]),
        (lambda x: ops.unique(x, return_index=True, axis=0), [2, 2]),
        (lambda x: ops.nonzero(x), [2]),
        (lambda x: ops.where(x), [2]),
        (lambda x: ops.bincount(x), [4]),
        (lambda x: ops.bincount(x, weights=np.ones(2, np.float32)), [4]),
    ],
)
def test_sizes_that_depend_on_values(call: Any, eager: list[int]) -> None:
    found = weft.tree.leaves(call(np.array([1, 3], np.int32)))
    assert [len(each) for each in found] == eager
    symbolic = weft.tree.leaves(call(keras.KerasTensor((2,), "int32")))
    assert [each.dtype for each in symbolic] == [str(each.dtype) for each in found]
    assert all(size in (None, len(real)) for each, real in zip(symbolic, found, strict=True) for size in each.shape)


def test_unique_with_several_nans() -> None:
    assert ops.unique(np.array([np.nan, 1.0, np.nan], np.float32)).shape == (3,)
    inputs = keras.Input((), dtype="float32")
    model = keras.Model(inputs, ops.unique(inputs))
    assert model(np.array([3.0, 1.0, 3.0], np.float32)).tolist() == [1.0, 3.0]


def test_unknown_sizes_that_arguments_tell() -> None:
    parts = ops.unstack(keras.KerasTensor((2, None, None)), num=3, axis=1)
    assert [part.shape for part in parts] == [(2, None)] * 3
    image = keras.KerasTensor((None, None, 3))
    assert ops.image.pad_images(image, 2, 3, target_height=20, target_width=30).shape == (20, 30, 3)
    assert ops.image.crop_images(image, 2, 3, target_height=20, target_width=30).shape == (20, 30, 3)
    assert ops.image.pad_images(image, 2, 3, 2, 3).shape == (None, None, 3)
    batch = keras.KerasTensor((None, 20, 20, 3))
    scaled = ops.image.scale_and_translate(batch, (None, 25, 25, 3), [1.0, 1.0], [0.0, 0.0], (1, 2), "linear")
    assert scaled.shape == (None, 25, 25, 3)


def test_volumes_as_patches() -> None:
    volume = np.arange(64, dtype=np.float32).reshape(4, 4, 4, 1)
    found = ops.image.extract_patches(volume, (2, 2, 2))
    np.testing.assert_array_equal(found, ops.image.extract_patches_3d(volume, (2, 2, 2)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str) -> None:
    points = np.array([[0, 0], [0, 3], [3, 0], [3, 3]], np.float32)
    image = ops.cast(np.arange(16, dtype=np.float32).reshape(4, 4, 1), dtype)
    moved = ops.image.perspective_transform(image, points, points)
    assert str(moved.dtype) == dtype
    np.testing.assert_allclose(moved, image, rtol=1e-2)
    loss = ops.ctc_loss(np.array([[1, 2]]), ops.zeros((1, 4, 3), dtype), np.array([2]), np.array([4]))
    assert str(loss.dtype) == "float32"
    np.testing.assert_allclose(loss, [1.686399], rtol=1e-5)


def test_factors_of_matrices_that_are_not_square() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    factors, pivots = ops.lu_factor(x)
    assert (factors.shape, pivots.shape) == ((4, 3), (3,))
    assert [each.shape for each in ops.lu_factor(keras.KerasTensor((None, 4, 3)))] == [(None, 4, 3), (None, 3)]


def test_gradients_of_ones_own_take_variables() -> None:
    @ops.custom_gradient
    def tripled(x: Any) -> Any:
        return x * 2, lambda *args, upstream=None: (args[0] if upstream is None else upstream) * 3

    assert tripled(keras.Variable([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert weft.grad(lambda x: tripled(x).sum())(wnp.ones(2)).tolist() == [3.0, 3.0]


def test_arrays_of_numpy_may_be_written_to() -> None:
    variable = keras.Variable([1.0, 2.0])
    for found in (np.array(variable), variable.numpy(), ops.convert_to_numpy(variable)):
        found[0] = 7.0
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_threshold_itself_is_below() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(
        keras.activations.relu(x, negative_slope=0.1, threshold=2.0), [-0.1, 0.0, 3.0], atol=1e-7
    )


def test_keys_as_seeds() -> None:
    key = weft.random.key(7)
    first = keras.random.normal((3,), seed=key)
    np.testing.assert_array_equal(first, keras.random.normal((3,), seed=weft.random.key_data(key)))
    with pytest.raises(ArgumentError, match="A seed must be"):
        keras.random.normal((3,), seed=wnp.ones(3))


def test_operations_without_a_name_argument() -> None:
    class Scaled(keras.Operation):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def call(self, x: Any) -> Any:
            return x * self.factor

    assert Scaled(2.0).get_config() == {"factor": 2.0}
    assert Scaled.from_config(Scaled(2.0).get_config()).factor == 2.0


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda x: ops.diag(x), (None,)),
        (lambda x: ops.diagonal(x), (None,)),
        (lambda x: ops.split(x, 2)[0], (None, 3)),
        (lambda x: ops.split(x, [1, 4])[1], (None, 3)),
        (lambda x: ops.reshape(x, (3, 2)), (3, 2)),
        (lambda x: ops.reshape(x, (-1, 6)), (None, 6)),
        (lambda x: ops.broadcast_to(x, (2, 4, 3)), (2, 4, 3)),
        (lambda x: ops.repeat(x, [1, 2], axis=0), (None, 3)),
        (lambda x: ops.repeat(x, [2], axis=1), (None, 6)),
        (lambda x: ops.segment_sum(x, keras.KerasTensor((10,), "int32"), num_segments=5), (5, 3)),
        (lambda x: ops.size(x), ()),
    ],
)
def test_shapes_where_the_first_size_is_unknown(call: Any, shape: Any) -> None:
    assert call(keras.KerasTensor((None, 3))).shape == shape


def test_the_size_of_an_unknown_batch() -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, inputs / ops.cast(ops.size(inputs), "float32"))
    np.testing.assert_allclose(model(ROWS), ROWS / 6)
    assert ops.size(keras.KerasTensor((2, 3))) == 6


def test_inputs_and_outputs_of_operations_are_tensors_or_lists() -> None:
    class Pair(keras.Operation):
        def call(self, x: Any, y: Any) -> Any:
            return x, y

    pair, x = Pair(), keras.KerasTensor((2, 3))
    first, second = pair(x, x)
    assert pair.input == [x, x]
    assert pair.output == [first, second]


def test_partitions_of_all_elements() -> None:
    x = np.array([[3, 1], [2, 0]], np.int32)
    assert ops.take(ops.ravel(x), ops.argpartition(x, 1, axis=None)[:2]).tolist() in ([0, 1], [1, 0])
