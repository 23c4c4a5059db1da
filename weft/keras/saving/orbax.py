"""Checkpoints of models in Orbax's layout, as Keras writes them: the state, the config of the model, and files."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
from weft import checkpointing
from weft.checkpointing import orbax
from weft.errors import CheckpointMismatchError, FileFormatError
from weft.keras.core import registry
from weft.keras.saving import assets, limits

STATE, CONFIG, ASSETS = "pytree", "model_config", "assets"
WEIGHTS = ("trainable_variables", "non_trainable_variables")
_STEP = re.compile("0|[1-9][0-9]*", re.ASCII)


def describe(model: Any, weights_only: bool = False) -> dict[str, Any]:
    """Return what a checkpoint of a model has: trees by name.

    Args:
        model: the model.
        weights_only: whether only variables of layers are in it; then no model is loaded from it.
    """
    state = model.get_state_tree()
    if weights_only:
        return {STATE: {name: state[name] for name in WEIGHTS}}
    found: dict[str, Any] = {STATE: state, CONFIG: {"config": json.dumps(registry.serialize_sharing(model))}}
    files: dict[str, Any] = {}
    for path, data in assets.collect(model).items():
        *parents, last = path.split("/")
        node = files
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = np.frombuffer(data, np.uint8)
    return {**found, ASSETS: files} if files else found


def find_step(directory: str) -> str:
    """Return the directory of the last checkpoint below a directory, or the directory itself if it is one.

    Args:
        directory: of all checkpoints, or of one.
    """
    if _is_step(directory):
        return directory
    names = [name for name in os.listdir(directory) if _STEP.fullmatch(name)]
    steps = [int(name) for name in names if _is_step(os.path.join(directory, name))]
    if not steps:
        raise FileFormatError(
            f"{directory} must be a folder of a saved model, or a directory of checkpoints.",
            received="neither config.json nor a checkpoint in it",
        )
    return os.path.join(directory, str(max(steps)))


def _is_step(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in (STATE, "index.json"))


def read_config(directory: str) -> Any:
    """Return the config of the model in a directory of checkpoints."""
    step = find_step(directory)
    if not os.path.isdir(os.path.join(step, CONFIG)):
        raise FileFormatError(
            f"{step} has no {CONFIG}, so that no model can be loaded from it.",
            fix="construct the model, and call `model.load_weights(directory)`",
        )
    text = orbax.restore(os.path.join(step, CONFIG)).get("config")
    try:
        if not isinstance(text, str) or len(text) > limits.MOST_TEXT:
            raise ValueError("it must be a text")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{step}: {CONFIG} is no JSON: {error}.") from None


def stored_bytes(directory: str) -> int:
    """Return how many bytes the files of the last checkpoint have together."""
    return sum(path.stat().st_size for path in pathlib.Path(find_step(directory)).rglob("*") if path.is_file())


def load(model: Any, directory: str) -> None:
    """Assign the variables of the last checkpoint in a directory to a model, and give layers their files.

    Args:
        model: the model; it is built. Variables of the optimizer and of metrics that it does not have are left out.
        directory: of all checkpoints, or of one.
    """
    step = find_step(directory)
    if os.path.isfile(os.path.join(step, "index.json")):
        _load_earlier(model, step)
        return
    path = os.path.join(step, STATE)
    known = orbax.metadata(path).tree
    if not isinstance(known, dict):
        raise FileFormatError(f"{path} must have a dict of variables.", received=type(known).__name__)
    wanted: dict[str, Any] = {}
    targets: list[tuple[Any, list[str]]] = []
    problems: list[str] = []
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built and known.get("optimizer_variables"):
        optimizer.build(model.trainable_variables)
    for group, variables in _state_groups(model).items():
        stored = dict(_flat(known.get(group) or {}))
        for variable, keys in _pairs(group, variables, stored, group in WEIGHTS, problems):
            found = stored[keys]
            if tuple(np.shape(found)) != tuple(variable.shape):
                problems.append(f"{'/'.join(keys)}: {np.shape(found)} stored, {tuple(variable.shape)} in the model")
                continue
            targets.append((variable, [group, *keys]))
            node = wanted.setdefault(group, {})
            for key in keys[:-1]:
                node = node.setdefault(key, {})
            node[keys[-1]] = _like(variable, found)
    if problems:
        listed = "\n    ".join(problems[:12])
        raise CheckpointMismatchError(
            f"The checkpoint {step} must be one of {type(model).__name__} {model.name}:\n    {listed}"
        )
    values = orbax.restore(path, like=wanted, partial=True)
    for variable, whole_path in targets:
        value: Any = values
        for key in whole_path:
            value = value[key]
        variable.assign(value)
    if os.path.isdir(os.path.join(step, ASSETS)):
        files = {"/".join(keys): value for keys, value in _flat(orbax.restore(os.path.join(step, ASSETS)))}
        assets.load(model, files, lambda name: np.asarray(files[name], np.uint8).tobytes(), step)


def _state_groups(model: Any) -> dict[str, list[Any]]:
    # The package of models imports this one.
    groups: dict[str, list[Any]] = importlib.import_module("weft.keras.models.state_tree").state_groups(model)
    return groups


def _like(variable: Any, found: Any) -> Any:
    """Return the target to restore a variable as: an array on the variable's device, in the stored dtype."""
    if not hasattr(found, "dtype"):
        return found  # a number
    value = variable._value
    return value if value.dtype == found.dtype else weft.ShapeDtypeStruct(found.shape, found.dtype)


def _flat(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tree.items():
        found += _flat(value, (*path, name)) if isinstance(value, Mapping) else [((*path, name), value)]
    return found


def _pairs(
    group: str, variables: list[Any], stored: Mapping[tuple[str, ...], Any], required: bool, problems: list[str]
) -> list[tuple[Any, tuple[str, ...]]]:
    """Pair variables with the keys of stored values: by path; by its end, since a path may begin with the model or not;
    else in the order of names, whose counts may differ. The rest is a problem if it is required.
    """
    found = [(v, keys) for v in variables if (keys := tuple(v.path.split("/"))) in stored]
    for matches in (_has_same_end, None):
        done, used = {id(variable) for variable, _ in found}, {keys for _, keys in found}
        missing = [variable for variable in variables if id(variable) not in done]
        others = [keys for keys in stored if keys not in used]
        if matches is None:
            missing.sort(key=lambda variable: _natural(variable.path))
            others.sort(key=lambda keys: _natural("/".join(keys)))
            pairs = list(zip(missing, others, strict=False)) if len(missing) == len(others) else []
            if all(_fits(variable, keys, stored) for variable, keys in pairs):
                found, missing, others = found + pairs, missing if not pairs else [], others if not pairs else []
        else:
            for variable in missing:
                candidates = [keys for keys in others if matches(group, variable.path, keys)]
                if len(candidates) == 1:
                    found.append((variable, candidates[0]))
    texts = [f"{variable.path}: missing in {group}" for variable in missing]
    texts += [f"{'/'.join(keys)}: in {group}, nothing in the model" for keys in others]
    if required:
        problems += texts
    elif missing and stored and group == "optimizer_variables":
        warnings.warn(f"The state of the optimizer is another one: {'; '.join(texts[:3])}", stacklevel=5)
    return found


def _has_same_end(group: str, path: str, keys: tuple[str, ...]) -> bool:
    # Names of an optimizer's variables have the paths of weights in them.
    one, other = (path.split("/")[-1], keys[-1]) if group == "optimizer_variables" else (path, "/".join(keys))
    one, other = f"_{one}".replace("/", "_"), f"_{other}".replace("/", "_")
    return one.endswith(other) or other.endswith(one)


def _fits(variable: Any, keys: tuple[str, ...], stored: Mapping[tuple[str, ...], Any]) -> bool:
    return tuple(np.shape(stored[keys])) == tuple(variable.shape) and keys[-1] == variable.path.split("/")[-1]


def _natural(path: str) -> list[Any]:
    """Return a sort key that compares digits in a path as numbers."""
    parts = re.split(r"(\d+)", path)
    return [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in parts]


def _load_earlier(model: Any, step: str) -> None:
    """Assign a checkpoint that an earlier version of `OrbaxCheckpoint` wrote."""
    variables = {v.path: v for v in (*model.variables, *getattr(model.optimizer, "variables", ()))}
    known = checkpointing.metadata(step).tree
    paths = {group: list(values) for group, values in known.items()} if isinstance(known, dict) else {}
    unknown = [path for values in paths.values() for path in values if path not in variables]
    if unknown:
        raise CheckpointMismatchError(f"The checkpoint {step} must be one of {model.name}; it has {unknown[:5]}.")
    like = {group: {path: variables[path]._value for path in values} for group, values in paths.items()}
    for values in checkpointing.restore(step, like=like).values():
        for path, value in values.items():
            variables[path].assign(value)
