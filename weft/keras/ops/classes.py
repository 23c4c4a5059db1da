"""Operations as the classes that files of functional models name: `Sum` with the config `{"axis": 1}` for `ops.sum`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, ClassVar

from weft.errors import ArgumentError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.registry import register
from weft.keras.graph.operation import Operation, output_spec
from weft.keras.graph.tensor import any_symbolic

# Parameters that are arguments of a node; the others are options, in the config of the operation.
_NAMES_OF_OPERANDS = """
a abs_ angle array b beta bias bins choicelist condition condlist constant_values coordinates data default
depthwise_kernel end_points gamma image1 image2 images indices inputs kernel key mask operands output output_length
output_shape pattern pointwise_kernel predictions q query segment_ids sequence_lengths sorted_sequence start
start_indices start_points step stop target target_length targets tensor transform translation updates value values
variable volumes weights x x1 x2 xs y
"""
_OPERANDS = frozenset(_NAMES_OF_OPERANDS.split())
# Where that is otherwise.
_OPERANDS_OF = {
    "batch_normalization": ("x", "mean", "variance", "offset", "scale"),
    "associative_scan": ("f", "elems"),
    "bincount": ("x",),
    "dot_product_attention": ("query", "key", "value", "bias", "mask", "scale"),
    "fori_loop": ("init_val",),
    "full": ("fill_value",),
    "full_like": ("x", "fill_value"),
    "histogram": ("x",),
    "jvp": ("fun", "primals", "tangents"),
    "isclose": ("x1", "x2", "rtol", "atol"),
    "map": ("f", "xs"),
    "rms_normalization": ("x", "scale"),
    "scan": ("f", "init", "xs"),
    "scale_and_translate": ("images", "output_shape", "scale", "translation"),
    "squareplus": ("x",),
    "trapezoid": ("y",),
    "vectorized_map": ("function", "elements"),
    "while_loop": ("loop_vars",),
}
# Those whose nodes have all operands, None for those that are left out.
_COMPLETE = ("batch_normalization", "layer_normalization", "rms_normalization")
# Classes whose names are not the function's in camel case.
_NAMES = {
    "allclose": "AllClose",
    "batch_normalization": "BatchNorm",
    "cdist": "CDist",
    "ctc_decode": "CTCDecode",
    "ctc_loss": "CTCLoss",
    "fft": "FFT",
    "fft2": "FFT2",
    "hsv_to_rgb": "HSVToRGB",
    "ifft2": "IFFT2",
    "irfft": "IRFFT",
    "isin": "IsIn",
    "istft": "ISTFT",
    "layer_normalization": "LayerNorm",
    "psnr": "PSNR",
    "rfft": "RFFT",
    "rgb_to_grayscale": "RGBToGrayscale",
    "rgb_to_hsv": "RGBToHSV",
    "rms_normalization": "RMSNorm",
    "searchsorted": "SearchSorted",
    "ssim": "SSIM",
    "stft": "STFT",
    "svd": "SVD",
}
# What is several operations in Keras.
_WITHOUT = ("extract_patches_3d",)

classes: dict[Any, type[NamedOperation]] = {}  # by function


class NamedOperation(Operation):
    """An operation with options. Its subclasses are made by `define`.

    Args:
        *args: the arguments of the function that are not arguments of a node, in order.
        name: its name in a graph.
        **options: such arguments by name.
    """

    function: ClassVar[Any]
    home: ClassVar[str]
    parameters: ClassVar[tuple[inspect.Parameter, ...]]
    operands: ClassVar[tuple[str, ...]]

    def __init__(self, *args: Any, name: str | None = None, **options: Any) -> None:
        names = [p.name for p in self.parameters if p.name not in self.operands]
        if len(args) > len(names):
            raise ArgumentError(
                f"{type(self).__name__} takes at most the options {', '.join(names)}.", received=f"{args}"
            )
        self.options = {**dict(zip(names, args, strict=False)), **options}
        self._init_arguments = ((), {**self.options, "name": name})
        super().__init__(name)

    def __getattr__(self, name: str) -> Any:
        # Options are attributes too.
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> NamedOperation:
        """Construct an operation from a config. It may contain, as None, options that the function does not have."""
        accepted = {"name", *(parameter.name for parameter in cls.parameters)}
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in cls.parameters)
        config = {key: value for key, value in config.items() if takes_all or key in accepted or value is not None}
        return super().from_config(config)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._apply(type(self).function, args, kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return symbolic outputs, without a history, for symbolic inputs."""
        known = self._apply(output_spec(type(self).function), args, kwargs)
        return super().compute_output_spec(*args, **kwargs) if known is None else known

    def _apply(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > len(self.operands) and all(p.kind is not p.VAR_POSITIONAL for p in self.parameters):
            raise ArgumentError(
                f"{type(self).__name__} takes only {', '.join(self.operands)}.", received=f"{len(args)} arguments"
            )
        several = next((i for i, p in enumerate(self.parameters) if p.kind is p.VAR_POSITIONAL), None)
        if several is None:
            return function(**dict(zip(self.operands, args, strict=False)), **kwargs, **self.options)
        options = dict(self.options)
        before = [options.pop(parameter.name) for parameter in self.parameters[:several]]
        return function(*before, *args, **kwargs, **options)


def _operands(name: str, parameters: Iterable[inspect.Parameter]) -> tuple[str, ...]:
    return _OPERANDS_OF.get(name) or tuple(p.name for p in parameters if p.name in _OPERANDS)


def define(module: str, functions: Iterable[Any]) -> None:
    """Define the classes of operations that files have in a module of Keras, and enter them in the table.

    Args:
        module: the module.
        functions: public operations.
    """
    for function in functions:
        if function in classes or function.__name__ in _WITHOUT:
            continue
        own = function.__name__
        parameters = tuple(inspect.signature(function).parameters.values())
        members = {
            "__doc__": f"`weft.keras.ops.{own}` in a graph.",
            "__module__": __name__,
            "function": staticmethod(function),
            "home": module,
            "parameters": parameters,
            "operands": _operands(own, parameters),
        }
        name = _NAMES.get(own) or "".join(part.capitalize() for part in own.split("_"))
        classes[function] = type(name, (NamedOperation,), members)
        register("ops", classes[function], module=module)


def record(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of an operation that has a class; NotImplemented if its options have symbolic tensors."""
    cls = classes[function]
    bound = inspect.signature(function).bind(*args, **kwargs)
    if function.__name__ in _COMPLETE:
        bound.arguments = {**dict.fromkeys(cls.operands), **bound.arguments}
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = next(parameter.kind for parameter in cls.parameters if parameter.name == name)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif name not in cls.operands:
            options[name] = value
        elif cls.operands.index(name) == len(arguments):
            arguments.append(value)
        else:
            named[name] = value
    if any_symbolic(options):
        return NotImplemented
    # Classes of Keras have neither a setting for the default nor single sizes here.
    for parameter in cls.parameters:
        if parameter.name == "data_format":
            options["data_format"] = standardize_data_format(options.get("data_format", parameter.default))
    if isinstance(options.get("newshape"), int):
        options["newshape"] = (options["newshape"],)
    return cls(**options).symbolic_call(*arguments, **named)
