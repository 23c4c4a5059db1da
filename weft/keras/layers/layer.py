"""The class `Layer`: what a call does around the layer's own `call`."""

from __future__ import annotations

import functools
import inspect
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import weft
from weft.errors import ArgumentError
from weft.keras.core import context, registry
from weft.keras.core.context import Frame, calling, get_keras_mask, set_keras_mask
from weft.keras.core.layouts import output_in_layout
from weft.keras.core.names import current_path, name_scope
from weft.keras.core.policy import DTypePolicy, DTypePolicyMap, get_policy
from weft.keras.core.remat import current_remat_mode, remat
from weft.keras.core.scope import StatelessScope
from weft.keras.core.spec import check_input, standardize_shape
from weft.keras.core.variable import Variable
from weft.keras.graph import shapes
from weft.keras.graph.operation import Operation, record
from weft.keras.graph.tensor import KerasTensor, any_symbolic
from weft.keras.layers.signature import (
    call_signature,
    has_tensors,
    is_shape,
    is_tensor,
    map_shapes,
    map_tensors,
    shape_arguments,
    tree_shapes,
)
from weft.keras.layers.state import Stateful

Self = TypeVar("Self", bound="Layer")
# Two threads that call a new layer must not both build it.
_building = threading.RLock()


class Layer(Stateful):
    """A function of tensors with state: variables, and other layers.

    Subclasses define `call(inputs)` and, where they have variables, `build(input_shape)`, which is run at the first
    call with the shapes of its arguments. Variables are made by `add_weight`; layers, variables and seed generators
    that are attributes (or in lists, tuples and dicts that are) belong to the layer.

    Args:
        activity_regularizer: a function of the results whose value is added to the loss, or its name.
        trainable: whether optimizers may update its variables.
        dtype: the dtype of computations and variables, or a `DTypePolicy`; None is the global policy.
        autocast: whether float arguments are cast to the compute dtype.
        name: its name; the snake case of the class and a count where None.

    Example:
        >>> from weft import keras
        >>> class Scale(keras.layers.Layer):
        ...     def build(self, input_shape):
        ...         self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="w")
        ...
        ...     def call(self, inputs):
        ...         return inputs * self.scale
        >>> layer = Scale()
        >>> layer(keras.ops.ones((2, 3))).shape, [w.path for w in layer.weights]
        ((2, 3), ['scale/w'])
    """

    def __init__(
        self,
        *,
        activity_regularizer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name)
        input_shape = kwargs.pop("input_shape", None)
        input_dim = kwargs.pop("input_dim", None)
        if kwargs:
            raise ArgumentError(
                f"{type(self).__name__} does not take the arguments {', '.join(kwargs)}.", received=repr(kwargs)
            )
        if input_dim is not None or input_shape is not None:
            warnings.warn(
                "Put `Input(shape)` first in a Sequential model instead of `input_shape` or `input_dim` on a layer.",
                stacklevel=3,
            )
        self._input_shape_argument = (input_dim,) if input_dim is not None else input_shape
        if not isinstance(trainable, bool):
            raise ArgumentError("`trainable` must be True or False.", received=f"trainable={trainable!r}")
        self._dtype_policy: DTypePolicy = get_policy(dtype)
        self.activity_regularizer = registry.get("regularizers", activity_regularizer)
        self.autocast = autocast
        self.built = False
        self.input_spec: Any = None
        self._trainable = trainable
        self._path: str | None = None
        self._parent_path: str | None = None
        self._build_shapes: dict[str, Any] | None = None
        self._is_building = False
        self._supports_masking = type(self).compute_mask is not Layer.compute_mask
        self.supports_jit = True
        self._remat_mode = current_remat_mode()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            setattr(cls, "build", _building_method(cls.__dict__["build"]))  # noqa: B010

    # ---------------------------------------------------------------------------------------------------------- config

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data.

        The default covers all arguments of a subclass that does not override it; an override extends
        `super().get_config()`.
        """
        inherited = type(self).get_config is Layer.get_config
        own = self._constructor_config() if inherited and not _is_builtin(type(self)) else self._attribute_config()
        config = {
            **own,
            "name": self.name,
            "trainable": self.trainable,
            "dtype": registry.serialize_keras_object(self._dtype_policy),
        }
        if self.activity_regularizer is not None:
            config["activity_regularizer"] = registry.serialize_keras_object(self.activity_regularizer)
        elif "activity_regularizer" in own:
            config["activity_regularizer"] = None
        return config

    def _attribute_config(self) -> dict[str, Any]:
        """Return the arguments of the nearest built-in class, from attributes of the same names or as passed."""
        nearest = next(cls for cls in type(self).__mro__ if _is_builtin(cls))
        constructed = self._constructor_arguments()
        config: dict[str, Any] = {}
        for name, parameter in inspect.signature(_constructor(nearest)).parameters.items():
            if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL) or name == "self":
                continue
            if name in self.__dict__:
                config[name] = _config_value(self.__dict__[name])
            elif name in constructed:
                config[name] = _config_value(constructed[name])
        if nearest is Layer:
            for name in ("autocast", "activity_regularizer"):
                config.pop(name, None)
        return config

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes that the layer was built with; None before."""
        if self._build_shapes is None:
            return None
        if len(self._build_shapes) == 1:
            return {"input_shape": next(iter(self._build_shapes.values()))}
        return {"shapes_dict": self._build_shapes}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Build it with the shapes that `get_build_config` returned.

        Args:
            config: {"input_shape": ...} or {"shapes_dict": {name: shape}}.
        """
        if not config:
            return
        if "input_shape" in config:
            self.build(_as_shape(config["input_shape"]))
        elif "shapes_dict" in config:
            self.build(**{name: _as_shape(shape) for name, shape in config["shapes_dict"].items()})

    # ---------------------------------------------------------------------------------------------------------- dtypes

    def _policy(self) -> DTypePolicy:
        policy = self._dtype_policy
        return policy[self._path] if isinstance(policy, DTypePolicyMap) and self._path else policy

    @property
    def dtype_policy(self) -> DTypePolicy:
        """What it computes in, and what its variables have."""
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        policy, current = get_policy(value), self._dtype_policy
        if isinstance(current, DTypePolicyMap) and self._path and not isinstance(policy, DTypePolicyMap):
            # The map says what layers inside have, and goes on to.
            if self._path in current:
                del current[self._path]
            current[self._path] = policy
        else:
            self._dtype_policy = policy

    @property
    def dtype(self) -> str:
        """The dtype of its variables."""
        return self._policy().variable_dtype

    @property
    def variable_dtype(self) -> str:
        """The dtype of its variables."""
        return self._policy().variable_dtype

    @property
    def compute_dtype(self) -> str:
        """The dtype that it computes in."""
        return self._policy().compute_dtype

    @property
    def input_dtype(self) -> str:
        """The dtype that float arguments are cast to."""
        return self.compute_dtype

    @property
    def path(self) -> str | None:
        """The names of the layers that it was built in, and its own; None before it is built."""
        return self._path

    # ----------------------------------------------------------------------------------------------------------- state

    def add_weight(
        self,
        shape: Sequence[int] | int | None = None,
        initializer: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable:
        """Make a variable that belongs to the layer.

        Args:
            shape: its shape; () where None.
            initializer: a function `(shape, dtype) -> array`, or its name; "glorot_uniform" for floats where None, else
                "zeros".
            dtype: its dtype; the layer's where None.
            trainable: whether an optimizer may update it.
            autocast: whether it is read in the layer's compute dtype.
            regularizer: a function of the value that is added to the loss, or its name.
            constraint: a function that is applied to the value after an update, or its name.
            aggregation: see `Variable`.
            overwrite_with_gradient: whether an optimizer replaces the value by the gradient.
            name: the last part of its path.

        Returns:
            The variable.
        """
        if isinstance(shape, str):
            raise ArgumentError(
                "The first argument of add_weight must be the shape.",
                received=f"{shape!r}",
                fix=f"add_weight(shape=..., name={shape!r})",
            )
        frame = context.current_frame()
        if self.built and not self._is_building and frame is not None and frame.layer is self:
            raise ArgumentError(
                f"Layer {self.name} is already built: a weight created in `call` would be a new one in each call.",
                received=f"add_weight(name={name!r}) in `call`",
                fix="create variables in `__init__` or `build`",
            )
        dtype = self.variable_dtype if dtype is None else dtype
        if initializer is None:
            initializer = "glorot_uniform" if "float" in str(dtype) else "zeros"
        if isinstance(initializer, (str, dict)) or callable(initializer):
            initializer = registry.get("initializers", initializer)
        with self._open_name_scope():
            variable = Variable(
                initializer,
                shape=() if shape is None else (shape,) if isinstance(shape, int) else tuple(shape),
                dtype=dtype,
                trainable=trainable,
                autocast=autocast,
                aggregation=aggregation,
                name=name,
            )
        variable.regularizer = registry.get("regularizers", regularizer)
        variable.constraint = registry.get("constraints", constraint)
        variable.overwrite_with_gradient = overwrite_with_gradient
        self._own("", variable)
        return variable

    def add_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """Add a weight; an alias of `add_weight`."""
        return self.add_weight(*args, **kwargs)

    def add_loss(self, loss: Any) -> None:
        """Add a term to the loss, in `call`: it counts for this call only.

        Args:
            loss: a scalar, or a list of scalars.
        """
        losses = context.current_losses()
        for term in weft.tree.leaves(loss):
            losses.add(self, term)

    @property
    def losses(self) -> list[Any]:
        """The terms that the last call added (`add_loss`, activity regularizers), then those of regularizers of its
        trainable weights."""
        store = context.current_losses()
        added = [loss for layer in self._flatten_layers() for loss in store.of(layer)]
        return added + self._weight_regularization_losses()

    def _weight_regularization_losses(self) -> list[Any]:
        return [v.regularizer(v.value) for v in self.trainable_weights if v.regularizer is not None]

    def _clear_losses(self) -> None:
        store = context.current_losses()
        for layer in self._flatten_layers():
            store.forget(layer)

    # ------------------------------------------------------------------------------------------------------------ build

    def build(self, input_shape: Any) -> None:
        """Create the layer's variables. A layer without this method, but with other layers in it, builds those by
        tracing its `call`.

        Args:
            input_shape: the shape of the first argument; or one argument `<name>_shape` for each of `call`.
        """
        with _building:
            # `super().build(...)` of a subclass: its own method still creates variables, and finishes afterwards.
            if self.built or self._is_building:
                return
            self._parent_path = current_path() if self._parent_path is None else self._parent_path
            has_call = type(self).call is not Operation.call
            if has_call and any(not layer.built for layer in self._flatten_layers(include_self=False)):
                with self._open_name_scope():
                    self._path = current_path()
                    # A layer that says how shapes change need not be traced, but those in it must be built.
                    self._trace_spec(input_shape)
            self._finish_build({"input_shape": input_shape})

    def _build_at_init(self) -> None:
        """Set `built` in the constructor of a class without variables, unless a subclass has a method `build`."""
        if type(self).build is Layer.build:
            self.built = True

    def _finish_build(self, arguments: dict[str, Any]) -> None:
        with self._open_name_scope():
            self._path = current_path()
        self._build_shapes = arguments
        self.built = True
        self._post_build()
        self._lock_state()

    def _post_build(self) -> None:
        """Run after the layer has been built; subclasses override it."""

    def _lock_state(self) -> None:
        self._own_members()  # of lists that were set before
        object.__setattr__(self, "_locked", type(self).build is not Layer.build)

    def _open_name_scope(self) -> name_scope:
        if self._parent_path is None:
            self._parent_path = current_path()
        return name_scope(self.name, caller=self, override_parent=self._parent_path)

    def _build_once(self, arguments: dict[str, Any]) -> None:
        """Build with the arguments of the first call."""
        with _building:
            if self.built:
                return
            sizes = {name: tree_shapes(value) for name, value in arguments.items() if has_tensors(value)}
            if type(self).build is Layer.build:
                # Layers inside are built when `call` calls them.
                self._finish_build({f"{name}_shape": shape for name, shape in sizes.items()})
            else:
                # Reading variables while building is reading them as they are.
                with context.calling(Frame(self, context.current_frame(), context.learning_phase())):
                    self.build(**shape_arguments(type(self).build, sizes, self.name))

    # ------------------------------------------------------------------------------------------------------------- call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer: on arrays it computes, on KerasTensors it records a node of a graph.

        Args:
            *args: arguments of `call`; float arrays are cast to the compute dtype.
            **kwargs: likewise. `training` is accepted by every layer, and is what layers inside see too.
        """
        if "_trainable" not in self.__dict__:
            raise ArgumentError(
                f"The constructor of {type(self).__name__} does not call `super().__init__()`.",
                fix="call `super().__init__(**kwargs)` first in `__init__`",
            )
        signature = call_signature(type(self).call)
        kwargs = dict(kwargs)
        explicit = kwargs.pop("training", None) if "training" not in signature else kwargs.get("training")
        if self._converts_arguments:
            args, kwargs = self._convert_arguments(args, kwargs)
        arguments = signature.bind(self.name, args, kwargs)
        if explicit is None and "training" in arguments:
            explicit = arguments["training"]
        symbolic = any_symbolic(args, kwargs)
        first = next(iter(arguments.values()), None)

        parent = context.current_frame()
        training = explicit
        if training is None and parent is not None:
            training = parent.training
        if training is None:
            training = signature.training_default
        frame = Frame(self, parent, training, self.compute_dtype if self.autocast else None)
        with self._open_name_scope(), calling(frame), weft.named_scope(self.name):
            try:
                check_input(self.input_spec, first, self.name)
                if not self.built:
                    self._build_once(arguments)
                if parent is None:
                    context.current_losses().begin(frame)
                extra = self._masks_for(arguments)
                mask = arguments.get("mask")
                has_masks = context.any_masks() or type(self).compute_mask is not Layer.compute_mask
                masks = map_tensors(get_keras_mask, first) if has_masks else None
                if "training" in signature and training is not None:
                    extra["training"] = training
                if symbolic:
                    outputs = self._symbolic_call(args, kwargs, extra)
                else:
                    filled = _complete(args, kwargs, extra, signature.names)
                    outputs = self.rematerialized_call(self.call, *args, **filled)(*args, **filled)
                    outputs = output_in_layout(outputs, self.path)
                    if self.activity_regularizer is not None:
                        self._regularize_activity(outputs)
                if has_masks or mask is not None:
                    self._set_masks(first, outputs, masks, mask)
            except Exception as error:
                context.explain_error(error, frame, args, kwargs)
                raise
            finally:
                if parent is None:
                    context.end_of_call(frame)
        return outputs

    def rematerialized_call(self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """Wrap a function of the layer as the `RematScope` asks in which the layer was constructed.

        Args:
            layer_call: the function, such as `self.call`.
            *args, **kwargs: what it will be called with, which tells the size of the output.

        Returns:
            A function that computes the same; `layer_call` itself where nothing is computed again.
        """
        mode, now = self._remat_mode, current_remat_mode()
        if now is not None and now != mode:
            warnings.warn(
                f"Layer {self.name} was constructed with {mode or 'no RematScope'}, which holds; it is called in "
                f"another scope, {now}, which has no effect on it.",
                stacklevel=3,
            )
        if mode is None or mode.mode is None:
            return layer_call
        if mode.mode == "activations":
            return self._with_remat_activation(layer_call)
        if mode.mode == "larger_than":
            as_spec = lambda leaf: KerasTensor(leaf.shape, str(leaf.dtype)) if isinstance(leaf, weft.Array) else leaf
            specs = map_tensors(as_spec, (args, kwargs))
            found = weft.tree.leaves(self.compute_output_spec(*specs[0], **specs[1]))
            size = sum(math.prod(1 if n is None else n for n in leaf.shape) for leaf in found)
            return remat(layer_call) if size > mode.output_size_threshold else layer_call
        chosen = mode.mode == "full" or self.name in mode.layer_names
        return remat(layer_call) if chosen else layer_call

    def _with_remat_activation(self, layer_call: Callable[..., Any]) -> Callable[..., Any]:
        activation = self.__dict__.get("activation")
        if not callable(activation):
            return layer_call

        def run(*args: Any, **kwargs: Any) -> Any:
            with _building:  # another thread must not find the wrapped activation
                own = self.__dict__["activation"]
                object.__setattr__(self, "activation", remat(own))
                try:
                    return layer_call(*args, **kwargs)
                finally:
                    object.__setattr__(self, "activation", own)

        return run

    # Whether arrays of other libraries and other dtypes are converted before a call.
    _converts_arguments = True

    def _convert_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert arguments to arrays of Weft, floats in the compute dtype; masks are retained."""
        convert = functools.partial(self._policy().convert_input, autocast=self.autocast, dtype=self.input_dtype)

        def with_mask(leaf: Any) -> Any:
            found = convert(leaf)
            if found is not leaf and (mask := get_keras_mask(leaf)) is not None:
                set_keras_mask(found, mask)
            return found

        return map_tensors(with_mask, args), map_tensors(with_mask, kwargs) if kwargs else kwargs

    def _symbolic_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], extra: dict[str, Any]) -> Any:
        names = call_signature(type(self).call).names
        specs = map_tensors(self._cast_spec, (args, _complete(args, kwargs, extra, names)))
        outputs = self.compute_output_spec(*specs[0], **specs[1])
        # Masks are found again when the graph runs, so only what the caller wrote is recorded.
        return record(self, args, kwargs, outputs)

    def _cast_spec(self, value: Any) -> Any:
        """Cast a KerasTensor to the compute dtype, as `call` receives it."""
        if not isinstance(value, KerasTensor) or not self.autocast or "float" not in value.dtype:
            return value
        if value.dtype == self.input_dtype:
            return value
        return KerasTensor(value.shape, self.input_dtype)

    def _masks_for(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the masks that `call` takes but did not receive: `mask` for one tensor, else `<argument>_mask`."""
        signature = call_signature(type(self).call)
        if not signature.takes_masks:
            return {}
        tensors = {name: value for name, value in arguments.items() if has_tensors(value)}
        if len(tensors) == 1:
            (value,) = tensors.values()
            wanted = {"mask": value} if "mask" in signature else {}
        else:
            wanted = {f"{name}_mask": value for name, value in tensors.items() if f"{name}_mask" in signature}
        return {
            name: map_tensors(get_keras_mask, value) for name, value in wanted.items() if arguments.get(name) is None
        }

    def _set_masks(self, inputs: Any, outputs: Any, masks: Any, explicit: Any) -> None:
        """Set the masks of the results, from the mask that the call was passed or else from those of the inputs; or
        warn that they end here."""
        previous = masks if explicit is None or not self.supports_masking else explicit
        masked = any(mask is not None for mask in weft.tree.leaves(previous))
        if self.supports_masking:
            if not masked and type(self).compute_mask is Layer.compute_mask:
                return
            results = weft.tree.leaves(outputs)
            if any(is_tensor(leaf) and get_keras_mask(leaf) is not None for leaf in results):
                return  # `call` has set them
            if any_symbolic(outputs):
                found = shapes.compute_output_spec(self.compute_mask, inputs, previous)
            else:
                found = self.compute_mask(inputs, previous)
            masks = weft.tree.leaves(found, is_leaf=lambda leaf: leaf is None)
            if len(masks) != len(results):
                masks = [found] * len(results) if found is not None and is_tensor(found) else []
            for result, mask in zip(results, masks, strict=False):
                if mask is not None and is_tensor(result):
                    set_keras_mask(result, mask)
        elif masked and not shapes.in_symbolic_trace():
            warnings.warn(
                f"Layer {self.name} ({type(self).__name__}) does not pass masks on: its result has none.", stacklevel=4
            )

    @property
    def supports_masking(self) -> bool:
        """Whether results have masks, by `compute_mask`. A layer sets it, or its class says so."""
        return self._supports_masking

    @supports_masking.setter
    def supports_masking(self, value: bool) -> None:
        self._supports_masking = value

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the outputs; by default the mask of the inputs.

        Args:
            inputs: the first argument of the call.
            previous_mask: its mask or masks.
        """
        return previous_mask

    def _regularize_activity(self, outputs: Any) -> None:
        for output in weft.tree.leaves(outputs):
            if is_tensor(output):
                loss = self.activity_regularizer(output)
                # An empty batch has a loss of 0, not 0 / 0.
                self.add_loss(loss / output.shape[0] if output.ndim and output.shape[0] != 0 else loss)

    def stateless_call(
        self,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Call the layer with values in place of its variables; they stay as they are.

        Args:
            trainable_variables: values for `layer.trainable_variables`.
            non_trainable_variables: values for `layer.non_trainable_variables`.
            *args: arguments of the call.
            return_losses: whether to return the losses too.
            **kwargs: arguments of the call.

        Returns:
            The result, the new values of the variables that are not trainable, and the list of losses if asked for.

        Example:
            >>> import weft
            >>> from weft import keras
            >>> layer = keras.layers.Dense(2)
            >>> layer.build((None, 3))
            >>> x = weft.numpy.ones((4, 3))
            >>> values = [v.value for v in layer.trainable_variables]
            >>> loss = lambda values: layer.stateless_call(values, [], x)[0].sum()
            >>> [g.shape for g in weft.grad(loss)(values)]
            [(3, 2), (2,)]
        """
        if not self.built:
            raise ArgumentError(
                f"Layer {self.name} is not built, so it has no variables to set.", fix="call it, or `build`, first"
            )
        trainable, others = self.trainable_variables, self.non_trainable_variables
        for listed, values, what in (
            (trainable, trainable_variables, "trainable"),
            (others, non_trainable_variables, "non-trainable"),
        ):
            if len(listed) != len(values):
                raise ArgumentError(
                    f"Layer {self.name} needs one value for each of its {len(listed)} {what} variables: "
                    f"{[v.path for v in listed]}.",
                    received=f"{len(values)} values",
                )
        pairs = [*zip(trainable, trainable_variables, strict=True), *zip(others, non_trainable_variables, strict=True)]
        with StatelessScope(pairs, writable=[*trainable, *others]) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else []
        new = [scope.get_current_value(variable) for variable in others]
        return (outputs, new, losses) if return_losses else (outputs, new)

    # ----------------------------------------------------------------------------------------------------------- shapes

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output shapes for the shapes of the arguments.

        Args:
            *args: shapes of the arguments of `call`; None is an unknown size.
            **kwargs: likewise, as `<argument>_shape`.
        """
        sizes = {name.removesuffix("_shape"): shape for name, shape in kwargs.items()}
        names = call_signature(type(self).call).names
        if list(sizes) == ["input"]:
            args, sizes = (sizes["input"],), {}
        tensors = [map_shapes(lambda shape: KerasTensor(shape, self.compute_dtype), shape) for shape in args]
        named = {
            name: map_shapes(lambda shape: KerasTensor(shape, self.compute_dtype), shape)
            for name, shape in sizes.items()
            if name in names
        }
        if not self.built:
            self._build_once(dict(zip(names, tensors, strict=False)) | named)
        return weft.tree.map(
            lambda tensor: tensor.shape, shapes.compute_output_spec(self._call_for_shapes, *tensors, **named)
        )

    def _call_for_shapes(self, *args: Any, **kwargs: Any) -> Any:
        frame = Frame(self, context.current_frame(), None, self.compute_dtype if self.autocast else None)
        with self._open_name_scope(), calling(frame):
            return self.call(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs for symbolic inputs.

        Uses `compute_output_shape` if the class defines it, with the compute dtype; else traces `call`.
        """
        if type(self).compute_output_shape is Layer.compute_output_shape:
            return shapes.compute_output_spec(self.call, *args, **kwargs)
        arguments = call_signature(type(self).call).bind(self.name, args, kwargs)
        sizes = {name: tree_shapes(value) for name, value in arguments.items() if has_tensors(value)}
        found = self.compute_output_shape(**shape_arguments(type(self).compute_output_shape, sizes, self.name))
        return map_shapes(lambda shape: KerasTensor(standardize_shape(shape), self.compute_dtype), found)

    def _trace_spec(self, input_shape: Any) -> Any:
        if is_shape(input_shape) or not isinstance(input_shape, dict):
            inputs = map_shapes(lambda shape: KerasTensor(shape, self.compute_dtype), input_shape)
        else:
            inputs = {n: map_shapes(lambda s: KerasTensor(s, self.compute_dtype), x) for n, x in input_shape.items()}
        return shapes.compute_output_spec(self._call_for_shapes, inputs)

    def count_params(self) -> int:
        """Return the total number of entries of the weights; raise an error before the layer is built."""
        if not self.built:
            raise ArgumentError(
                f"Layer {self.name} is not built, so its parameters cannot be counted.",
                fix="call it, or `build`, first",
            )
        return super().count_params()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _constructor(cls: Any) -> Callable[..., None]:
    return cls.__init__


def _is_builtin(cls: type) -> bool:
    return cls.__module__.startswith("weft.keras.")


def _config_value(value: Any) -> Any:
    """Serialize an argument like Keras: functions of Weft by their names."""
    if inspect.isfunction(value) and registry.public_name(value) is not None:
        return value.__name__
    return registry.serialize_keras_object(value)


def _as_shape(shape: Any) -> Any:
    """Convert a shape from a file, where tuples are lists, to tuples."""
    return map_shapes(tuple, shape)


def _complete(args: tuple[Any, ...], kwargs: dict[str, Any], extra: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Add masks and `training` to `kwargs`, except those that are positional arguments already."""
    positional = set(names[: len(args)])
    return {**kwargs, **{name: value for name, value in extra.items() if name not in positional}}


def _building_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `build` method: variables get the layer's path, and the layer is marked as built afterwards."""

    @functools.wraps(method)
    def build(self: Layer, *args: Any, **kwargs: Any) -> None:
        with _building:
            if self._is_building:  # `super().build(...)`
                method(self, *args, **kwargs)
                return
            self._is_building = True
            try:
                with self._open_name_scope():
                    self._path = current_path()
                    method(self, *args, **kwargs)
            finally:
                self._is_building = False
            arguments = inspect.signature(method).bind(self, *args, **kwargs).arguments
            self._finish_build({name: value for i, (name, value) in enumerate(arguments.items()) if i})

    return build


registry.register("layers", Layer)
