"""Variables, scopes, names, policies, seeds, and objects as plain data."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.errors import ArgumentError, FileFormatError, ShapeMismatchError
from weft.keras.core import context, registry
from weft.keras.core.names import auto_name, name_scope, to_snake_case
from weft.keras.core.scope import StatelessScope, stateless
from weft.keras.core.seeds import SeedGenerator, draw_seed, set_random_seed
from weft.keras.core.spec import InputSpec, check_input, standardize_shape
from weft.keras.core.variable import Variable


def test_a_variable_is_read_like_an_array() -> None:
    variable = Variable([1.0, 2.0], name="scale")
    assert (variable.path, variable.shape, variable.dtype) == ("scale", (2,), "float32")
    np.testing.assert_array_equal(variable + 1, [2, 3])
    np.testing.assert_array_equal(1 - variable, [0, -1])
    np.testing.assert_array_equal(-variable, [-1, -2])
    np.testing.assert_array_equal(variable == 2, [False, True])
    np.testing.assert_allclose(wnp.sin(variable), np.sin([1, 2]), rtol=1e-6)
    assert float(variable @ variable) == 5
    assert float(variable[1]) == 2
    assert len({variable, variable}) == 1


def test_assign_converts_and_checks() -> None:
    variable = Variable(np.zeros((2, 3), "float32"), name="w")
    variable.assign(np.ones((2, 3), "int8"))
    variable.assign_add([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(variable.numpy(), [[2, 3, 4]] * 2)
    with pytest.raises(ShapeMismatchError, match=r"w has the shape \(2, 3\)"):
        variable.assign(np.zeros((3, 2)))


def test_the_cell_is_not_the_callers_array() -> None:
    values = np.zeros(3, "float32")
    variable = Variable(values)
    values[:] = 7
    np.testing.assert_array_equal(variable.numpy(), [0, 0, 0])


@pytest.mark.parametrize(
    ("value", "dtype"), [(3, "int32"), (1.5, "float32"), (True, "bool"), (np.ones(2, "float16"), "float16")]
)
def test_dtypes_of_initial_values(value: object, dtype: str) -> None:
    assert Variable(value).dtype == dtype


def test_stateless_takes_and_returns_values() -> None:
    count, scale = Variable(0, dtype="int32", trainable=False), Variable(2.0)

    def step(x: weft.Array) -> weft.Array:
        count.assign_add(1)
        return x * scale.value

    run = weft.jit(stateless(step, [count]))
    result, (new,) = run([count.value], 3.0)
    assert (float(result), int(new), int(count.value)) == (6.0, 1, 0)
    gradient = weft.grad(lambda value: stateless(step, [scale, count])([value, 0], 3.0)[0])(2.0)
    assert float(gradient) == 3.0
    batched = weft.vmap(lambda value: stateless(step, [scale, count])([value, 0], 3.0)[0])(wnp.arange(3.0))
    np.testing.assert_array_equal(batched, [0, 3, 6])


def test_writes_that_would_be_lost_are_errors() -> None:
    count, other = Variable(0.0, name="count"), Variable(0.0)
    step = lambda x: count.assign(x)
    with pytest.raises(ArgumentError, match="count is written in a traced function that does not return it"):
        weft.jit(stateless(step, [other]))([0.0], 1.0)
    with pytest.raises(ArgumentError, match="count cannot be assigned in a traced function"):
        weft.jit(step)(1.0)
    assert float(count.value) == 0


def test_inner_scopes_read_outer_ones_and_keep_their_writes() -> None:
    variable = Variable(1.0)
    with StatelessScope() as outer:
        variable.assign(2.0)
        with StatelessScope() as inner:
            assert float(variable.value) == 2
            variable.assign(3.0)
        assert float(variable.value) == 2
    assert [float(scope.get_current_value(variable)) for scope in (outer, inner)] == [2, 3]
    assert float(variable.value) == 1


def test_another_thread_does_not_see_a_scope() -> None:
    variable, seen = Variable(1.0), []
    with StatelessScope():
        variable.assign(2.0)
        thread = threading.Thread(target=lambda: seen.append(float(variable.value)))
        thread.start()
        thread.join()
    assert seen == [1.0]


def test_a_variable_of_a_trace_has_a_concrete_value() -> None:
    found = []

    def traced(x: weft.Array) -> weft.Array:
        found.append(Variable(lambda shape, dtype: weft.random.normal(weft.random.key(0), shape, dtype), (2,)))
        return x + found[0].value

    weft.jit(traced)(1.0)
    np.testing.assert_array_equal(found[0].numpy(), weft.random.normal(weft.random.key(0), (2,)))
    with pytest.raises(ArgumentError, match="is traced"):
        weft.jit(lambda x: Variable(x).value)(1.0)


def test_names_and_paths() -> None:
    keras.backend.clear_session()
    assert [auto_name("Dense"), auto_name("Dense"), auto_name("BatchNormalization")] == [
        "dense",
        "dense_1",
        "batch_normalization",
    ]
    assert [to_snake_case(name) for name in ("Conv2D", "LSTM", "ReLU", "MyMLPBlock")] == [
        "conv2d",
        "lstm",
        "re_lu",
        "my_mlp_block",
    ]
    with name_scope("outer"), name_scope("inner", caller=1), name_scope("inner", caller=1):
        assert Variable(0.0, name="w").path == "outer/inner/w"
    with pytest.raises(ArgumentError, match="without `/`"):
        Variable(0.0, name="a/b")


def test_policies() -> None:
    mixed = keras.DTypePolicy("mixed_float16")
    assert (mixed.compute_dtype, mixed.variable_dtype) == ("float16", "float32")
    assert keras.dtype_policies.deserialize(keras.dtype_policies.serialize(mixed)) == mixed
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        assert keras.DTypePolicy() == keras.DTypePolicy("mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy(None)
    with pytest.raises(ArgumentError, match="dtype policy"):
        keras.DTypePolicy("nothing")
    table = keras.dtype_policies.DTypePolicyMap("float32", {"a/b": "bfloat16"})
    assert [table[path].name for path in ("a", "a/b", "a/b/c", "a/bc")] == [
        "float32",
        "bfloat16",
        "bfloat16",
        "float32",
    ]


def test_dtypes() -> None:
    standardize, result_type = keras.backend.standardize_dtype, keras.backend.result_type
    # What equals "float" and "int" for NumPy is not what these names mean.
    assert standardize(np.dtype("float64")) == "float64" and standardize(np.dtype("int64")) == "int64"
    assert [standardize(d) for d in (None, int, float, bool, np.int8, wnp.bfloat16, "float")] == [
        "float32",
        "int32",
        "float32",
        "bool",
        "int8",
        "bfloat16",
        "float32",
    ]
    assert [result_type("int32", "float16"), result_type("int8", int), result_type(float, "int32")] == [
        "float16",
        "int8",
        "float32",
    ]
    with pytest.raises(ArgumentError, match="not a dtype"):
        standardize("float99")


def test_seeds_count_draws() -> None:
    generator = SeedGenerator(7)
    assert [generator.next().tolist(), generator.next().tolist()] == [[7, 0], [7, 1]]
    assert draw_seed(5).tolist() == [5, 0]
    set_random_seed(3)
    first = SeedGenerator().next().tolist()
    set_random_seed(3)
    assert SeedGenerator().next().tolist() == first
    run = weft.jit(stateless(generator.next, [generator.state]))
    drawn, (state,) = run([generator.state.value])
    assert (drawn.tolist(), state.tolist(), generator.state.numpy().tolist()) == ([7, 2], [7, 3], [7, 2])


def test_specs() -> None:
    check_input(InputSpec(ndim=2, axes={-1: 3}), np.ones((5, 3)), "dense")
    with pytest.raises(ShapeMismatchError, match="layer dense must have size 3 on axis -1, and has 4"):
        check_input(InputSpec(ndim=2, axes={-1: 3}), np.ones((5, 4)), "dense")
    with pytest.raises(ShapeMismatchError, match="Input 1 of layer add must have 2 axes, and has 1"):
        check_input([InputSpec(ndim=2), InputSpec(ndim=2)], [np.ones((1, 1)), np.ones(1)], "add")
    assert standardize_shape([None, np.int64(3)]) == (None, 3)


def test_plain_data_and_back() -> None:
    value = {
        "a": (1, 2.5, None, "x"),
        "b": [slice(1, None), ...],
        "c": np.arange(4, dtype="int16"),
        "d": keras.regularizers.L2(0.5),
        "e": b"bytes",
    }
    data = registry.serialize_keras_object(value)
    back = registry.deserialize_keras_object(data)
    assert (back["a"], back["b"], back["e"]) == (value["a"], value["b"], value["e"])
    np.testing.assert_array_equal(back["c"], value["c"])
    assert back["d"].get_config() == value["d"].get_config()


@keras.saving.register_keras_serializable(package="tests")
class Registered:
    def __init__(self, size: int):
        self.size = size

    def get_config(self) -> dict[str, int]:
        return {"size": self.size}

    @classmethod
    def from_config(cls, config: dict[str, int]) -> Registered:
        return cls(**config)


def test_registered_classes() -> None:
    data = registry.serialize_keras_object(Registered(3))
    assert (data["class_name"], data["registered_name"]) == ("Registered", "tests>Registered")
    assert registry.deserialize_keras_object(data).size == 3
    unknown = {"class_name": "Missing", "config": {"size": 2}, "module": "somewhere", "registered_name": "x>Missing"}
    with pytest.raises(ArgumentError, match="'x>Missing' is not known"):
        registry.deserialize_keras_object(unknown)
    assert registry.deserialize_keras_object(unknown, {"Missing": Registered}).size == 2
    with pytest.raises(TypeError, match="needs a class method `from_config`"):
        registry.deserialize_keras_object(unknown, {"Missing": dict})


@pytest.mark.parametrize("name", ["os.system", "system", "eval", "__import__"])
def test_nothing_is_imported_or_called_by_a_name_from_data(name: str) -> None:
    data = {"class_name": name, "config": {"command": "echo"}, "module": "os", "registered_name": None}
    with pytest.raises((ArgumentError, FileFormatError)):
        registry.deserialize_keras_object(data)
    function = {"class_name": "function", "config": name, "module": "builtins", "registered_name": name}
    with pytest.raises(ArgumentError, match="is not known"):
        registry.deserialize_keras_object(function)


def test_lambdas_are_read_back_only_when_asked_for() -> None:
    with pytest.warns(UserWarning, match="lambda"):
        data = registry.serialize_keras_object(lambda x: x + 1)
    with pytest.raises(FileFormatError, match="lambda"):
        registry.deserialize_keras_object(data)
    assert registry.deserialize_keras_object(data, safe_mode=False)(2) == 3


def test_masks_live_as_long_as_their_values() -> None:
    value = wnp.ones(3)
    context.set_keras_mask(value, wnp.ones(3, bool))
    assert context.get_keras_mask(value).all()
    entries = len(context._masks)
    del value
    assert len(context._masks) == entries - 1


def test_device_chooses_where_arrays_are() -> None:
    for name in ("cpu:0", "CPU", weft.devices("cpu")[0]):
        with keras.device(name):
            assert keras.ops.ones((2,)).devices() == {weft.devices("cpu")[0]}
    for name in ("cpu:99", "tpu:0", "cpu:x"):
        with pytest.raises(ArgumentError, match="must be one of the devices"):
            keras.device(name)
    with pytest.raises(TypeError, match="must be a name"):
        keras.device(3)  # type: ignore[arg-type]
