"""Operations of `weft.keras.ops`: compiled they return what they return eagerly, and on symbolic tensors they have the
shapes and dtypes of their values."""

from __future__ import annotations

import doctest
import importlib
import json
from typing import Any

import numpy as np
import pytest

import weft
from tests.keras import ops_table
from weft import keras
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras import ops

# Those that need values: they return Python's numbers, or arrays whose shape depends on values.
WITH_VALUES = {"ndim", "size", "shape", "nonzero", "unique", "bincount", "repeat(X, [1, 2, 0], axis=0)"}
# Those that have no arrays among their arguments.
CASES = list(ops_table.cases())


def find(name: str, found: Any = ops) -> Any:
    """The operation of a name such as `image.resize`."""
    for part in name.split("."):
        found = getattr(found, part)
    return found


def traced(case: ops_table.Case, convert: Any = lambda value: value, module: Any = ops) -> tuple[list[np.ndarray], Any]:
    """The arrays among the arguments of a call, and the call as a function of them; arguments are converted first."""
    args, kwargs = case.arguments()
    arguments = tuple(convert(arg) for arg in args), {name: convert(arg) for name, arg in kwargs.items()}
    leaves, structure = weft.tree.flatten(arguments, is_leaf=lambda leaf: leaf is None)
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]

    def call(*values: Any) -> Any:
        filled = iter(values)
        whole = [next(filled) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        args, kwargs = weft.tree.unflatten(structure, whole)
        return find(case.name, module)(*args, **kwargs)

    return arrays, call


def needs_values(case: ops_table.Case) -> bool:
    return case.name in WITH_VALUES or str(case) in WITH_VALUES


def model_of(case: ops_table.Case) -> tuple[list[np.ndarray], Any, Any] | None:
    """The arrays of a call, a functional model that makes it, and its configuration as a file has it; None if the call
    takes no arrays, or is about their values."""
    arrays, call = traced(case)
    if not arrays or needs_values(case):
        return None
    inputs = [keras.Input(batch_shape=array.shape, dtype=str(array.dtype)) for array in arrays]
    model = keras.Model(inputs, call(*inputs))
    return arrays, model, json.loads(json.dumps(model.get_config()))


def test_every_operation_has_a_case() -> None:
    names = {name for name in ops.__all__ if callable(getattr(ops, name))}
    names |= {f"image.{name}" for name in ops.image.__all__}
    assert names - {case.name for case in CASES} <= OTHERS


# Operations that take functions, or are no functions of arrays; their tests are below.
OTHERS = {
    *("associative_scan", "cond", "fori_loop", "map", "scan", "switch", "vectorized_map", "while_loop", "vectorize"),
    *("convert_to_numpy", "convert_to_tensor", "custom_gradient", "dtype", "is_tensor", "jvp"),
    *("eig", "image.elastic_transform"),
}


@pytest.mark.parametrize("first", range(0, len(CASES), 20))
def test_symbolic_tensors_have_the_shapes_and_dtypes_of_values(first: int) -> None:
    for case in CASES[first : first + 20]:
        arrays, call = traced(case)
        if not arrays or needs_values(case):
            continue
        symbols = [keras.KerasTensor(array.shape, str(array.dtype)) for array in arrays]
        found = weft.tree.leaves(call(*symbols))
        wanted = weft.tree.leaves(weft.eval_shape(call, *arrays))
        assert [(f.shape, f.dtype) for f in found] == [(w.shape, str(w.dtype)) for w in wanted], case


@pytest.mark.parametrize("first", range(0, len(CASES), 40))
def test_derivatives_and_batches_are_traced(first: int) -> None:
    for case in CASES[first : first + 40]:
        arrays, call = traced(case)
        if not arrays or needs_values(case):
            continue
        batch = [np.stack([array] * 3) for array in arrays]
        found = weft.tree.leaves(weft.eval_shape(weft.vmap(call), *batch))
        assert [f.shape for f in found] == [(3, *w.shape) for w in weft.tree.leaves(weft.eval_shape(call, *arrays))], (
            case
        )
        floats = tuple(i for i, array in enumerate(arrays) if array.dtype.kind == "f")
        if floats and case.name != "nextafter":

            def total(*values: Any, call: Any = call) -> Any:
                return sum(ops.sum(ops.real(leaf)).astype("float32") for leaf in weft.tree.leaves(call(*values)))

            weft.eval_shape(weft.grad(total, floats), *arrays)


def test_what_is_otherwise_than_in_keras() -> None:
    # Keras' sparsemax does not sum to 1; its blur of images with channels last is darker than that of the same images
    # with channels first; and its `istft` without a window is a multiple of what `stft` began with.
    found = np.asarray(ops.sparsemax([[1.0, 1.3, 1.2], [0.0, 0.0, 5.0]]))
    np.testing.assert_allclose(found, [[1 / 6, 7 / 15, 11 / 30], [0, 0, 1]], atol=1e-6)
    images = ops_table.NAMES["IMAGES"]
    first = ops.image.gaussian_blur(np.moveaxis(images, -1, 1), data_format="channels_first")
    np.testing.assert_allclose(ops.image.gaussian_blur(images), np.moveaxis(np.asarray(first), 1, -1), atol=1e-6)
    signal = ops_table.NAMES["SIGNAL"]
    for window in (None, "hann"):
        back = ops.istft(ops.stft(signal, 8, 4, 8, window=window), 8, 4, 8, window=window)
        np.testing.assert_allclose(back, signal, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(CASES), 20))
def test_compiled_is_eager(first: int) -> None:
    for case in CASES[first : first + 20]:
        arrays, call = traced(case)
        if needs_values(case):
            continue
        for compiled, eager in zip(
            weft.tree.leaves(weft.jit(call)(*arrays)), weft.tree.leaves(call(*arrays)), strict=True
        ):
            assert np.asarray(compiled).dtype == np.asarray(eager).dtype, case
            np.testing.assert_allclose(compiled, eager, rtol=2e-5, atol=2e-5, err_msg=str(case))


def with_lists(value: Any) -> Any:
    """Lists for tuples, as files have them; tuples of arrays stay."""
    if isinstance(value, tuple) and not any(isinstance(leaf, np.ndarray) for leaf in weft.tree.leaves(value)):
        return [with_lists(item) for item in value]
    return value


def test_files_have_lists_for_tuples() -> None:
    for case in CASES:
        if not needs_values(case):
            found, wanted = (
                [leaf.shape for leaf in weft.tree.leaves(weft.eval_shape(call, *arrays))]
                for arrays, call in (traced(case, with_lists), traced(case))
            )
            assert found == wanted, case


# Classes in files that are not called like their functions, and options that are left out before others.
UNLIKE = ("allclose", "batch_normalization", "isin", "layer_normalization", "pad", "rms_normalization", "searchsorted")


@pytest.mark.parametrize(
    "cases",
    [
        [case for case in CASES if case.name in UNLIKE],
        *(pytest.param(CASES[i : i + 100], marks=pytest.mark.slow) for i in range(0, len(CASES), 100)),
    ],
    ids=lambda cases: f"from {cases[0]}",
)
def test_operations_are_read_back_as_they_were_written(cases: list[ops_table.Case]) -> None:
    for case in cases:
        result = model_of(case)
        if result is None:
            continue
        _, model, config = result
        if "FunctionOperation" in json.dumps(config):  # options that are arrays
            continue
        again = type(model).from_config(config)
        assert [(o.shape, o.dtype) for o in again.outputs] == [(o.shape, o.dtype) for o in model.outputs], case
        assert json.loads(json.dumps(again.get_config())) == config, case


def test_models_of_operations_through_files() -> None:
    x = keras.Input((4,))
    y = ops.sum(ops.softmax(x * 2 + 1)[:, 1:], axis=1)
    # Of the same name as an operation, with another default.
    y = keras.random.dropout(keras.activations.gelu(y), 0.5, seed=3)
    model = keras.Model(x, y)
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    values = np.random.RandomState(0).uniform(size=(6, 4)).astype("float32")
    np.testing.assert_array_equal(model(values), again(values))


def test_unknown_sizes_pass_through() -> None:
    x = keras.KerasTensor((None, 4))
    assert ops.matmul(x, keras.KerasTensor((4, 2))).shape == (None, 2)
    assert ops.sum(x, axis=1).shape == (None,)
    assert ops.reshape(x, (-1, 2, 2)).shape == (None, 2, 2)
    assert ops.concatenate([x, x], axis=1).shape == (None, 8)
    assert ops.shape(x) == (None, 4)
    assert ops.size(x).shape == ()
    assert ops.softmax(x).dtype == "float32"
    assert ops.image.resize(keras.KerasTensor((None, 8, 8, 3)), (4, 4)).shape == (None, 4, 4, 3)


def test_control_flow() -> None:
    assert int(ops.cond(np.array(True), lambda: 1, lambda: 2)) == 1
    assert int(ops.switch(1, [lambda x: x, lambda x: x + 1], 3)) == 4
    assert int(ops.switch(9, [lambda x: x, lambda x: x + 1], 3)) == 4
    assert int(ops.fori_loop(0, 3, lambda i, x: x + i, 0)) == 3
    assert int(ops.while_loop(lambda x: x < 10, lambda x: x + 3, 0)) == 12
    first, second = ops.while_loop(lambda x, y: x < 10, lambda x, y: [x + 3, y * 2], [0, 1], maximum_iterations=2)
    assert (int(first), int(second)) == (6, 4)
    carry, results = ops.scan(lambda total, x: (total + x, total), 0, np.arange(4))
    assert int(carry) == 6
    np.testing.assert_array_equal(results, [0, 0, 1, 3])
    np.testing.assert_array_equal(ops.associative_scan(lambda a, b: a + b, np.arange(4)), [0, 1, 3, 6])
    np.testing.assert_array_equal(ops.map(lambda x: x + 1, np.arange(3)), [1, 2, 3])
    np.testing.assert_array_equal(ops.vectorized_map(lambda x: x + 1, np.arange(3)), [1, 2, 3])
    np.testing.assert_array_equal(ops.vectorize(lambda x, y: x + y)(np.arange(3), 1), [1, 2, 3])


def test_gradients() -> None:
    @ops.custom_gradient
    def doubled(x: Any) -> Any:
        return x * 2, lambda upstream: upstream * 10

    assert float(weft.grad(doubled)(1.0)) == 10
    assert float(weft.grad(lambda x: x * ops.stop_gradient(x))(3.0)) == 3
    value, derivative = ops.jvp(lambda x: x * x, (3.0,), (1.0,))
    assert (float(value), float(derivative)) == (9, 6)
    # Where a formula has a root or a quotient at 0, its derivative is still finite.
    zeros = np.zeros((2, 3), "float32")
    for function in (lambda x: ops.cdist(x, x), ops.normalize, lambda x: ops.divide_no_nan(x, x)):
        assert np.isfinite(weft.grad(lambda x, f=function: f(x).sum())(zeros)).all()


def test_conversion() -> None:
    variable = keras.Variable([1.0, 2.0])
    assert ops.is_tensor(ops.convert_to_tensor(variable)) and not ops.is_tensor([1.0])
    assert ops.dtype(ops.convert_to_tensor([1, 2], dtype="float16")) == "float16"
    assert isinstance(ops.convert_to_numpy(variable), np.ndarray)
    np.testing.assert_array_equal(ops.add(variable, variable), [2.0, 4.0])
    np.testing.assert_array_equal(ops.exp(variable * 0), [1.0, 1.0])
    previous = keras.backend.floatx()
    keras.backend.set_floatx("float16")
    try:
        assert {str(x.dtype) for x in (ops.ones(2), ops.exp([1]), ops.arange(3.0))} == {"float16"}
    finally:
        keras.backend.set_floatx(previous)


def test_eigenvalues() -> None:
    matrix = ops_table.NAMES["S"]
    values, vectors = ops.eig(matrix)
    np.testing.assert_allclose(ops.matmul(matrix, vectors), vectors * values[:, None], atol=1e-5)


def test_beam_search_adds_up_all_paths() -> None:
    # Every path of three classes over four times, by its labels.
    scores = np.random.RandomState(1).uniform(-1, 1, (1, 4, 3)).astype("float32")
    logs = np.asarray(ops.log_softmax(scores))[0]
    totals: dict[tuple[int, ...], float] = {}
    for path in np.ndindex(3, 3, 3, 3):
        labels = tuple(c for i, c in enumerate(path) if c and (i == 0 or c != path[i - 1]))
        totals[labels] = np.logaddexp(totals.get(labels, -np.inf), sum(logs[i, c] for i, c in enumerate(path)))
    best = sorted(totals.items(), key=lambda item: -item[1])[:3]
    labels, found = ops.ctc_decode(scores, [4], strategy="beam_search", beam_width=40, top_paths=3)
    for i, (path, total) in enumerate(best):
        assert labels[i, 0].tolist() == [*path, *[-1] * (4 - len(path))]
        np.testing.assert_allclose(found[0, i], total, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.conv(np.ones((1, 5)), np.ones((3, 1, 2))), ShapeMismatchError, "spatial axes"),
        (lambda: ops.conv(np.ones((1, 5, 1)), np.ones((3, 1, 2)), padding="full"), ArgumentError, "padding"),
        (lambda: ops.pad([1], 1, "reflect", constant_values=2), ArgumentError, "constant"),
        (lambda: ops.where([True], 1), ArgumentError, "both"),
        (lambda: ops.rearrange([[1]], "a b -> a c"), ArgumentError, "same axes"),
        (lambda: ops.unstack([1], num=3), ArgumentError, "1 parts"),
        (lambda: ops.scatter_update([1], [[0]], [2], "mean"), ArgumentError, "reduction"),
        (lambda: ops.one_hot([1], 3, sparse=True), ArgumentError, "dense"),
        (lambda: ops.stft(np.ones(9), 8, 2, 4), ArgumentError, "as long as"),
        (lambda: ops.categorical_crossentropy([[1.0]], [[1.0, 2.0]]), ShapeMismatchError, "same shape"),
        (lambda: ops.det([[1.0, 2.0]]), ArgumentError, "same size"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_files_know_operations() -> None:
    config = keras.saving.serialize_keras_object(ops.relu)
    assert json.loads(json.dumps(config))["config"] == "relu"
    assert keras.saving.deserialize_keras_object(config) is ops.relu


@pytest.mark.parametrize(
    "module",
    [
        *("activations", "constraints", "initializers", "initializers.base", "initializers.constant"),
        *("initializers.random", "ops.core", "ops.linalg", "ops.math", "random", "regularizers"),
        *("ops.nn", "ops.numpy", "ops.image"),
    ],
)
def test_examples(module: str) -> None:
    found = importlib.import_module(f"weft.keras.{module}")
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for name in dir(found):
        value = getattr(found, name)
        if callable(value) and not name.startswith("_") and "weft.keras" in getattr(value, "__module__", ""):
            for test in finder.find(value, name, module=False, globs={}):
                runner.run(test)
    assert runner.failures == 0
