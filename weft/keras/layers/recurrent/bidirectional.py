"""Bidirectional."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.layers.layer import Layer
from weft.keras.layers.signature import call_signature


class Bidirectional(Layer):
    """Two recurrent layers, one forwards and one backwards, with their outputs combined.

    Args:
      layer: a recurrent layer; it is made anew for both directions, with names `forward_...` and `backward_...`.
      merge_mode: "concat", "sum", "mul", "ave", or None for both outputs.
      weights: initial weights of both layers, one after the other.
      backward_layer: the layer for the other direction, where it is to be another; it has `go_backwards=True`.

    Returns:
      A layer; its call takes `initial_state` (the states of both), a `mask` and `training`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True))(weft.numpy.ones((2, 5, 3))).shape
      (2, 5, 8)
    """

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **kwargs: Any,
    ):
        for one in (layer, backward_layer):
            if one is not None and not isinstance(one, Layer):
                raise ArgumentError(f"Bidirectional takes recurrent layers. Received: {one!r}")
        if merge_mode not in ("sum", "mul", "ave", "concat", None):
            raise ArgumentError(
                f"`merge_mode` must be 'sum', 'mul', 'ave', 'concat' or None. Received: merge_mode={merge_mode!r}"
            )
        super().__init__(**kwargs)
        self.forward_layer = _rename(layer, "forward_")
        self.backward_layer = (
            _rename(layer, "backward_", go_backwards=True) if backward_layer is None else backward_layer
        )
        self._check_layers()
        for one in (self.forward_layer, self.backward_layer):
            # A masked step must not repeat an output that belongs to the other end of the sequence.
            if getattr(one, "zero_output_for_mask", None) is not None:
                one.zero_output_for_mask = one.return_sequences
        self.merge_mode = merge_mode
        self._initial_weights = None if weights is None else list(weights)
        self.stateful = layer.stateful
        self.return_sequences = layer.return_sequences
        self.return_state = layer.return_state
        self.supports_masking = True
        self.input_spec = layer.input_spec

    def _check_layers(self) -> None:
        forward, backward = self.forward_layer, self.backward_layer
        if forward.go_backwards == backward.go_backwards:
            raise ArgumentError(
                "The two layers must read in different directions. Received: "
                f"go_backwards={forward.go_backwards} in both"
            )
        for name in ("stateful", "return_sequences", "return_state"):
            if getattr(forward, name) != getattr(backward, name):
                raise ArgumentError(
                    f"The two layers must have the same `{name}`. Received: {getattr(forward, name)} forward, "
                    f"{getattr(backward, name)} backward"
                )

    def build(
        self, sequences_shape: Any, initial_state_shape: Any = None
    ) -> None:  # Keras's names override those of Layer
        """Build both layers."""
        for one in (self.forward_layer, self.backward_layer):
            if not one.built:
                one.build(sequences_shape)
        self.built = True
        if self._initial_weights is not None:
            half = len(self._initial_weights) // 2
            self.forward_layer.set_weights(self._initial_weights[:half])
            self.backward_layer.set_weights(self._initial_weights[half:])
            self._initial_weights = None

    def call(self, sequences: Array, initial_state: Any = None, mask: Any = None, training: bool | None = None) -> Any:
        """Run both directions and merge their outputs; with `return_state` return the states of both layers too."""
        half = 0 if initial_state is None else len(initial_state) // 2
        starts = (None, None) if initial_state is None else (initial_state[:half], initial_state[half:])
        forward, backward = (
            one(sequences, initial_state=start, **self._options(one, mask, training))
            for one, start in zip((self.forward_layer, self.backward_layer), starts, strict=True)
        )
        states: tuple[Any, ...] = ()
        if self.return_state:
            states = (*forward[1:], *backward[1:])
            forward, backward = forward[0], backward[0]
        forward, backward = (out.astype(self.compute_dtype) for out in (forward, backward))
        if self.return_sequences:
            backward = wnp.flip(backward, axis=1)
        merged = self._merge(forward, backward)
        if not self.return_state:
            return merged
        return (*merged, *states) if self.merge_mode is None else (merged, *states)

    def _options(self, layer: Any, mask: Any, training: Any) -> dict[str, Any]:
        signature = call_signature(type(layer).call)
        return {name: value for name, value in (("mask", mask), ("training", training)) if name in signature}

    def _merge(self, forward: Array, backward: Array) -> Any:
        if self.merge_mode == "concat":
            return wnp.concatenate([forward, backward], axis=-1)
        if self.merge_mode == "sum":
            return forward + backward
        if self.merge_mode == "ave":
            return (forward + backward) / 2
        return (forward, backward) if self.merge_mode is None else forward * backward

    @property
    def states(self) -> tuple[Any, ...] | None:
        """The states of both layers where they are stateful."""
        if self.forward_layer.states and self.backward_layer.states:
            return (*self.forward_layer.states, *self.backward_layer.states)
        return None

    def reset_state(self) -> None:
        """Set the states of stateful layers to zeros."""
        if not self.stateful:
            raise ArgumentError(f"{self.name!r} is not stateful, so it has no state to reset.")
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    def reset_states(self) -> None:
        """Reset the states; an alias of `reset_state`."""
        self.reset_state()

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        """Return the shape of the output and, with `return_state`, the shapes of the states."""
        out = self.forward_layer.compute_output_shape(sequences_shape)
        states: tuple[Any, ...] = ()
        if self.return_state:
            out, states = out[0], tuple(out[1:])
        if self.merge_mode == "concat":
            out = (*out[:-1], 2 * out[-1])
        if self.merge_mode is None:
            return (out, out, *states, *states)
        return (out, *states, *states) if self.return_state else out

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:  # Keras's names override those of Layer
        """Return the mask of the steps if there is an output for each step, else None."""
        first = mask[0] if isinstance(mask, (list, tuple)) else mask
        own = first if self.return_sequences else None
        out = (own, own) if self.merge_mode is None else (own,)
        if self.return_state:
            out = (*out, *(None for _ in 2 * weft.tree.leaves(self.forward_layer.state_size)))
        return out if len(out) > 1 else out[0]

    def get_config(self) -> dict[str, Any]:
        """Return both layers and the merge mode as plain data."""
        config = super().get_config()
        config.pop("weights", None)
        return {
            **config,
            "merge_mode": self.merge_mode,
            "layer": registry.serialize_keras_object(self.forward_layer),
            "backward_layer": registry.serialize_keras_object(self.backward_layer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Bidirectional:
        """Construct a layer from a config of `get_config`."""
        config = dict(config)
        for name in ("layer", "backward_layer"):
            if config.get(name) is not None:
                config[name] = registry.deserialize_keras_object(config[name], custom_objects)
        return cls(**config)


def _rename(layer: Any, prefix: str, **changes: Any) -> Any:
    """Construct a copy of a layer with a prefixed name and changed arguments."""
    described = registry.serialize_keras_object(layer)
    config = {**described["config"], "name": prefix + layer.name.removeprefix(prefix), **changes}
    return registry.deserialize_keras_object({**described, "config": config}, {type(layer).__name__: type(layer)})
