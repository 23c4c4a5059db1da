"""The class `Model`: a layer that trains and prints itself."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.graph.tensor import any_symbolic
from weft.keras.layers.layer import Layer
from weft.keras.layers.state import Stateful
from weft.keras.models import state_tree
from weft.keras.models.summary import print_summary
from weft.keras.training.trainer import Trainer

Self = TypeVar("Self", bound="Model")


class Model(Trainer, Layer):
    """A layer with training methods.

    It is constructed from tensors (`Model(inputs, outputs)`, a functional model), or by a subclass that has `call`.

    Args:
        *args: `inputs, outputs`: KerasTensors, or lists and dicts of them; or nothing.
        **kwargs: `inputs=`, `outputs=`, `name=`, `trainable=`, `dtype=`.

    Example:
        >>> from weft import keras
        >>> x = keras.Input((4,))
        >>> model = keras.Model(x, keras.layers.Dense(2)(x))
        >>> model.count_params()
        10
        >>> class Twice(keras.Model):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense = keras.layers.Dense(4)
        ...
        ...     def call(self, x):
        ...         return self.dense(self.dense(x))
        >>> Twice()(keras.ops.ones((3, 4))).shape
        (3, 4)
    """

    # Whether files have the list of layers before other attributes.
    layers_come_first = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and is_functional(args, kwargs):
            cls = functional_class()
        return Stateful.__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Trainer.__init__(self)
        if is_functional(args, kwargs):
            functional = functional_class()
            _insert_functional(type(self), functional)
            functional.__init__(self, *args, **kwargs)
        else:
            Layer.__init__(self, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of the model; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method `call`: define it, or pass `inputs` and `outputs` to the constructor."
        )

    @property
    def layers(self) -> list[Any]:
        """The layers that the model owns itself."""
        return self._flatten_layers(include_self=False, recursive=False)

    @layers.setter
    def layers(self, _: Any) -> None:
        raise AttributeError(
            "`layers` cannot be set: it is the list of the model's layers. Use another name for the attribute."
        )

    def get_layer(self, name: str | None = None, index: int | None = None) -> Any:
        """Return a layer of `model.layers`.

        Args:
            name: its name; or
            index: its index.
        """
        layers = self.layers
        if (name is None) == (index is None):
            raise ArgumentError(
                "Exactly one of `name` and `index` must be given.", received=f"name={name!r}, index={index!r}"
            )
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ArgumentError(
                    f"`index` is out of range for a model of {len(layers)} layers.", received=f"index={index}"
                )
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        raise ArgumentError(
            f"The model {self.name} has no such layer; its layers are {', '.join(layer.name for layer in layers)}.",
            received=f"name={name!r}",
        )

    def summary(
        self,
        line_length: int | None = None,
        positions: list[float] | None = None,
        print_fn: Callable[[str], Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: tuple[str, str] | None = None,
    ) -> None:
        """Print a table of the layers, with shapes and counts of parameters.

        Args:
            line_length: the width of the table.
            positions: accepted; columns are as wide as they need to be.
            print_fn: called with the text, instead of `print`.
            expand_nested: whether layers of models inside are listed too.
            show_trainable: whether to add a column that says which layers are trainable.
            layer_range: the names (or patterns) of the first and last layer to list.
        """
        print_summary(self, line_length, print_fn, expand_nested, show_trainable, layer_range)

    def get_state_tree(self, value_format: str = "backend_tensor") -> dict[str, Any]:
        """Return the values of all variables, in dicts nested by the parts of their paths.

        Args:
            value_format: "backend_tensor" for arrays of Weft, "numpy_array" for arrays of NumPy.
        """
        return state_tree.get_state_tree(self, value_format)

    def set_state_tree(self, state_tree_values: Mapping[str, Any]) -> None:
        """Assign the values of a tree that `get_state_tree` returned.

        Args:
            state_tree_values: any of the groups; paths that are missing keep their values.
        """
        state_tree.set_state_tree(self, state_tree_values)

    def save(self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any) -> None:
        """Write the model to a file; `keras.models.load_model` reads it.

        Args:
            filepath: the file, whose name ends in ".keras", or in ".h5" for the older format of Keras.
            overwrite: whether an existing file may be replaced.
            zipped: False writes a folder instead of an archive.
            **kwargs: `include_optimizer=`, see `keras.models.save_model`.
        """
        _archive().save_model(self, filepath, overwrite, zipped, **kwargs)

    def save_weights(
        self,
        filepath: Any,
        overwrite: bool = True,
        max_shard_size: float | None = None,
        objects_to_skip: Sequence[Any] | None = None,
    ) -> None:
        """Write the weights, and the state of the optimizer, to a file, or to several.

        Args:
            filepath: the file, whose name ends in ".weights.h5" (h5py is needed) or in ".safetensors"; of several, that
                of the list of files, which ends in ".weights.json".
            overwrite: whether an existing file may be replaced.
            max_shard_size: how large a file may be, in gigabytes; None: there is one.
            objects_to_skip: layers and other objects whose weights are left out.
        """
        _archive().save_weights(self, filepath, overwrite, max_shard_size, objects_to_skip)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Read weights from a file of `save_weights` or `save`, or of Keras.

        Args:
            filepath: the file, or a directory of `OrbaxCheckpoint`.
            skip_mismatch: whether what does not fit is left as it is, with a warning.
            **kwargs: `objects_to_skip=` and `by_name=`, see `keras.saving.load_weights`.
        """
        _archive().load_weights(self, filepath, skip_mismatch, **kwargs)

    def export(
        self,
        filepath: Any,
        format: str = "weft",
        verbose: bool | None = None,
        input_signature: Any = None,
        vjp_order: int = 0,
    ) -> None:
        """Write the model (`training=False`) as a program with its weights, which runs without its code and without
        Keras.

        Args:
            filepath: the file. `weft.export.deserialize(bytes).call(x)` runs it.
            format: "weft"; "onnx", for onnxruntime and other runtimes of that format; or "library": a shared library
                for C with its header, or for a file `.wasm` a WebAssembly module with its ES module
                (`weft.export.library`), whose batches have at most 16 rows.
            verbose: whether to print what was written.
            input_signature: for each argument an `InputSpec`, a `KerasTensor`, an array or a tree of these; the inputs
                of the model where None. Sizes that are None may be any.
            vjp_order: how often the program can be differentiated, for the format "weft".

        Example:
            >>> import pathlib
            >>> import tempfile
            >>> import weft
            >>> from weft import keras
            >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            >>> with tempfile.NamedTemporaryFile() as file:
            ...     model.export(file.name)
            ...     program = weft.export.deserialize(pathlib.Path(file.name).read_bytes())
            >>> program.call(weft.numpy.ones((4, 3))).shape
            (4, 2)
        """
        programs = importlib.import_module("weft.keras.export")
        programs.export_model(self, filepath, format, verbose, input_signature, vjp_order)

    def to_json(self, **kwargs: Any) -> str:
        """Return the model's config as JSON for `model_from_json`.

        Args:
            **kwargs: for `json.dumps`.
        """
        return json.dumps(registry.serialize_keras_object(self), **kwargs)

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        """Construct a model from a config of `get_config`; a functional one if the class supports it.

        Args:
            config: plain data.
            custom_objects: further classes and functions by name.

        Example:
            >>> from weft import keras
            >>> x = keras.Input((4,))
            >>> config = keras.Model(x, keras.layers.Dense(2)(x)).get_config()
            >>> keras.Model.from_config(config).output_shape
            (None, 2)
        """
        if custom_objects:
            with registry.custom_object_scope(custom_objects):
                return cls.from_config(config)
        module = _functional_module()
        if module.describes_graph(config) and module.takes_graph(cls):
            model: Self = module.from_graph_config(cls, config)
            return model
        return super().from_config(config)

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Build the model with the shapes that `get_build_config` returned.

        Args:
            config: see `Layer.build_from_config`.
        """
        if config and not self.built:
            super().build_from_config(config)


def _archive() -> Any:
    """Import the module that reads and writes files, which depends on all kinds of models."""
    return importlib.import_module("weft.keras.saving.archive")


def functional_class() -> Any:
    """Return `Functional`, which is a subclass of `Model`."""
    return _functional_module().Functional


def _functional_module() -> Any:
    """Import the module of functional models, which depends on this one."""
    return importlib.import_module("weft.keras.models.functional")


def is_functional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether constructor arguments are the inputs and outputs of a functional model."""
    if len(args) >= 2 or (len(args) == 1 and "outputs" in kwargs):
        return any_symbolic(args, kwargs)
    return "inputs" in kwargs and "outputs" in kwargs


def _insert_functional(cls: type, functional: type) -> None:
    """Make a class that calls `super().__init__(inputs, outputs)` a subclass of `Functional`, for its methods."""
    if cls is functional or issubclass(cls, functional):
        return
    cls.__bases__ = tuple(functional if base is Model else base for base in cls.__bases__)
    for base in cls.__bases__:
        if issubclass(base, Model) and base is not Model:
            _insert_functional(base, functional)


registry.register("models", Model, module="keras")
