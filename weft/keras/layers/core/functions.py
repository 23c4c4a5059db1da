"""Layers around pure functions of parameters, and around modules of linen."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.seeds import SeedGenerator
from weft.keras.layers.layer import Layer
from weft.keras.layers.signature import map_shapes

_CALL = ("params", "state", "rng", "inputs", "training")
_INIT = ("rng", "inputs", "training")


class JaxLayer(Layer):
    """A pure function of parameters and inputs as a layer: its parameters are variables that train, its state variables
    that do not.

    Args:
        call_fn: a function with arguments of these names, in any order: `inputs`, and of `params`, `state`, `rng`,
            `training` those that it needs. With `state` it returns `(outputs, new_state)`.
        init_fn: a function of `rng`, `inputs` and, if it has it, `training`, that returns `params`, or
            `(params, state)`. It is called when the layer is built.
        params, state: trees of arrays to begin with, in place of `init_fn`.
        seed: of `rng`, a key; another one in each call.
        native_serialization_platforms: accepted; there is nothing to serialize.
        **kwargs: `name`, `dtype`, `trainable`.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> def call(params, inputs):
        ...     return inputs @ params["w"]
        >>> def init(rng, inputs):
        ...     return {"w": weft.random.normal(rng, (inputs.shape[-1], 2))}
        >>> layer = keras.layers.JaxLayer(call, init, seed=0)
        >>> layer(weft.numpy.ones((4, 3))).shape, [w.path for w in layer.trainable_weights]
        ((4, 2), ['jax_layer/w'])
    """

    def __init__(
        self,
        call_fn: Callable[..., Any],
        init_fn: Callable[..., Any] | None = None,
        params: Any = None,
        state: Any = None,
        seed: int | None = None,
        native_serialization_platforms: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.call_fn, self.init_fn = call_fn, init_fn
        self._call_names = _names(call_fn, "call_fn", _CALL)
        self._init_names = () if init_fn is None else _names(init_fn, "init_fn", _INIT)
        needs = [name for name in ("params", "state") if name in self._call_names]
        if needs and init_fn is None and params is None and state is None:
            raise ArgumentError(
                f"call_fn takes {' and '.join(needs)}, which nothing makes.", fix="init_fn=, or params= and state="
            )
        if state is not None and "state" not in self._call_names:
            raise ArgumentError("There is a state, which call_fn does not take.", fix="call_fn(params, state, inputs)")
        self.seed_generator = SeedGenerator(seed)
        self.params: Any = None
        self.state: Any = None
        if params is not None or state is not None:
            self.params = self._variables(params, trainable=True)
            self.state = self._variables(state, trainable=False)

    def build(self, input_shape: Any) -> None:
        """Make the variables.

        Args:
            input_shape: the shape of the inputs, or a tree of shapes.
        """
        if self.params is not None or self.state is not None:
            return
        found = self._initialize(input_shape)
        self.params = self._variables(found[0], trainable=True)
        self.state = self._variables(found[1], trainable=False)

    def _initialize(self, input_shape: Any) -> tuple[Any, Any]:
        """Return the parameters and state that `init_fn` creates for inputs of a shape."""
        if self.init_fn is None:
            return None, None
        sizes = lambda shape: tuple(1 if size is None else size for size in shape)
        inputs = map_shapes(lambda shape: wnp.zeros(sizes(shape), self.compute_dtype), input_shape)
        values = {"rng": self._init_keys(), "inputs": inputs, "training": True}
        found = self.init_fn(**{name: values[name] for name in self._init_names})
        return tuple(found) if "state" in self._call_names else (found, None)

    def _variables(self, tree: Any, trainable: bool) -> Any:
        def of_leaf(path: Any, value: Any) -> Any:
            if isinstance(value, str | bytes):
                return value
            array = wnp.asarray(getattr(value, "value", value))
            name = "_".join(str(getattr(part, "key", getattr(part, "idx", part))) for part in path)
            return self.add_weight(
                shape=array.shape,
                initializer=lambda shape, dtype=None: array,
                dtype=str(array.dtype),
                trainable=trainable,
                name=name or None,
            )

        return weft.tree_util.tree_map_with_path(of_leaf, tree)

    def _attribute_config(self) -> dict[str, Any]:
        """Return the functions, and the values of the variables where no function makes them."""
        values = lambda tree: weft.tree.map(lambda leaf: np.asarray(getattr(leaf, "value", leaf)), tree)
        found = {"call_fn": self.call_fn, "init_fn": self.init_fn}
        if self.init_fn is None:
            found |= {"params": values(self.params), "state": values(self.state)}
        return {name: registry.serialize_keras_object(value) for name, value in found.items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Return the layer that `get_config` described."""
        return cls(**{name: registry.deserialize_keras_object(value) for name, value in config.items()})

    def _key(self) -> Any:
        return weft.random.wrap_key_data(self.seed_generator.next())

    def _init_keys(self) -> Any:
        """Return the `rng` argument of `init_fn`."""
        return self._key()

    def _call_keys(self, training: bool) -> Any:
        """Return the `rng` argument of `call_fn`."""
        return self._key()

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Call the function and assign the new state, if there is one."""
        value = lambda tree: weft.tree.map(lambda leaf: getattr(leaf, "value", leaf), tree)
        values: dict[str, Any] = {"inputs": inputs, "training": training}
        for name in self._call_names:
            if name == "rng":
                values[name] = self._call_keys(training)
            elif name in ("params", "state"):
                values[name] = value(getattr(self, name))
        result = self.call_fn(**{name: values[name] for name in self._call_names})
        if "state" not in self._call_names:
            return result
        outputs, new = result
        if weft.tree.structure(new) != weft.tree.structure(self.state):
            raise ArgumentError(
                "The state that call_fn returns has another structure than the one that it got.",
                received=f"{weft.tree.structure(new)}, for {weft.tree.structure(self.state)}",
            )
        weft.tree.map(lambda variable, array: variable.assign(array), self.state, new)
        return outputs


class FlaxLayer(JaxLayer):
    """A module of `weft.linen` as a layer: its parameters train, its other collections do not.

    Args:
        module: the module.
        method: the method that is called, `__call__` where None; it is called with `training` if it takes it.
        variables: the variables to begin with; else `init` makes them when the layer is built.
        **kwargs: `seed`, `name`, `dtype`, `trainable`.

    Example:
        >>> import weft
        >>> from weft import keras, linen
        >>> layer = keras.layers.FlaxLayer(linen.Dense(2), seed=0)
        >>> layer(weft.numpy.ones((4, 3))).shape, [tuple(w.shape) for w in layer.trainable_weights]
        ((4, 2), [(2,), (3, 2)])
    """

    def __init__(
        self,
        module: Any,
        method: Callable[..., Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        linen = importlib.import_module("weft.linen")  # only with this layer
        if not isinstance(module, linen.Module):
            raise ArgumentError(
                "The argument of FlaxLayer must be a weft.linen module.", received=type(module).__name__
            )
        takes_training = "training" in inspect.signature(method or type(module).__call__).parameters

        def options(training: bool) -> dict[str, Any]:
            return {"method": method, **({"training": training} if takes_training else {})}

        def call(params: Any, state: Any, rng: Any, inputs: Any, training: bool) -> Any:
            found = {**(params or {}), **(state or {})}
            return module.apply(found, inputs, rngs=rng, mutable=linen.DenyList(["params"]), **options(training))

        def init(rng: Any, inputs: Any, training: bool) -> Any:
            return _split(module.init(rng, inputs, **options(training)))

        params, state = (None, None) if variables is None else _split(variables)
        super().__init__(call, init, params, state, **kwargs)
        self.module, self.method = module, method

    def _attribute_config(self) -> dict[str, Any]:
        return Layer._attribute_config(self)

    def _init_keys(self) -> Any:
        return {"params": self._key(), "dropout": self._key()}

    def _call_keys(self, training: bool) -> Any:
        return {"dropout": self._key()} if training else {}


def _split(variables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a module's variables into its parameters and its other collections."""
    params = {name: value for name, value in variables.items() if name == "params"}
    return params, {name: value for name, value in variables.items() if name != "params"}


def _names(function: Callable[..., Any], what: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(inspect.signature(function).parameters)
    unknown = [name for name in names if name not in allowed]
    if unknown or "inputs" not in names:
        raise ArgumentError(
            f"The parameters of {what} must be `inputs` and any of: {', '.join(allowed)}.",
            received=f"{what}({', '.join(names)})",
        )
    return names
