"""Stacks of equal layers as one scan, compiled once, whose parameters have a leading axis."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import weft
from weft import lax, numpy as wnp
from weft.errors import ArgumentError, ModuleDefinitionError, ParameterNotFoundError, user_line
from weft.haiku.frames import current_frame
from weft.haiku.lifting import _add, lift_with_state
from weft.haiku.parameters import maybe_next_rng_key
from weft.haiku.transform import transform_with_state


class LayerStackTransparencyMapping(Protocol):
    """The correspondence between paths of layers in a transparent stack and in a plain loop."""

    def stacked_to_flat(self, stacked_module_name: str, scan_idx: int) -> str:
        """Return the path of a module in layer `scan_idx`, from its path in the stack."""

    def flat_to_stacked(self, unstacked_module_name: str) -> tuple[str, int] | None:
        """Return the path in the stack and the index of the layer, or None for a module outside of the stack."""


def layer_stack(
    num_layers: int,
    with_per_layer_inputs: bool = False,
    unroll: int = 1,
    pass_reverse_to_layer_fn: bool = False,
    transparent: bool = False,
    transparency_map: LayerStackTransparencyMapping | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Apply a layer `num_layers` times, `x = f(x)`, each time with parameters of its own.

    With `with_per_layer_inputs` a layer is x, z = f(x, *ys) with a slice of each of `ys` per layer, and the result is x
    and all z. A transparent stack stores its parameters per layer, under the names of a plain loop.
    """
    if num_layers < 0:
        raise ArgumentError(f"hk.layer_stack needs a number of layers of 0 or more, got {num_layers}.")
    if transparent and transparency_map is None:
        raise ArgumentError("hk.layer_stack(transparent=True) needs a transparency_map.")
    if transparency_map is not None and not transparent:
        raise ArgumentError("hk.layer_stack: transparency_map is for transparent=True only.")
    if name is None:
        name = "__layer_stack_with_per_layer" if with_per_layer_inputs else "__layer_stack_no_per_layer"

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        _check_signature(f)

        @functools.wraps(f)
        def run(*args: Any, reverse: bool = False) -> Any:
            options = {"reverse": reverse} if pass_reverse_to_layer_fn else {}
            layer = transform_with_state(lambda *layer_args: f(*layer_args, **options))
            if with_per_layer_inputs:
                carry, inputs = args[0], args[1:]
            else:
                carry, inputs = (args[0] if len(args) == 1 else args), ()
            one = _one_layer(layer.apply, with_per_layer_inputs, len(args))
            for leaf in weft.tree.leaves(inputs):
                if leaf.shape[:1] != (num_layers,):
                    raise ArgumentError(
                        f"hk.layer_stack needs inputs with a leading axis of {num_layers}, one slice a layer; got "
                        f"shape {leaf.shape}."
                    )
            if num_layers == 0:
                return (carry, None) if with_per_layer_inputs else carry
            make = _initializer(
                layer.init, one, num_layers, reverse, unroll, not with_per_layer_inputs and len(args) > 1
            )
            params, state, write = _params_and_state(
                make, carry, inputs, num_layers, name, transparent, transparency_map
            )
            key = maybe_next_rng_key()
            keys = None if key is None else weft.random.split(key, num_layers)

            def step(carry: Any, xs: Any) -> Any:
                params, state, key, inputs = xs
                carry, z, state = one(params, state, key, carry, inputs)
                return carry, (z, state)

            carry, (zs, state) = lax.scan(step, carry, (params, state, keys, inputs), num_layers, reverse, unroll)
            write(state)
            return (carry, zs) if with_per_layer_inputs else carry

        return run

    return decorate


def _check_signature(f: Callable[..., Any]) -> None:
    """Raise unless a layer takes a fixed number of positional arguments."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        raise ModuleDefinitionError(
            "hk.layer_stack needs a function with a fixed number of arguments.",
            at=user_line(),
            received=str(inspect.signature(f)),
        )


def _one_layer(apply: Callable[..., Any], with_inputs: bool, count: int) -> Callable[..., Any]:
    """Return a layer as a function (params, state, key, carry, inputs) -> (carry, output, state)."""

    def one(params: Any, state: Any, key: Any, carry: Any, inputs: Any) -> Any:
        if with_inputs:
            (carry, z), state = apply(params, state, key, carry, *inputs)
            return carry, z, state
        values = carry if count > 1 else (carry,)
        out, state = apply(params, state, key, *values)
        return out, None, state

    return one


def _initializer(
    init: Callable[..., Any], one: Callable[..., Any], num_layers: int, reverse: bool, unroll: int, many: bool
) -> Callable[..., Any]:
    """Return a function for the parameters and state of all layers, each initialized with the output of the previous
    one.
    """

    def make(key: Any, carry: Any, inputs: Any) -> Any:
        def step(carried: Any, inputs: Any) -> Any:
            carry, key = carried
            own = None
            if key is not None:
                pair = weft.random.split(key)
                own, key = pair[0], pair[1]
            values = carry if many else (carry,)
            params, state = init(own, *values, *inputs)
            carry, _, _ = one(params, state, own, carry, inputs)
            return (carry, key), (params, state)

        return lax.scan(step, (carry, key), inputs, num_layers, reverse, unroll)[1]

    return make


def _params_and_state(
    make: Callable[..., Any], carry: Any, inputs: Any, num_layers: int, name: str, transparent: bool, mapping: Any
) -> tuple[Any, Any, Callable[[Any], None]]:
    """Return stacked parameters and state, new or stored, and a function that stores the state after the run."""
    frame = current_frame("layer_stack")
    key = maybe_next_rng_key()
    if not transparent:
        lifted, updater = lift_with_state(make, name=name)
        params, state = lifted(key, carry, inputs)
        return params, state, updater.update

    prefix = "" if frame.module is None else f"{frame.path}/"
    if frame.is_initializing:
        params, state = make(key, carry, inputs)
        for collection, tree in (("params", params), ("initial", state), ("state", state)):
            if tree:
                _add(frame, collection, prefix, _flat(tree, num_layers, mapping), False)
    else:
        shapes = weft.eval_shape(make, weft.random.PRNGKey(0) if key is None else key, carry, inputs)
        params, state = (
            _stack(frame.call.collections.get(collection, {}), prefix, tree, num_layers, mapping)
            for collection, tree in zip(("params", "state"), shapes, strict=True)
        )

    def write(state: Any) -> None:
        for path, values in _flat(state, num_layers, mapping).items():
            frame.root.child(f"{prefix}{path}").mutable_node("state").update(values)

    return params, state, write


def _flat(tree: Any, num_layers: int, mapping: Any) -> dict[str, dict[str, Any]]:
    """Split stacked modules into one module per layer."""
    return {
        mapping.stacked_to_flat(path, i): {name: value[i] for name, value in values.items()}
        for path, values in tree.items()
        for i in range(num_layers)
    }


def _stack(outer: Any, prefix: str, shapes: Any, num_layers: int, mapping: Any) -> dict[str, dict[str, Any]]:
    """Stack the modules of all layers."""
    stacked: dict[str, dict[str, Any]] = {}
    for path, values in shapes.items():
        layers = [f"{prefix}{mapping.stacked_to_flat(path, i)}" for i in range(num_layers)]
        for i, layer in enumerate(layers):
            back = mapping.flat_to_stacked(layer.removeprefix(prefix))
            if back is not None and tuple(back) != (path, i):
                raise ModuleDefinitionError(
                    f"The transparency_map does not go back from {layer!r} to {(path, i)}.",
                    at=user_line(),
                    received=f"flat_to_stacked returned {back!r}",
                )
            if layer not in outer:
                raise ParameterNotFoundError(
                    f"Module {layer!r}, layer {i} of a transparent stack, is not there.",
                    at=user_line(),
                    received=f"modules: {', '.join(map(repr, outer)) or 'none'}",
                    fix="pass what init returned: f.apply(params, key, ...)",
                )
        stacked[path] = {name: wnp.stack([outer[layer][name] for layer in layers]) for name in values}
    return stacked
