"""Linen modules inside of functions for Haiku, and such functions as linen modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft.linen as nn
from weft.haiku.frames import TOP, current_frame, running_init
from weft.haiku.lifting import lift_with_state
from weft.haiku.parameters import maybe_next_rng_key, next_rng_key
from weft.haiku.transform import TransformedWithState


def flatten_flax_to_haiku(collection: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A nested collection as {path: {name: array}}; arrays at the top level have the path `~`."""
    flat: dict[str, dict[str, Any]] = {}

    def flatten(tree: Mapping[str, Any], path: str) -> None:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                flatten(value, f"{path}/{name}" if path else name)
            else:
                flat.setdefault(path or TOP, {})[name] = value

    flatten(collection, "")
    return flat


def _nested(flat: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A collection as it was before `flatten_flax_to_haiku`."""
    tree: dict[str, Any] = {}
    for path, values in flat.items():
        node = tree
        for part in () if path == TOP else path.split("/"):
            node = node.setdefault(part, {})
        node.update(values)
    return tree


def lift(mod: Any, *, name: str) -> Callable[..., Any]:
    """A linen module as a function for Haiku: its parameters and other collections are stored below `name`."""

    def init(key: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        variables = dict(mod.init(key, *args, **kwargs))
        params = flatten_flax_to_haiku(variables.pop("params", {}))
        return params, flatten_flax_to_haiku(variables)

    lifted, updater = lift_with_state(init, name=name)

    def run(*args: Any, **kwargs: Any) -> Any:
        current_frame("experimental.flax.lift")
        params, state = lifted(next_rng_key() if running_init() else None, *args, **kwargs)
        collections = _nested(state)
        key = maybe_next_rng_key()
        result, changed = mod.apply(
            {"params": _nested(params), **collections},
            *args,
            rngs={} if key is None else {"params": key},
            mutable=list(collections),
            **kwargs,
        )
        updater.update(flatten_flax_to_haiku(changed))
        return result

    return run


class Module(nn.Module):
    """A transformed function as a linen module; parameters keep their paths, state is the collection `state`."""

    transformed: Any

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        has_state = isinstance(self.transformed, TransformedWithState)
        initial: list[Any] = []

        def initialized() -> tuple[Any, Any]:
            if not initial:
                key = self.make_rng("params")
                first = self.transformed.init(key, *args, **kwargs)
                initial.append(first if has_state else (first, {}))
            return initial[0]

        params = self.variable("params", "transformed", lambda: initialized()[0]).value
        key = self.make_rng("params") if self.has_rng("params") else None
        if not has_state:
            return self.transformed.apply(params, key, *args, **kwargs)
        state = self.variable("state", "transformed", lambda: initialized()[1])
        result, after = self.transformed.apply(params, state.value, key, *args, **kwargs)
        if self.is_mutable_collection("state"):
            state.value = after
        return result
