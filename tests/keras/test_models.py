"""Models: functional, sequential, subclassed; graphs, configs, copies, tables and drawings."""

from __future__ import annotations

import gc
import json
import pathlib
import sys
import weakref
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras import layers
from weft.keras.models.plot import plot_model

X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


def branching() -> keras.Model:
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    shared = layers.Dense(3, name="shared")
    merged = shared(a) * 2 + shared(b)
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="relu", name="last")], name="inner")
    return keras.Model({"a": a, "b": b}, {"y": inner(merged), "z": keras.ops.mean(merged, axis=-1)}, name="branching")


def sequential() -> keras.Sequential:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="relu"), layers.Dense(2)], name="stack")


class Subclassed(keras.Model):
    def __init__(self, units: int = 3, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units
        self.dense = layers.Dense(units)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dense(x)


INPUTS = {branching: {"a": X, "b": X + 1}, sequential: X, Subclassed: X}


@pytest.mark.parametrize("make", INPUTS)
def test_laws(make: Any) -> None:
    model, inputs = make(), INPUTS[make]
    y = model(inputs)
    close = lambda one, other: weft.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-6), one, other)
    close(weft.jit(model)(inputs), y)
    spec = model.compute_output_spec(weft.tree.map(lambda v: keras.KerasTensor((None, 4)), inputs))
    weft.tree.map(lambda s, v: (s.shape[1:] == v.shape[1:]) or pytest.fail(f"{s} {v}"), spec, y)
    objects = {"Subclassed": Subclassed}
    copy = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(model))), custom_objects=objects
    )
    copy(inputs)
    copy.set_weights(model.get_weights())
    close(copy(inputs), y)
    assert [w.shape for w in copy.weights] == [w.shape for w in model.weights]
    clone = keras.models.clone_model(model)
    clone(inputs)
    clone.set_weights(model.get_weights())
    close(clone(inputs), y)
    assert not {id(w) for w in clone.weights} & {id(w) for w in model.weights}


def test_layers_of_a_graph_are_in_order() -> None:
    model = branching()
    assert [layer.name for layer in model.layers] == ["a", "shared", "b", "inner"]
    assert model.input_names == ["a", "b"]
    assert model.output_shape == [(None, 2), (None,)]
    assert [w.path for w in model.weights] == ["shared/kernel", "shared/bias", "inner/last/kernel", "inner/last/bias"]
    assert model.get_layer("inner").get_layer(index=0).name == "last"
    with pytest.raises(ArgumentError, match="no such layer; its layers are a, shared, b, inner"):
        model.get_layer("outer")


def test_inputs_by_list_dict_and_name() -> None:
    a, b = keras.Input((4,), name="a"), keras.Input((1,), name="b")
    model = keras.Model([a, b], a + b)
    one = np.arange(5.0, dtype="float32")
    expected = X + one[:, None]
    np.testing.assert_allclose(model([X, one[:, None]]), expected)
    np.testing.assert_allclose(model({"b": one[:, None], "a": X, "more": X}), expected)
    np.testing.assert_allclose(model([X, one]), expected)  # the last axis of size 1 is added
    np.testing.assert_allclose(model((X.astype("float64"), one[:, None].astype("int32"))), expected)
    with pytest.raises(ValueError, match="2 inputs"):
        model([X])
    with pytest.raises(ValueError, match="must have the shape"):
        model([X[:, :2], one])


def test_a_model_from_the_middle_of_another() -> None:
    x = keras.Input((4,))
    hidden = layers.Dense(3, name="one")(x)
    y = layers.Dense(2, name="two")(hidden)
    whole, head, tail = keras.Model(x, y), keras.Model(x, hidden), keras.Model(hidden, y)
    np.testing.assert_allclose(tail(head(X)), whole(X), rtol=1e-6)
    assert [layer.name for layer in tail.layers][1:] == ["two"]
    both = keras.Model(whole.inputs, [whole.get_layer("one").output, whole.output])
    np.testing.assert_allclose(both(X)[1], whole(X), rtol=1e-6)
    with pytest.raises(ArgumentError, match="which the inputs do not compute"):
        keras.Model(keras.Input((4,)), y)


def test_names_are_different() -> None:
    x = keras.Input((4,))
    with pytest.raises(ArgumentError, match="used twice: same"):
        keras.Model(x, layers.Dense(2, name="same")(layers.Dense(2, name="same")(x)))
    with pytest.raises(ArgumentError, match="name same already"):
        keras.Sequential([layers.Dense(2, name="same"), layers.Dense(2, name="same")])


def test_what_was_called_with_training_keeps_it() -> None:
    seen: list[Any] = []

    class Look(layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            seen.append(training)
            return x

    x = keras.Input((4,))
    model = keras.Model(x, Look(name="free")(Look(name="fixed")(x, training=False)))
    seen.clear()
    model(X, training=True)
    assert seen == [False, True]
    with keras.saving.custom_object_scope({"Look": Look}):
        copy = type(model).from_config(model.get_config())
    seen.clear()
    copy(X, training=True)
    assert seen == [False, True]


def test_sequential_models_grow_and_shrink() -> None:
    model = keras.Sequential(name="grows")
    model.add(layers.Dense(3))
    assert not model.built and model.weights == []
    model(X)
    assert model.built and model.input_shape == (5, 4)
    model.add(layers.Dense(2))
    assert model.output_shape == (5, 2)
    model.pop()
    assert model.output_shape == (5, 3)
    assert model.count_params() == 15
    with pytest.raises(ArgumentError, match="has no layers"):
        keras.Sequential().build((None, 3))
    with pytest.raises(ArgumentError, match="must consist of layers"):
        keras.Sequential([lambda x: x])


def test_subclasses_with_inputs_and_outputs() -> None:
    class Classifier(keras.Model):
        def __init__(self) -> None:
            x = keras.Input((4,))
            super().__init__(x, layers.Dense(2)(x), name="classifier")

    model = Classifier()
    assert model(X).shape == (5, 2)
    assert isinstance(model, keras.models.Functional)
    assert len(model.layers) == 2


def test_any_model_from_the_config_of_a_graph() -> None:
    model = branching()
    again = keras.Model.from_config(json.loads(json.dumps(model.get_config())))
    again.set_weights(model.get_weights())
    for name, value in model({"a": X, "b": X}).items():
        np.testing.assert_array_equal(again({"a": X, "b": X})[name], value)
    with pytest.raises(ArgumentError, match="does not take the arguments layers"):
        Subclassed.from_config(model.get_config())  # its constructor takes no inputs and outputs


def test_unknown_sizes_are_those_that_they_broadcast_with() -> None:
    x = keras.Input((4,))
    assert (x + keras.KerasTensor((3, 1))).shape == (3, 4)
    assert (x * np.ones((3, 4), "float32")).shape == (3, 4)
    assert keras.ops.where(x > 0, np.ones((3, 1), "float32"), x).shape == (3, 4)
    assert (keras.KerasTensor((None, 3)) - keras.KerasTensor((None, None))).shape == (None, 3)
    assert keras.ops.matmul(keras.KerasTensor((2, None)), keras.KerasTensor((4, 5))).shape == (2, 5)
    with pytest.raises(ShapeMismatchError):
        keras.KerasTensor((None, 3)) + keras.KerasTensor((4,))
    with pytest.raises(ShapeMismatchError):
        keras.ops.matmul(keras.KerasTensor((None, 3)), keras.KerasTensor((4, 5)))


def test_equations_have_the_paths_of_layers() -> None:
    model = branching()
    traced = weft.make_jaxpr(lambda x: model({"a": x, "b": x}))(X)
    paths = {"/".join(map(str, equation.stack)) for equation in traced.eqns}
    assert {"branching/shared", "branching/inner/last", "branching"} <= paths


def test_freezing_a_model_freezes_its_layers() -> None:
    model = branching()
    model.get_layer("inner").trainable = False
    assert [w.path for w in model.trainable_weights] == ["shared/kernel", "shared/bias"]
    model.trainable = False
    assert model.trainable_weights == [] and not model.get_layer("shared").trainable


def test_gradients_through_a_functional_model() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(2)])
    values = [v.value for v in model.trainable_variables]
    loss = lambda values: (model.stateless_call(values, [], X)[0] ** 2).sum()
    found = weft.jit(weft.grad(loss))(values)
    (kernel,) = [g for g in found if g.shape == (4, 3)]
    step = 1e-2
    bump = np.zeros((4, 3), "float32")
    bump[1, 2] = step
    ahead = loss([values[0] + bump, *values[1:]])
    behind = loss([values[0] - bump, *values[1:]])
    np.testing.assert_allclose((ahead - behind) / (2 * step), kernel[1, 2], rtol=1e-2, atol=1e-3)


def test_summary() -> None:
    model, lines = branching(), []
    model.summary(print_fn=lines.append, expand_nested=True, show_trainable=True, line_length=100)
    (text,) = lines
    assert "shared (Dense)" in text and "    last (Dense)" in text
    assert "Total params: 23 (92.00 B)" in text
    model.get_layer("inner").trainable = False
    lines.clear()
    model.summary(print_fn=lines.append)
    assert "Non-trainable params: 8" in lines[0]
    Subclassed().summary(print_fn=lines.append)
    assert "0 (unbuilt)" in lines[1]
    called = Subclassed(6)
    called(X)
    called.summary(print_fn=lines.append)
    assert "(5, 6)" in lines[2]


def test_clone_function_and_call_function() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2, name="d")(layers.Dense(3, name="c")(x)))
    called: list[str] = []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(layer.name)
        return layers.ReLU()(layer(*args, **kwargs))

    same = keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
    assert called == ["c", "d"]
    assert [id(w) for w in same.weights] == [id(w) for w in model.weights]
    assert float(same(X).min()) >= 0


def test_a_lambda_can_be_cloned_but_not_read_from_data() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, layers.Lambda(lambda v: v * 2)(x))
    with pytest.warns(UserWarning, match="lambda"):
        clone = keras.models.clone_model(model)
    np.testing.assert_array_equal(clone(X), X * 2)
    with pytest.warns(UserWarning, match="lambda"):
        text = model.to_json()
    with pytest.raises(ValueError, match="lambda"):
        keras.models.model_from_json(text)


def test_keras_tensors_have_no_values() -> None:
    x = keras.Input((4,))
    with pytest.raises(TypeError, match="has no value"):
        np.sin(x)
    with pytest.raises(TypeError, match="has no value"):
        bool(x)
    with pytest.raises(TypeError, match="has no value"):
        weft.numpy.sin(x)


def test_shared_layers_run_in_the_order_of_keras() -> None:
    """Those that draw random numbers or update statistics depend on the order of their calls."""
    calls: list[tuple[str, int]] = []

    class Noted(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            calls.append((self.name, x.shape[1]))
            return x

    first, second = Noted(name="first"), Noted(name="second")
    a, b = keras.Input((2,)), keras.Input((3,))
    model = keras.Model([a, b], keras.layers.Concatenate()([second(first(a)), second(first(b))]))
    calls.clear()
    model([np.zeros((1, 2), "float32"), np.ones((1, 3), "float32")])
    assert calls == [("first", 3), ("first", 2), ("second", 2), ("second", 3)]


@pytest.mark.parametrize("rankdir", ["TB", "LR"])
def test_drawings(rankdir: str, tmp_path: pathlib.Path) -> None:
    model, file = branching(), tmp_path / "model.svg"
    drawing = plot_model(model, file, show_shapes=True, show_layer_names=True, rankdir=rankdir, expand_nested=True)
    assert file.read_text() == str(drawing) == drawing._repr_svg_()
    root = ElementTree.fromstring(str(drawing))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("shared (Dense)") == 2 and "last (Dense)" in texts and "out (None, 2)" in texts
    boxes = [element.attrib for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    corners = [[float(box[key]) for key in ("x", "y", "width", "height")] for box in boxes]
    for i, (x, y, width, height) in enumerate(corners):
        for other in corners[:i]:
            apart = (
                x >= other[0] + other[2] or other[0] >= x + width or y >= other[1] + other[3] or other[1] >= y + height
            )
            assert apart
    with pytest.raises(ArgumentError, match=r"must be files that end in .svg, .pdf, .png"):
        plot_model(model, tmp_path / "model.jpg")
    assert "Dense" in str(plot_model(Subclassed(), None))


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_pictures(ending: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"model.{ending}"
    for rankdir, splines in (("TB", "ortho"), ("LR", "curved")):
        plot_model(branching(), file, show_shapes=True, rankdir=rankdir, splines=splines, dpi=96)
        assert file.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[ending])
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_pictures_need_a_converter(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotImplementedError, match=r"needs matplotlib or Graphviz(.*\n)*.*pip install matplotlib"):
        plot_model(branching(), tmp_path / "model.png")
    # A program of this name in place of Graphviz.
    dot = tmp_path / "dot"
    dot.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[3], 'w').write(sys.argv[1] + sys.stdin.read())\n")
    dot.chmod(0o755)
    plot_model(branching(), tmp_path / "model.png")
    assert (tmp_path / "model.png").read_text().startswith("-Tpngdigraph")


def test_models_that_nobody_uses_are_freed() -> None:
    def one() -> weakref.ref[Any]:
        model = branching()
        model({"a": X, "b": X})

        class Local(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def call(self, x: Any) -> Any:
                return self.model({"a": x, "b": x})["y"]

        local = Local()
        local(X)
        return weakref.ref(local)

    references = [one() for _ in range(5)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


class Caller(layers.Layer):
    """A layer that may own the layer that owns it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4)
        self.norm = layers.BatchNormalization()
        self.other: Any = None

    def call(self, x: Any, times: int = 2) -> Any:
        x = self.norm(self.dense(x))
        return x if times == 0 else self.other(x, times=times - 1)


def test_layers_that_own_each_other(tmp_path: pathlib.Path) -> None:
    one, two = Caller(), Caller()
    one.other, two.other = two, one
    model = keras.Sequential([keras.Input((4,)), one, layers.Dense(2)])
    assert len(model.weights) == 14 and len(model.trainable_weights) == 10 and len(two.weights) == 12
    model.compile("adam", "mse")
    model.fit(X, X[:, :2], verbose=0)
    model.save_weights(tmp_path / "model.safetensors")
    before = model.get_weights()
    model.set_weights([w * 0 for w in before])
    model.load_weights(tmp_path / "model.safetensors")
    for w, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(w, other)
    one.trainable = False
    assert not two.dense.trainable and len(model.trainable_weights) == 2
    model.summary(print_fn=lambda text: None, expand_nested=True)


class Branches(layers.Layer):
    """A layer made of layers of its own kind."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.dense = layers.Dense(4)
        self.branches = [Branches(levels - 1), Branches(levels - 1)] if levels else []

    def call(self, x: Any) -> Any:
        x = self.dense(x)
        return sum([branch(x) for branch in self.branches], x)


def test_layers_of_layers_of_the_same_kind() -> None:
    layer = Branches(2)
    assert layer(X).shape == (5, 4) and len(layer.weights) == 14
    assert len({variable.path for variable in layer.weights}) == 14
    assert len(weft.grad(lambda x: layer(x).sum())(X)) == 5
