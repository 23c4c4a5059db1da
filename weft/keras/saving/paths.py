"""The objects of a model whose variables a file has, by path.

The order and the names are Keras', so that files are the same: of a functional or sequential model the list `layers`
first; then public attributes by name, and private ones last. A member of a list, tuple, set or dict is called after its
class, with a count within the container. An object is met once, at the first of its paths. Generators of seeds are met
too, which Keras leaves out of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.keras.core.names import to_snake_case
from weft.keras.core.seeds import SeedGenerator
from weft.keras.layers.state import Stateful

_CONTAINERS = (list, tuple, dict, set)
# Attributes that hold what has a path of its own, or nothing that is saved.
_SKIPPED = {"_owned", "_container_attributes", "_init_arguments", "_training", "_inbound_nodes", "_outbound_nodes"}


def saved_objects(model: Any, skip: Sequence[Any] = ()) -> dict[str, Any]:
    """Return layers, the optimizer and seed generators by path; the path of the model itself is "".

    Args:
        model: the model.
        skip: objects that are left out, with what is in them.
    """
    found: dict[str, Any] = {}
    met: dict[int, Any] = {id(value): value for value in skip}  # kept alive, so that no identity is met again

    def visit(path: str, value: Any) -> None:
        if _needs_saving(value):
            if id(value) in met:
                return
            met[id(value)] = value
            found[path] = value
            for name, child in _children(value):
                visit(f"{path}/{name}" if path else name, child)
        elif isinstance(value, _CONTAINERS) and id(value) not in met:
            met[id(value)] = value  # a container may contain itself
            for name, member in _members(value):
                visit(f"{path}/{name}", member)

    visit("", model)
    return found


def property_names(objects: Mapping[str, Any], unknown: Iterable[str]) -> dict[str, str]:
    """Return the paths of objects that a file has under the name of a property which returns them.

    Args:
        objects: the objects of the model by path.
        unknown: paths of the file that the model does not have.

    Returns:
        A path of the model for each path of a property.
    """
    paths = {id(value): path for path, value in objects.items()}
    found: dict[str, str] = {}
    for path in unknown:
        parts = path.split("/")
        for i, name in enumerate(parts):
            parent, own = objects.get("/".join(parts[:i])), "/".join(parts[: i + 1])
            if own not in objects and isinstance(getattr(type(parent), name, None), property):
                target = paths.get(id(getattr(parent, name)))
                if target is not None:
                    found[own] = target
                break
    return found


def saved_variables(model: Any) -> list[Any]:
    """Return the variables that a file stores, each once, in an order that is the same in all processes."""
    found: dict[int, Any] = {}
    for value in saved_objects(model).values():
        own = [value.state] if isinstance(value, SeedGenerator) else value.variables
        found.update((id(variable), variable) for variable in own)
    return list(found.values())


def _needs_saving(value: Any) -> bool:
    return isinstance(value, (Stateful, SeedGenerator)) or (
        hasattr(value, "save_own_variables") and hasattr(value, "variables")
    )


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, in the order of files."""
    if not isinstance(value, Stateful):
        inner = getattr(value, "inner_optimizer", None)
        if inner is not None:
            yield "inner_optimizer", inner
        return
    attributes = {_public(value, name, child): child for name, child in vars(value).items() if name not in _SKIPPED}
    layers = getattr(value, "layers", None)
    if isinstance(layers, list) and hasattr(value, "layers_come_first"):
        if value.layers_come_first:
            yield "layers", layers
        else:
            attributes["layers"] = layers
    for name in sorted(attributes, key=lambda name: (name.startswith("_"), name)):
        yield name, attributes[name]


def _public(value: Any, name: str, child: Any) -> str:
    """Return the name of an attribute; for a private one, the name of the property that returns it, if there is one."""
    public = name.lstrip("_")
    is_property = public != name and isinstance(getattr(type(value), public, None), property)
    return public if is_property and _needs_saving(child) and getattr(value, public) is child else name


def _members(container: Any) -> Iterator[tuple[str, Any]]:
    counts: dict[str, int] = {}
    for member in container.values() if isinstance(container, dict) else container:
        if not _needs_saving(member) and not isinstance(member, _CONTAINERS):
            continue
        name = to_snake_case(type(member).__name__) if _needs_saving(member) else "container"
        count = counts[name] = counts.get(name, -1) + 1
        yield f"{name}_{count}" if count else name, member


def own_arrays(value: Any) -> dict[str, Any]:
    """Return the variables of an object itself as NumPy arrays, by their names in files."""
    store: dict[str, Any] = {}
    if isinstance(value, SeedGenerator):
        store["0"] = value.state.numpy()
    else:
        value.save_own_variables(store)
    return store
