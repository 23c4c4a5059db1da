"""Operations, random arrays, initializers and their relatives against Keras on JAX."""

from __future__ import annotations

import functools
import json
import os
import warnings
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras as peer

import weft
from tests.keras import ops_table
from tests.keras.test_ops import model_of, traced, with_lists
from weft import keras

pytestmark = [pytest.mark.filterwarnings("ignore")]

CASES = list(ops_table.cases())
# Keras' own results are not what its documentation says: its sparsemax does not sum to 1, and its blur of images with
# channels last is darker than that of the same images with channels first.
DIFFERENT = {"sparsemax", "image.gaussian_blur"}
HALF = {"float16": 2e-3, "bfloat16": 2e-2}


def find(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def as_arrays(value: Any) -> Any:
    """Convert lists of numbers to arrays: some operations of Keras take no lists."""
    numbers = isinstance(value, list) and not any(isinstance(v, (np.ndarray, tuple)) for v in value)
    return np.asarray(value) if numbers else value


def expected(case: ops_table.Case) -> Any:
    args, kwargs = case.arguments()
    function = find(peer.ops, case.name)
    try:
        return function(*args, **kwargs)
    except (TypeError, AttributeError, ValueError):
        args = tuple(as_arrays(value) for value in args)
        return function(*args, **{name: as_arrays(value) for name, value in kwargs.items()})


def assert_same(found: Any, wanted: Any, what: str, tolerance: float = 1e-6) -> None:
    """Equal structures, dtypes and shapes, and values that differ by rounding only."""
    found, wanted = weft.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted), what
    for one, other in zip(found, wanted, strict=True):
        if hasattr(other, "dtype"):
            assert str(one.dtype) == str(other.dtype), what
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape, what
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other, err_msg=what)
        else:
            near = HALF.get(str(one.dtype), tolerance)
            finite = np.where(np.isfinite(other), other, 0)
            scale = max(1.0, float(np.max(np.abs(finite), initial=0)))
            np.testing.assert_allclose(one, other, rtol=near, atol=near * scale, err_msg=what)


@pytest.mark.parametrize("first", range(0, len(CASES), 25))
def test_operations(first: int) -> None:
    for case in CASES[first : first + 25]:
        if case.name in DIFFERENT:
            continue
        args, kwargs = case.arguments()
        assert_same(find(keras.ops, case.name)(*args, **kwargs), expected(case), str(case))


@pytest.mark.parametrize("first", range(0, len(CASES), 50))
def test_models_of_operations_go_both_ways(first: int) -> None:
    """What a functional model says about its operations is read by Keras, and what Keras says about them by us."""
    for case in CASES[first : first + 50]:
        result = model_of(case)
        if result is None:
            continue
        arrays, model, config = result
        try:
            theirs = [peer.Input(batch_shape=array.shape, dtype=str(array.dtype)) for array in arrays]
            traced(case, with_lists, peer.ops)[1](*theirs)
        except Exception:
            continue
        if "FunctionOperation" in json.dumps(config):
            assert str(case) in WITHOUT_CLASS or case.name == "image.extract_patches_3d"
            continue
        back = type(model).from_config(json.loads(json.dumps(peer.Model.from_config(config).get_config())))
        assert [out.shape for out in back.outputs] == [out.shape for out in model.outputs], case
        assert "FunctionOperation" not in json.dumps(back.get_config()), case  # Keras reads what is written again
        assert_same(
            back(*[arrays] if len(arrays) > 1 else arrays), model(*[arrays] if len(arrays) > 1 else arrays), str(case)
        )


# Calls whose options are tensors or arrays.
WITHOUT_CLASS = {
    "clip(X, W[:, None], 1.0)",
    "istft((Q[:, :, 0], Q[:, :, 1]), 3, 2, 4, center=False, window=np.ones(3))",
    "stft(SIGNAL, 5, 4, 8, window=np.ones(5))",
}
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "uint32", "float16", "bfloat16", "float32")
PROMOTING = ("add", "multiply", "divide", "maximum", "power", "floor_divide", "matmul", "where", "concatenate", "equal")


@pytest.mark.parametrize("name", PROMOTING)
def test_dtypes_of_pairs(name: str) -> None:
    calls = {
        "where": lambda ops, x, y: ops.where(np.ones((2, 2), bool), x, y),
        "concatenate": lambda ops, x, y: ops.concatenate([x, y]),
    }
    call = calls.get(name, lambda ops, x, y: getattr(ops, name)(x, y))
    scalars = () if name in ("matmul", "concatenate") else (2, 2.0)
    for first in DTYPES:
        for second in (*DTYPES, *scalars):
            x = np.ones((2, 2)).astype(jax.numpy.dtype(first))
            y = np.ones((2, 2)).astype(jax.numpy.dtype(second)) if isinstance(second, str) else second
            try:
                wanted = jax.eval_shape(functools.partial(call, peer.ops), x, y)
            except TypeError:
                continue  # arithmetic that booleans do not have
            found = weft.eval_shape(functools.partial(call, keras.ops), x, y)
            assert str(found.dtype) == str(wanted.dtype), (name, first, second)


@pytest.mark.parametrize(
    "name", ["exp", "sqrt", "floor", "mean", "sum", "prod", "std", "argmax", "cumsum", "softplus", "square"]
)
def test_dtypes_of_one(name: str) -> None:
    for dtype in DTYPES:
        x = np.ones((2, 2)).astype(jax.numpy.dtype(dtype))
        found = weft.eval_shape(getattr(keras.ops, name), x)
        assert str(found.dtype) == str(jax.eval_shape(getattr(peer.ops, name), x).dtype), (name, dtype)


def test_beam_search_has_the_scores_of_keras() -> None:
    scores = ops_table.NAMES["Z"]
    options = {"strategy": "beam_search", "beam_width": 60, "top_paths": 3}
    labels, found = keras.ops.ctc_decode(scores, [8, 5], **options)
    wanted_labels, wanted = peer.ops.ctc_decode(scores, np.array([8, 5]), **options)
    np.testing.assert_array_equal(labels, wanted_labels)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_convolutions_transposed_by_grid() -> None:
    x = np.random.RandomState(0).uniform(-1, 1, (1, 5, 2)).astype("float32")
    for size in (1, 2, 3, 4, 5):
        kernel = np.random.RandomState(size).uniform(-1, 1, (size, 3, 2)).astype("float32")
        for stride, dilation in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2)):
            for padding in ("valid", "same"):
                for extra in (None, *range(stride)):
                    args = (x, kernel, stride, padding, extra, None, dilation)
                    wanted = peer.ops.conv_transpose(*args)
                    if 0 not in wanted.shape:
                        assert_same(keras.ops.conv_transpose(*args), wanted, str(args[2:]))


# -------------------------------------------------------------------------------------------------------------- random

DRAWS = [
    ("normal", ((3, 4), 1.0, 2.0)),
    ("normal", ((5,),)),
    ("uniform", ((3, 4), -1.0, 2.0)),
    ("randint", ((3, 4), -3, 9)),
    ("truncated_normal", ((3, 4), 0.5, 2.0)),
    ("categorical", (np.log([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]]), 7)),
    ("shuffle", (np.arange(20).reshape(10, 2),)),
    ("shuffle", (np.arange(20).reshape(4, 5), 1)),
    ("dropout", (np.ones((5, 6), "float32"), 0.4)),
    ("dropout", (np.ones((5, 6), "float32"), 0.4, (5, 1))),
]


@pytest.mark.parametrize(("name", "args"), DRAWS, ids=str)
def test_draws_have_the_bits_of_keras(name: str, args: tuple[Any, ...]) -> None:
    for seed in (1, 12345):
        found, wanted = (getattr(library.random, name)(*args, seed=seed) for library in (keras, peer))
        assert str(found.dtype) == str(wanted.dtype)
        np.testing.assert_array_equal(found, wanted)
    generators = [library.random.SeedGenerator(7) for library in (keras, peer)]
    for _ in range(3):
        found, wanted = (
            getattr(library.random, name)(*args, seed=generator)
            for library, generator in zip((keras, peer), generators, strict=True)
        )
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("name", "args"), [("gamma", ((20,), 2.0)), ("beta", ((20,), 2.0, 3.0)), ("binomial", ((20,), 9.0, 0.3))], ids=str
)
def test_draws_near_those_of_keras(name: str, args: tuple[Any, ...]) -> None:
    found, wanted = (getattr(library.random, name)(*args, seed=3) for library in (keras, peer))
    assert_same(found, wanted, name, 1e-5)


def test_draws_of_the_global_generator() -> None:
    found = []
    for library in (keras, peer):
        library.utils.set_random_seed(3)
        found.append([np.asarray(library.random.normal((4,))) for _ in range(3)])
    np.testing.assert_array_equal(found[0], found[1])


# ------------------------------------------------------------------------------------- initializers and their relatives

INITIALIZERS = [
    *("GlorotUniform", "GlorotNormal", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform"),
    *("RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling"),
]
SHAPES = [(3, 4), (5,), (3, 3, 2, 4), (2, 2, 2, 3, 4)]


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initial_values_have_the_bits_of_keras(name: str) -> None:
    for shape in SHAPES:
        found, wanted = (getattr(library.initializers, name)(seed=11)(shape) for library in (keras, peer))
        np.testing.assert_array_equal(found, wanted)
    objects = []
    for library in (keras, peer):
        library.utils.set_random_seed(5)
        objects.append(getattr(library.initializers, name)())
    assert objects[0].seed == objects[1].seed
    assert objects[0].get_config() == objects[1].get_config()


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
@pytest.mark.parametrize("distribution", ["truncated_normal", "untruncated_normal", "uniform", "normal"])
def test_scaled_variances(mode: str, distribution: str) -> None:
    for shape, axes in (
        ((3, 4), {}),
        ((3, 4, 5), {"input_axes": [0], "output_axes": [1, 2]}),
        ((3, 4, 5), {"input_axes": [0]}),
        ((3, 4, 5, 2), {"input_axes": [1, 2], "output_axes": [3]}),
    ):
        found, wanted = (
            library.initializers.VarianceScaling(2.0, mode, distribution, 3, **axes)(shape) for library in (keras, peer)
        )
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda i: i.Constant(2.5)((2, 3)),
        lambda i: i.Constant(np.array([1, 2, 3]))((2, 3)),
        lambda i: i.Zeros()((2,), "int32"),
        lambda i: i.Ones()((2,)),
        lambda i: i.Identity(2.0)((3, 4)),
        lambda i: i.Orthogonal(seed=1)((4, 3)),
        lambda i: i.Orthogonal(2.0, seed=1)((2, 3, 8)),
        lambda i: i.STFT()((8, 1, 5)),
        lambda i: i.STFT("imag", "hamming", "spectrum", True)((8, 1, 5)),
        lambda i: i.STFT("imag", None, "density")((4, 1, 3)),
        lambda i: i.RandomNormal(seed=2)((3,), "float16"),
    ],
)
def test_other_initializers(call: Any) -> None:
    assert_same(call(keras.initializers), call(peer.initializers), "initializer")


WEIGHTS = np.random.RandomState(0).uniform(-2, 2, (3, 4)).astype("float32")


@pytest.mark.parametrize(
    "text",
    [
        *("regularizers.L1(0.3)", "regularizers.L2(0.3)", "regularizers.L1L2(0.1, 0.2)", "regularizers.L1L2()"),
        *("regularizers.OrthogonalRegularizer(0.3)", "constraints.MaxNorm()", "constraints.MaxNorm(1.0, axis=1)"),
        *("constraints.MaxNorm(axis=[0, 1])", "constraints.NonNeg()", "constraints.UnitNorm()"),
        "constraints.MinMaxNorm(0.5, 1.5, 0.4)",
    ],
)
def test_regularizers_and_constraints(text: str) -> None:
    kind, _, call = text.partition(".")
    objects = [eval(call, vars(getattr(library, kind))) for library in (keras, peer)]
    assert_same(objects[0](WEIGHTS), objects[1](WEIGHTS), text)
    serialized = [getattr(library, kind).serialize(one) for library, one in zip((keras, peer), objects, strict=True)]
    configs = [one.pop("config") for one in serialized]
    assert serialized[0] == serialized[1]
    # Some of Keras' coefficients are rounded to float32 in its configs.
    assert configs[0] == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in configs[1].items()
    }
    restored = getattr(keras, kind).deserialize({**serialized[1], "config": configs[1]})
    assert_same(restored(WEIGHTS), objects[1](WEIGHTS), text)


ACTIVATIONS = [
    name for name in keras.activations.__all__ if name not in ("get", "serialize", "deserialize", "sparsemax")
]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    args = (0.3, -1.0) if name == "threshold" else ()
    for x in (WEIGHTS * 4, WEIGHTS.astype("float16")):
        found, wanted = (getattr(library.activations, name)(x, *args) for library in (keras, peer))
        assert_same(found, wanted, name)
    serialized = [library.activations.serialize(getattr(library.activations, name)) for library in (keras, peer)]
    assert serialized[0] == serialized[1]
    assert keras.activations.get(name) is getattr(keras.activations, name)


def test_relu_with_options() -> None:
    for args in ((0.1,), (0.0, 6.0), (0.0, 3.0), (0.1, 6.0, 1.0), (0.0, None, 1.0), (0.2, None, -1.5)):
        found, wanted = (library.activations.relu(WEIGHTS * 4, *args) for library in (keras, peer))
        assert_same(found, wanted, str(args))


@pytest.mark.parametrize("kind", ["initializers", "regularizers", "constraints", "activations"])
def test_names_that_keras_knows(kind: str) -> None:
    names = {
        "initializers": [
            "glorot_uniform",
            "zeros",
            "ones",
            "uniform",
            "normal",
            "he_normal",
            "IdentityInitializer",
            "orthogonal",
        ],
        "regularizers": ["l1", "l2", "L1L2", "orthogonal_regularizer"],
        "constraints": ["max_norm", "non_neg", "NonNeg", "unit_norm", "min_max_norm"],
        "activations": ["relu", "swish", "hard_swish", "log_softmax", None],
    }[kind]
    for name in names:
        found, wanted = (getattr(library, kind).get(name) for library in (keras, peer))
        assert getattr(found, "__name__", type(found).__name__) == getattr(wanted, "__name__", type(wanted).__name__)
    with pytest.raises(ValueError, match="nonsense"):
        getattr(keras, kind).get("nonsense")
