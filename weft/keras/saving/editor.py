"""Looking at files with weights, and changing them after a model has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from weft.checkpointing import tensor_file
from weft.errors import ArgumentError
from weft.keras.saving import hdf5, members, weights
from weft.keras.saving.weights import Weights

_CONFIG, _METADATA = "config.json", "metadata.json"
_WEIGHTS = ("model.weights.h5", "model.weights.safetensors")


class KerasFileEditor:
    """The weights of a file as nested dicts of arrays, which can be renamed, removed, added and saved.

    An object is named by its path ("layers/dense_2"), or by its last part if no other object has it.

    Args:
        filepath: a ".keras", ".weights.h5" or ".safetensors" file.

    Example:
        >>> import tempfile
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="a")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_weights(f"{folder}/w.safetensors")
        ...     editor = keras.saving.KerasFileEditor(f"{folder}/w.safetensors")
        >>> comparison = editor.compare(model)
        All 2 weights match.
        >>> comparison["status"]
        'success'
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        file = self.filepath = os.fspath(filepath)
        self.metadata: Any = None
        self.config: Any = None
        if file.endswith(".keras"):
            with members.opened(file, file) as opened:
                self.config = members.read_json(opened, _CONFIG)
                self.metadata = members.read_json(opened, _METADATA)
                name = next((name for name in _WEIGHTS if name in opened.names), _WEIGHTS[0])
                found = weights.from_bytes(members.read(opened, name), name, file)
        elif file.endswith((".weights.h5", ".safetensors")):
            found = weights.from_bytes(tensor_file.content(file), file, file)
        else:
            raise ArgumentError("The name must end in .keras, .weights.h5 or .safetensors.", received=file)
        self.weights_dict = _nest(found)

    def summary(self) -> None:
        """Print the objects and the shapes of their weights."""
        for level, name, value in _lines(self.weights_dict):
            shown = "" if isinstance(value, dict) else f": {np.shape(value)} {np.asarray(value).dtype}"
            print(f"{'    ' * level}{name}{shown}")

    def compare(self, reference_model: Any) -> dict[str, Any]:
        """Print what differs between the file and a model.

        Args:
            reference_model: the model; it is built.

        Returns:
            "status" ("success" or "error"), "error_count" and "match_count". An object that is missing counts once.
        """
        problems: list[str] = []
        matches = _compare(self.weights_dict, _nest(weights.collect_weights(reference_model)), "", problems)
        print(*(problems or [f"All {matches} weights match."]), sep="\n")
        status = "error" if problems else "success"
        return {"status": status, "error_count": len(problems), "match_count": matches}

    def rename_object(self, object_name: str, new_name: str) -> None:
        """Rename an object.

        Args:
            object_name: its path or name.
            new_name: its new name, which is no path.
        """
        if "/" in new_name:
            raise ArgumentError("The new name of an object cannot be a path.", received=repr(new_name))
        parent, name = self._find(object_name)
        if new_name in parent:
            raise ArgumentError("The new name of an object must be a new one.", received=repr(new_name))
        parent[new_name] = parent.pop(name)

    def delete_object(self, object_name: str) -> None:
        """Remove an object with its weights.

        Args:
            object_name: its path or name.
        """
        parent, name = self._find(object_name)
        del parent[name]

    def add_object(self, object_path: str, weights: Mapping[str, Any]) -> None:
        """Add an object.

        Args:
            object_path: its path; the objects above it are there.
            weights: arrays by name, usually "0", "1" and so on.
        """
        *above, name = object_path.split("/")
        node: Any = self.weights_dict
        for part in above:
            if not isinstance(node.get(part), dict):
                raise ArgumentError("The objects above a new one must be there.", received=repr(object_path))
            node = node[part]
        node[name] = _check_arrays(weights)

    def delete_weight(self, object_name: str, weight_name: str) -> None:
        """Remove a weight of an object.

        Args:
            object_name: the path or name of the object.
            weight_name: the name of the weight.
        """
        parent, name = self._find(object_name)
        if weight_name not in parent[name]:
            listed = ", ".join(parent[name])
            raise ArgumentError(
                f"The object {object_name} has no such weight; its weights are {listed}.", received=repr(weight_name)
            )
        del parent[name][weight_name]

    def add_weights(self, object_name: str, weights: Mapping[str, Any]) -> None:
        """Add weights to an object, or replace them.

        Args:
            object_name: the path or name of the object.
            weights: arrays by name.
        """
        parent, name = self._find(object_name)
        parent[name].update(_check_arrays(weights))

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write the weights to a file.

        Args:
            filepath: the file: ".weights.h5" or ".safetensors".
        """
        file = os.fspath(filepath)
        if not file.endswith((".weights.h5", ".safetensors")):
            raise ArgumentError("The name must end in .weights.h5 or .safetensors.", received=file)
        write: Callable[..., bytes] = weights.to_hdf5 if file.endswith(".h5") else weights.to_safetensors
        with tensor_file.replacing(os.path.realpath(file)) as out:
            out.write(write(_flat(self.weights_dict), {}))

    resave_weights = save

    def _find(self, name: str) -> tuple[dict[str, Any], str]:
        """Return the dict that contains an object, and the object's key in it."""
        if "/" in name:
            *above, last = name.split("/")
            node: Any = self.weights_dict
            for part in above:
                node = node.get(part) if isinstance(node, dict) else None
            found = [node] if isinstance(node, dict) and isinstance(node.get(last), dict) else []
        else:
            last = name
            nodes = [
                self.weights_dict,
                *(value for _, _, value in _lines(self.weights_dict) if isinstance(value, dict)),
            ]
            found = [node for node in nodes if isinstance(node.get(name), dict)]
        if len(found) != 1:
            fix = "pass its path" if found else "`editor.summary()` prints the objects"
            raise ArgumentError(
                f"The name of one object is needed; {len(found)} have it.", received=repr(name), fix=fix
            )
        return found[0], last


def _check_arrays(arrays: Any) -> dict[str, Any]:
    if not isinstance(arrays, Mapping):
        raise ArgumentError("Weights must be a dict of arrays by name.", received=type(arrays).__name__)
    return {name: np.asarray(value) for name, value in arrays.items()}


def _nest(found: Weights) -> dict[str, Any]:
    """Convert weights by path to nested dicts; objects without weights are omitted."""
    root: dict[str, Any] = {}
    for path, arrays in found.items():
        node = root
        for part in path.split("/") if path and arrays else ():
            node = node.setdefault(part, {})
        for name, array in arrays.items():
            node[name] = array.read() if isinstance(array, hdf5.StoredArray) else np.asarray(array)
    return root


def _flat(node: Mapping[str, Any], path: str = "") -> Weights:
    found: Weights = {path: {name: value for name, value in node.items() if not isinstance(value, dict)}}
    for name, value in node.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{path}/{name}" if path else name)
    return found


def _lines(node: Mapping[str, Any], level: int = 0) -> Iterator[tuple[int, str, Any]]:
    for name, value in node.items():
        yield level, name, value
        if isinstance(value, dict):
            yield from _lines(value, level + 1)


def _compare(own: Mapping[str, Any], other: Mapping[str, Any], path: str, problems: list[str]) -> int:
    """Count weights that match; add what differs to the problems."""
    matches = 0
    problems += [f"{path}/{name}: in the model, not in the file" for name in other if name not in own]
    problems += [f"{path}/{name}: in the file, not in the model" for name in own if name not in other]
    for name in [name for name in own if name in other]:
        one, two = own[name], other[name]
        if isinstance(one, dict) and isinstance(two, dict):
            matches += _compare(one, two, f"{path}/{name}", problems)
        elif isinstance(one, dict) or isinstance(two, dict) or np.shape(one) != np.shape(two):
            problems.append(f"{path}/{name}: {np.shape(one)} in the file, {np.shape(two)} in the model")
        else:
            matches += 1
    return matches
