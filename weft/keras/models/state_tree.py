"""The variables of a model as a tree of values by path: `get_state_tree` and `set_state_tree`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError

GROUPS = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


def state_groups(model: Any) -> dict[str, list[Any]]:
    """Return the variables of a model by group."""
    return {
        "trainable_variables": model.trainable_variables,
        "non_trainable_variables": model.non_trainable_variables,
        "optimizer_variables": list(getattr(model.optimizer, "variables", ())),
        "metrics_variables": model.metrics_variables,
    }


def get_state_tree(model: Any, value_format: str = "backend_tensor") -> dict[str, Any]:
    """Return the values of all variables, in dicts nested by the parts of their paths.

    Args:
        model: the model.
        value_format: "backend_tensor" for arrays of Weft, "numpy_array" for arrays of NumPy.
    """
    if value_format not in ("backend_tensor", "numpy_array"):
        raise ArgumentError('value_format must be "backend_tensor" or "numpy_array".', received=repr(value_format))
    tree: dict[str, Any] = {}
    for group, variables in state_groups(model).items():
        found: dict[str, Any] = {}
        for variable in variables:
            *parents, last = variable.path.split("/")
            node = found
            for part in parents:
                node = node.setdefault(part, {})
                if not isinstance(node, dict):
                    break
            if not isinstance(node, dict) or last in node:
                raise ArgumentError(
                    "Variables in a state tree must have different paths.",
                    received=f"{variable.path!r} twice",
                    fix="pass another `name=` to a layer or weight",
                )
            node[last] = variable.numpy() if value_format == "numpy_array" else variable.value
        tree[group] = found
    return tree


def set_state_tree(model: Any, state_tree: Mapping[str, Any]) -> None:
    """Assign the values of a tree that `get_state_tree` returned.

    Args:
        model: the model.
        state_tree: any of the groups; paths that are missing keep their values.
    """
    unknown = [name for name in state_tree if name not in GROUPS]
    if unknown:
        raise ArgumentError(f"The groups of a state tree must be {', '.join(GROUPS)}.", received=", ".join(unknown))
    for group, variables in state_groups(model).items():
        by_path = {variable.path: variable for variable in variables}
        for path, value in _flat(state_tree.get(group, {})):
            if path not in by_path:
                raise ArgumentError(
                    f"Paths in {group} must be those of variables of the model.",
                    received=repr(path),
                    fix=f"there are {', '.join(by_path) or 'none'}",
                )
            by_path[path].assign(value)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        path = f"{prefix}/{name}" if prefix else name
        found += _flat(value, path) if isinstance(value, Mapping) else [(path, value)]
    return found
