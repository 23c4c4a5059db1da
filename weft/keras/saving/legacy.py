"""Whole models in one HDF5 file, the format of Keras before 3: configs in attributes, weights by layer and order."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.errors import ArgumentError, CheckpointMismatchError, FileFormatError, WeftError
from weft.keras.core import budget, registry
from weft.keras.core.config import version
from weft.keras.core.together import whole_values
from weft.keras.saving import hdf5, legacy_config
from weft.keras.saving.hdf5 import StoredArray

h5py = lazy("h5py")

_TOP = "top_level_model_weights"
_COMPILED = ("loss", "metrics", "weighted_metrics", "loss_weights")


def _check_h5py() -> None:
    if not hdf5.has_h5py():
        raise ArgumentError(
            "Files .h5 are read and written by h5py, which is not installed.", fix="pip install 'weft-jit[keras]'"
        )


# -------------------------------------------------------------------------------------------------------------- writing


def to_bytes(model: Any, include_optimizer: bool = True) -> bytes:
    """Return a model as the bytes of an HDF5 file.

    Args:
        model: the model.
        include_optimizer: whether the arguments of `compile` and the state of the optimizer are in it.
    """
    _check_h5py()
    described = registry.serialize_sharing(model)
    config = {key: described[key] for key in ("module", "class_name", "config", "registered_name")}
    config["class_name"] = type(model).__name__
    content = io.BytesIO()
    with h5py.File(content, "w") as file, whole_values(model.variables):
        file.attrs["keras_version"], file.attrs["backend"] = version(), "weft"
        _set_json(file, "model_config", config)
        group = file.create_group("model_weights")
        group.attrs["keras_version"], group.attrs["backend"] = version().encode(), b"weft"
        hdf5.set_names(group, "layer_names", [layer.name for layer in model.layers])
        for layer in model.layers:
            _write_variables(group.create_group(layer.name), _order_variables(layer))
        _write_variables(group.create_group(_TOP), model._own_variables())
        if include_optimizer and model.compiled and model.optimizer is not None:
            _set_json(file, "training_config", _training_config(model))
            if model.optimizer.variables:
                _write_variables(file.create_group("optimizer_weights"), model.optimizer.variables)
    return content.getvalue()


def _set_json(file: Any, name: str, value: Any) -> None:
    text = json.dumps(value, default=lambda item: item.tolist()).encode()
    if len(text) > 64_000:  # beyond the header of an object an attribute must have a type of its own
        file.attrs.create(name, np.void(text) if b"\0" in text else text.decode())
    else:
        file.attrs[name] = text


def _training_config(model: Any) -> dict[str, Any]:
    config = model.get_compile_config()
    optimizer = registry.serialize_keras_object(model.optimizer)
    described = {"class_name": optimizer["registered_name"] or optimizer["class_name"], "config": optimizer["config"]}
    return {**{name: config.get(name) for name in _COMPILED}, "optimizer_config": described}


def _order_variables(layer: Any) -> list[Any]:
    """Return the variables of a layer in the order of this format."""
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _write_variables(group: Any, variables: Sequence[Any]) -> None:
    names: list[str] = []
    for variable in variables:
        name, count = variable.path, 0
        while name in names:
            count += 1
            name = f"{variable.path}_{count}"
        names.append(name)
        hdf5.write_array(group, name, variable.numpy())
    hdf5.set_names(group, "weight_names", names)


# -------------------------------------------------------------------------------------------------------------- reading


def is_legacy(data: bytes, file: str) -> bool:
    """Return whether an HDF5 file stores weights by layer rather than by path."""
    _check_h5py()
    with hdf5.opened(data, file) as opened:
        return any(name in opened.attrs for name in ("layer_names", "layer_names0")) or "model_weights" in opened


def load_model(data: bytes, file: str, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool) -> Any:
    """Return the model in an HDF5 file of Keras or of `to_bytes`.

    Args:
        data: the bytes of the file.
        file: its name, for errors.
        custom_objects: classes and functions by name.
        compile: whether the model is compiled as it was.
        safe_mode: False accepts lambdas, whose code is in the file.
    """
    _check_h5py()
    with hdf5.opened(data, file) as opened:
        config = _get_json(opened, "model_config", file)
        training = _get_json(opened, "training_config", file) if compile else None
        if config is None:
            raise FileFormatError(
                f"{file} must have a model_config to load a model from.",
                fix="construct the model, and call `model.load_weights(file)`: the file may have weights only",
            )
        try:
            with budget.limit_variables(len(data), file), registry.trust(safe_mode), registry.sharing():
                model = registry.deserialize_keras_object(legacy_config.modernize(config), custom_objects)
        except WeftError:
            raise
        except Exception as error:
            raise _no_model(file, "model_config", error) from error
        if not hasattr(model, "weights"):
            raise FileFormatError(f"{file}: model_config describes a {type(model).__name__}, which is no model.")
        _assign(model, hdf5.child_group(opened, "model_weights", "", file), file, False)
        if training is None:
            if compile:
                warnings.warn(f"{file} has no training_config: the model is not compiled.", stacklevel=4)
            return model
        try:
            with budget.limit_variables(len(data), file), registry.trust(safe_mode):
                with registry.custom_object_scope(custom_objects or {}):
                    model.compile(**legacy_config.compile_arguments(training))
                model.optimizer.build(model.trainable_variables)
        except WeftError:
            raise
        except Exception as error:
            raise _no_model(file, "training_config", error) from error
        if "optimizer_weights" in opened:
            _assign_optimizer(model, hdf5.child_group(opened, "optimizer_weights", "", file), file)
    return model


def _no_model(file: str, what: str, error: Exception) -> FileFormatError:
    return FileFormatError(
        f"{file}: {what} describes no model: {type(error).__name__}: {error}.",
        fix="obtain a new copy; if classes of your own are in it, look at their `from_config`",
    )


def _get_json(opened: Any, name: str, file: str) -> Any:
    value = hdf5.get_text(opened, name, file)
    if value is None:
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{file}: {name} is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise FileFormatError(f"{file}: {name} must be a dict.", received=type(found).__name__)
    return found


def load_weights(model: Any, data: bytes, file: str, skip_mismatch: bool, by_name: bool) -> None:
    """Assign the weights of an HDF5 file to a model.

    Args:
        model: the model; it is built.
        data: the bytes of the file: of a whole model, or of weights by layer.
        file: its name, for errors.
        skip_mismatch: whether what does not fit is left as it is, with a warning.
        by_name: whether layers are found by their names; else they are in the same order.
    """
    with hdf5.opened(data, file) as opened:
        has_layers = any(name in opened.attrs for name in ("layer_names", "layer_names0"))
        group = opened if has_layers else hdf5.child_group(opened, "model_weights", "", file)
        if by_name:
            _assign_by_name(model, group, file, skip_mismatch)
        else:
            _assign(model, group, file, skip_mismatch)


Pairs = list[tuple[Any, StoredArray]]


def _read_arrays(group: Any, name: str, file: str) -> list[StoredArray]:
    own = hdf5.child_group(group, name, "", file)
    return [hdf5.array_at(own, path, name, file) for path in hdf5.get_names(own, "weight_names", file)]


def _assign(model: Any, group: Any, file: str, skip_mismatch: bool) -> None:
    """Assign weights of layers in order; layers without weights do not count."""
    layers = [layer for layer in model.layers if _order_variables(layer)]
    stored = {name: _read_arrays(group, name, file) for name in hdf5.get_names(group, "layer_names", file)}
    stored = {name: arrays for name, arrays in stored.items() if arrays}
    problems: list[str] = []
    pairs: Pairs = []
    if len(layers) != len(stored):
        problems.append(f"{len(stored)} layers with weights in the file, {len(layers)} in the model")
    else:
        for layer, (name, arrays) in zip(layers, stored.items(), strict=True):
            pairs += _pair_arrays(f"{layer.name} ({name} in the file)", _order_variables(layer), arrays, problems)
    pairs += _top(model, group, file, problems)
    _finish(model, pairs, problems, file, skip_mismatch)


def _assign_by_name(model: Any, group: Any, file: str, skip_mismatch: bool) -> None:
    """Assign weights of the layers that have names of the file; others stay as they are."""
    problems: list[str] = []
    pairs: Pairs = []
    names = set(hdf5.get_names(group, "layer_names", file))
    for layer in model.layers:
        if layer.name in names:
            pairs += _pair_arrays(layer.name, _order_variables(layer), _read_arrays(group, layer.name, file), problems)
    pairs += _top(model, group, file, problems)
    _finish(model, pairs, problems, file, skip_mismatch)


def _top(model: Any, group: Any, file: str, problems: list[str]) -> Pairs:
    if _TOP not in group:
        return []
    return _pair_arrays("the model itself", model._own_variables(), _read_arrays(group, _TOP, file), problems)


def _pair_arrays(what: str, variables: Sequence[Any], arrays: Sequence[StoredArray], problems: list[str]) -> Pairs:
    """Pair variables with arrays of the same shape; append mismatches to the problems."""
    if len(variables) != len(arrays):
        problems.append(f"{what}: {len(arrays)} arrays in the file, {len(variables)} in the model")
        return []
    found: Pairs = []
    for variable, array in zip(variables, arrays, strict=True):
        if tuple(variable.shape) == array.shape:
            found.append((variable, array))
        else:
            shapes = f"{array.shape} in the file, {tuple(variable.shape)} in the model"
            problems.append(f"{what}: {variable.path}: {shapes}")
    return found


def _finish(model: Any, pairs: Pairs, problems: list[str], file: str, skip_mismatch: bool) -> None:
    """Assign, unless something does not fit."""
    if problems:
        listed = "\n    ".join([*problems[:12], *[f"and {len(problems) - 12} more"] * (len(problems) > 12)])
        what = f"The weights of {file} must be those of {type(model).__name__} {model.name}:\n    {listed}"
        if not skip_mismatch:
            raise CheckpointMismatchError(what, fix="pass `skip_mismatch=True` to load what fits")
        warnings.warn(what, stacklevel=5)
    for variable, array in pairs:
        variable.assign(array.read())
    for layer in model._flatten_layers():
        if hasattr(layer, "finalize_state") and layer.built:
            layer.finalize_state()


def _assign_optimizer(model: Any, group: Any, file: str) -> None:
    stored = [hdf5.array_at(group, name, "", file) for name in hdf5.get_names(group, "weight_names", file)]
    arrays: list[StoredArray | None] | None = [*stored]
    variables = list(model.optimizer.variables)
    if [array.shape for array in stored] != [tuple(variable.shape) for variable in variables]:
        # Keras 2 has other variables: without the learning rate, or with its moments in another order.
        arrays = _from_keras_2(stored, variables)
    if arrays is None:
        warnings.warn(f"The state of the optimizer in {file} is another one; it starts anew.", stacklevel=5)
        return
    for variable, array in zip(variables, arrays, strict=True):
        if array is not None:
            variable.assign(array.read())


def _from_keras_2(arrays: list[StoredArray], variables: list[Any]) -> list[StoredArray | None] | None:
    """Reorder the state of an optimizer of Keras 2, which has no learning rate. None if it does not fit."""
    if len(arrays) != len(variables) - 1:
        return None
    found: list[StoredArray | None] = [arrays[0], None, *arrays[1:]]
    fits = all(a is None or a.shape == tuple(v.shape) for a, v in zip(found, variables, strict=True))
    return found if fits else None
