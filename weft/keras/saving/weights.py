"""Weights of a model as arrays by path, written to HDF5 (as Keras does, with h5py) or to safetensors, and read back.

What a file has is compared with the model before anything is assigned: a model is never loaded by half.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, CheckpointMismatchError, FileFormatError
from weft.keras.core.seeds import SeedGenerator
from weft.keras.core.together import whole_values
from weft.keras.saving import hdf5, limits
from weft.keras.saving.hdf5 import StoredArray, has_h5py
from weft.keras.saving.paths import own_arrays, property_names, saved_objects, saved_variables

h5py = lazy("h5py")

# The arrays of objects, by the paths of these and by their names in them.
Weights = dict[str, dict[str, Any]]
MAXIMUM_LISTED = 12
# What an optimizer has before it knows the weights: the count of iterations, and the learning rate.
UNBUILT = {"0", "1"}


def collect_weights(model: Any, skip: Sequence[Any] = ()) -> Weights:
    """Return all arrays of a model by path, except those of the skipped objects and their children."""
    return {path: own_arrays(value) for path, value in saved_objects(model, skip).items()}


def object_names(model: Any, skip: Sequence[Any] = ()) -> dict[str, str]:
    """Return the names of the objects of a model, by path."""
    return {path: getattr(value, "name", "") for path, value in saved_objects(model, skip).items()}


# -------------------------------------------------------------------------------------------------------------- writing


def to_hdf5(weights: Weights, names: Mapping[str, str]) -> bytes:
    """Encode weights as an HDF5 file: a group `<path>/vars` for each object, with a data set for each of its arrays."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for path, arrays in weights.items():
            group = file.create_group(f"{path}/vars" if path else "vars")
            group.attrs["name"] = names.get(path, "")
            for name, array in arrays.items():
                hdf5.write_array(group, name, np.asarray(array))
    return content.getvalue()


def to_safetensors(weights: Weights, names: Mapping[str, str]) -> bytes:
    """Encode weights as a safetensors file, with the names `<path>/vars/<name>`."""
    arrays = [
        (f"{path}/vars/{name}" if path else f"vars/{name}", np.asarray(array, order="C"))
        for path, own in weights.items()
        for name, array in own.items()
    ]
    described = {path: name for path, name in names.items() if path}
    return b"".join(tensor_file.chunks(sorted(arrays, key=lambda pair: pair[0]), described))


# -------------------------------------------------------------------------------------------------------------- reading


def from_bytes(data: bytes, name: str, file: str) -> Weights:
    """Decode the weights of a file; the ending of its name decides the format."""
    return from_hdf5(data, file) if name.endswith(".h5") else from_safetensors(data, file)


def from_hdf5(data: bytes, file: str) -> Weights:
    """Read the weights of an HDF5 file; their elements are read when they are assigned."""
    if not has_h5py():
        raise ArgumentError(
            f"{file} has weights in HDF5, for which h5py is not installed.", fix="pip install 'weft-jit[keras]'"
        )
    weights: Weights = {}
    with hdf5.opened(data, file) as opened:
        _read_group(opened, "", weights, file, 0)
    return weights


def _read_group(group: Any, path: str, weights: Weights, file: str, level: int) -> None:
    if level > limits.MOST_LEVELS:
        raise FileFormatError(f"{file}: groups must be nested at most {limits.MOST_LEVELS} levels deep.")
    for name in group:
        child = hdf5.child(group, name, path, file)
        if not isinstance(child, h5py.Group):
            raise FileFormatError(f"{file}: the array {path}/{name} is in no group `vars`.")
        if name == "vars":
            weights[path] = {key: hdf5.array_at(child, key, f"{path}/vars", file) for key in child}
        else:
            _read_group(child, f"{path}/{name}" if path else name, weights, file, level + 1)


def from_safetensors(data: bytes, file: str) -> Weights:
    """Read the weights of a safetensors file."""
    weights: Weights = {}
    for name, entry in tensor_file.read_header(data, file).entries.items():
        path, separator, key = f"/{name}".rpartition("/vars/")
        if not separator:
            raise FileFormatError(f"{file}: the array {name!r} is in no group `vars`.")
        weights.setdefault(path.lstrip("/"), {})[key] = np.asarray(tensor_file.read_array(data, entry, file))
    return weights


# ------------------------------------------------------------------------------------------------------------ assigning


def assign(
    model: Any,
    weights: Weights,
    file: str,
    skip_mismatch: bool = False,
    optional: tuple[str, ...] = (),
    skip: Sequence[Any] = (),
) -> None:
    """Assign weights to the objects of a model, except for those to skip.

    `optional` are first parts of paths that a file need not have; if one does not fit, all of it stays as it is, with a
    warning: weights may be loaded to go on with another optimizer.
    """
    optimizer: Any = getattr(model, "optimizer", None)
    stored = [name for path, own in weights.items() if path.split("/")[0] == "optimizer" for name in own]
    if not getattr(optimizer, "built", True) and not set(stored) <= UNBUILT:
        optimizer.build(model.trainable_variables)
    objects = saved_objects(model, skip)
    skipped = saved_objects(model).keys() - objects.keys() if skip else frozenset()
    for alias, path in property_names(objects, [path for path in weights if path not in objects]).items():
        inside = [own for own in weights if own == alias or own.startswith(f"{alias}/")]
        weights.update({path + own.removeprefix(alias): weights.pop(own) for own in inside if path not in weights})
    problems: list[str] = []
    left: dict[str, list[str]] = {}
    fitting: list[str] = []
    with whole_values(saved_variables(model)):
        present = collect_weights(model, skip)
    for path, value in objects.items():
        wanted, found = present[path], weights.get(path, {})
        missing = [name for name in wanted if name not in found]
        if isinstance(value, SeedGenerator) and missing:  # Keras' files have none
            continue
        if not found and path.split("/")[0] in optional:
            continue
        if path == "optimizer" and found and set(found) <= UNBUILT:
            found = weights[path] = {**wanted, **found}  # it had not been built; this one's state is that of the start
        wrong = [_difference(path, name, wanted, found) for name in (*wanted, *(n for n in found if n not in wanted))]
        wrong = [text for text in wrong if text]
        root = path.split("/")[0]
        if wrong and root in optional:
            left.setdefault(root, []).extend(wrong)
        else:
            problems += wrong
        if not wrong:
            fitting.append(path)
    for path, arrays in weights.items():
        if arrays and path not in objects and path not in skipped and path.split("/")[0] not in optional:
            problems.append(f"{path or 'the model'}: {len(arrays)} arrays that the model has no place for")
    if problems:
        listed = "\n    ".join(problems[:MAXIMUM_LISTED])
        more = f"\n    and {len(problems) - MAXIMUM_LISTED} more" if len(problems) > MAXIMUM_LISTED else ""
        what = f"The weights of {file} are not those of {type(model).__name__} {model.name}:\n    {listed}{more}"
        if not skip_mismatch:
            raise CheckpointMismatchError(what, fix="pass `skip_mismatch=True` to load what fits")
        warnings.warn(what, stacklevel=3)
    for root, wrong in left.items():
        what = f"The {root} of {file} is another one, and that of {type(model).__name__} {model.name} stays as it is"
        warnings.warn(f"{what}: {'; '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}", stacklevel=3)
    for path in fitting:
        if path.split("/")[0] in left:
            continue
        value = objects[path]
        own = {
            name: array.read() if isinstance(array, StoredArray) else array
            for name, array in weights.get(path, {}).items()
        }
        if isinstance(value, SeedGenerator):
            value.state.assign(own["0"])
        else:
            value.load_own_variables(own)


def _difference(path: str, name: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Describe how an array of the file differs from the model's; "" if it does not."""
    where = f"{path or 'the model'}/vars/{name}"
    if name not in found:
        return f"{where}: missing, {np.shape(wanted[name])} in the model"
    if name not in wanted:
        return f"{where}: {np.shape(found[name])} in the file, nothing in the model"
    if np.shape(found[name]) != np.shape(wanted[name]):
        return f"{where}: {np.shape(found[name])} in the file, {np.shape(wanted[name])} in the model"
    return ""
