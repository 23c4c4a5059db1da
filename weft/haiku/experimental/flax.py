"""Linen modules inside of Haiku functions, and transformed Haiku functions as linen modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft.linen as nn
from weft.errors import ArgumentTypeError
from weft.haiku.frames import TOP, current_frame, running_init
from weft.haiku.lifting import lift_with_state
from weft.haiku.parameters import maybe_next_rng_key, next_rng_key
from weft.haiku.transform import TransformedWithState, transform_with_state, with_empty_state


def flatten_flax_to_haiku(collection: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Flatten a nested collection to {path: {name: array}}; arrays at the top level have the path `~`."""
    flat: dict[str, dict[str, Any]] = {}

    def flatten(tree: Mapping[str, Any], path: str) -> None:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                flatten(value, f"{path}/{name}" if path else name)
            else:
                flat.setdefault(path or TOP, {})[name] = value

    flatten(collection, "")
    return flat


def _nest(flat: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Invert `flatten_flax_to_haiku`."""
    tree: dict[str, Any] = {}
    for path, values in flat.items():
        node = tree
        for part in (part for part in path.split("/") if part != TOP):
            node = node.setdefault(part, {})
        node.update(values)
    return tree


def lift(mod: Any, *, name: str) -> Callable[..., Any]:
    """Convert a linen module to a function for Haiku, with its parameters and other collections below `name`."""

    def init(keys: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        variables = dict(mod.init(keys, *args, **kwargs))
        params = flatten_flax_to_haiku(variables.pop("params", {}))
        return params, _flat_state(variables)

    lifted, updater = lift_with_state(init, name=name, allow_reuse=True)
    updater.ignore_update()  # `init` has no updated state to pass

    def run(*args: Any, rngs: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        frame = current_frame("experimental.flax.lift")
        if rngs is not None and not isinstance(rngs, Mapping):
            raise ArgumentTypeError(
                f"experimental.flax.lift needs rngs as a dict of keys by name, and got {type(rngs).__name__}: "
                "rngs={'params': key}"
            )
        keys: Any = None
        if running_init():
            keys = dict(rngs or {})
            if "params" not in keys and frame.sequence is not None:
                keys["params"] = next_rng_key()
        params, state = lifted(keys, *args, **kwargs)
        collections = _nest(state)
        if rngs is None:
            key = maybe_next_rng_key()
            rngs = {} if key is None else {"params": key}
        result, changed = mod.apply(
            {"params": _nest(params), **collections}, *args, rngs=rngs, mutable=list(collections), **kwargs
        )
        updater._is_done = False
        updater.update(_flat_state(changed))
        return result

    return run


def _flat_state(collections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Flatten all collections but parameters; arrays on top of one have the path `collection/~`."""
    return {
        f"{name}/{path}": values
        for name, collection in collections.items()
        for path, values in flatten_flax_to_haiku(collection).items()
    }


class Module(nn.Module):
    """A transformed function as a linen module: paths become nested variables, state the collection `state`."""

    transformed: Any

    @classmethod
    def create(cls, module: Callable[..., Any], *args: Any, **kwargs: Any) -> Module:
        """Return a Haiku module class, to be made with these arguments, as a linen module."""
        return cls(transform_with_state(lambda *inputs, **options: module(*args, **kwargs)(*inputs, **options)))

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self.transformed
        model = model if isinstance(model, TransformedWithState) else with_empty_state(model)
        params, state = (_by_path(self.variables.get(name, {})) for name in ("params", "state"))
        if self.is_initializing() and not (params or state):
            params, state = model.init(self.make_rng("params"), *args, **kwargs)
            self._store("params", params)
            self._store("state", state)
        key = self.make_rng("params") if self.has_rng("params") else None
        result, after = model.apply(params, state, key, *args, **kwargs)
        if self.is_mutable_collection("state") and not self.is_initializing():
            self._store("state", after)
        return result

    def _store(self, collection: str, flat: Mapping[str, Mapping[str, Any]]) -> None:
        """Write parameters or state of Haiku as nested variables, a level for each part of a path."""
        tree: dict[str, Any] = {}
        for path, values in flat.items():
            node = tree
            for part in path.split("/"):
                node = node.setdefault(part, {})
            node.update(values)
        for name, values in tree.items():
            self.put_variable(collection, name, values)


def _by_path(tree: Mapping[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Return nested variables as parameters or state of Haiku: {path: {name: array}}."""
    flat: dict[str, dict[str, Any]] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(_by_path(value, f"{path}/{name}" if path else name))
        else:
            flat.setdefault(path, {})[name] = value
    return flat
