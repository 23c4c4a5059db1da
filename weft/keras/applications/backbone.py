"""What the constructors of architectures share: their arguments, inputs and heads."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import ArgumentError, NotSupportedError
from weft.keras import activations, layers
from weft.keras.core.config import image_data_format
from weft.keras.graph.graph import source_inputs
from weft.keras.graph.tensor import KerasTensor, is_keras_tensor
from weft.keras.models.functional import Functional

Size = int | None


class Backbone:
    """The construction of one model: `image` is the input; `finish` adds the head and returns the model."""

    def __init__(
        self,
        include_top: bool,
        weights: Any,
        input_tensor: KerasTensor | None,
        input_shape: Sequence[Size] | None,
        pooling: str | None,
        classes: int,
        classifier_activation: Any,
        default_size: int,
        smallest: int = 32,
        needs_size: bool | None = None,
    ) -> None:
        _check_weights(weights)
        self.include_top = include_top
        self.weights = weights
        self.pooling = pooling
        self.classes = classes
        self.classifier_activation = classifier_activation
        if pooling not in (None, "avg", "max"):
            raise ArgumentError("`pooling` must be None, 'avg' or 'max'.", received=f"pooling={pooling!r}")
        self.first = image_data_format() == "channels_first"
        self.axis = 1 if self.first else 3
        self.input_tensor = input_tensor
        self.shape = self._input_shape(
            input_shape, default_size, smallest, include_top if needs_size is None else needs_size
        )
        if input_tensor is None:
            self.image = layers.Input(shape=self.shape)
        elif is_keras_tensor(input_tensor):
            self.image = input_tensor
        else:
            raise ArgumentError("`input_tensor` must be a KerasTensor.", received=type(input_tensor).__name__)

    def _input_shape(
        self, shape: Sequence[Size] | None, default: int, smallest: int, needs_size: bool
    ) -> tuple[Size, ...]:
        if shape is None:
            sizes: tuple[Size, Size] = (default, default) if needs_size else (None, None)
            return (3, *sizes) if self.first else (*sizes, 3)
        if len(shape) != 3:
            raise ArgumentError("`input_shape` must have three sizes.", received=f"input_shape={shape}")
        channels, sides = (shape[0], shape[1:]) if self.first else (shape[2], shape[:2])
        if channels not in (1, 3):
            warnings.warn(f"Images usually have 1 or 3 channels, and not {channels}.", stacklevel=4)
        if any(side is not None and side < smallest for side in sides):
            raise ArgumentError(
                f"Images must have at least {smallest} x {smallest} pixels.", received=f"input_shape={shape}"
            )
        if needs_size and None in shape:
            raise ArgumentError(
                "With `include_top=True` the size of images must be fixed.", received=f"input_shape={shape}"
            )
        return tuple(shape)

    @property
    def rows(self) -> Size:
        """The height of images."""
        return self.shape[1] if self.first else self.shape[0]

    def channels(self, x: KerasTensor) -> int:
        """Return the number of channels of a tensor."""
        size = x.shape[self.axis]
        assert size is not None
        return size

    def normalize(self, x: Any, name: str | None = None, **options: Any) -> Any:
        """Apply batch normalization over the channels."""
        return layers.BatchNormalization(axis=self.axis, name=name, **options)(x)

    def padding_for(self, x: KerasTensor, kernel_size: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the padding of a convolution with stride 2 that gives the windows of the trained models."""
        sides = x.shape[2:4] if self.first else x.shape[1:3]
        half = kernel_size // 2
        less = [1 if side is None else 1 - side % 2 for side in (sides if sides[0] is not None else (None, None))]
        return (half - less[0], half), (half - less[1], half)

    def pool(self, x: Any, named: bool) -> Any:
        """Apply the pooling that replaces the head."""
        if self.pooling == "avg":
            return layers.GlobalAveragePooling2D(name="avg_pool" if named else None)(x)
        if self.pooling == "max":
            return layers.GlobalMaxPooling2D(name="max_pool" if named else None)(x)
        return x

    def activation(self) -> Any:
        """Return the activation of the head; with trained weights it must be softmax or None."""
        if self.weights is not None:
            accepted = (activations.get("softmax"), activations.get(None))
            if activations.get(self.classifier_activation) not in accepted:
                raise ArgumentError(
                    "With trained weights the activation must be 'softmax' or None.",
                    received=f"classifier_activation={self.classifier_activation!r}",
                )
        return self.classifier_activation

    def head(self, x: Any, named_pooling: bool = True, **options: Any) -> Any:
        """Average pooling and a dense layer; or the pooling that was asked for."""
        if not self.include_top:
            return self.pool(x, named_pooling)
        x = layers.GlobalAveragePooling2D(name="avg_pool" if named_pooling else None)(x)
        return layers.Dense(self.classes, activation=self.activation(), name="predictions", **options)(x)

    def finish(self, x: Any, name: str | None) -> Any:
        """Construct the model; load its weights if a file was passed."""
        inputs = self.image if self.input_tensor is None else source_inputs(self.input_tensor)
        model: Any = Functional(inputs, x, name=name)
        if self.weights is not None:
            model.load_weights(self.weights)
        return model


def _check_weights(weights: Any) -> None:
    if weights is None:
        return
    if weights == "imagenet":
        raise NotSupportedError(
            "Weft does not come with trained weights.",
            received="weights='imagenet'",
            fix=["weights=None for random weights", "weights=PATH of a file of weights that you have"],
        )
    if not pathlib.Path(weights).exists():
        raise ArgumentError("`weights` must be None, or the path of an existing file.", received=f"weights={weights!r}")


def divisible(value: float, divisor: int = 8) -> int:
    """Round a number of channels to a multiple of `divisor`, but not to less than nine tenths of `value`."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def document(title: str, reference: str, preprocessing: str) -> Callable[[Any], Any]:
    """Return a decorator that sets the name of an architecture's constructor and documents its arguments."""

    def decorate(function: Any) -> Any:
        function.__name__ = function.__qualname__ = title
        function.__doc__ = f"""{title} ({reference}).

    {preprocessing}

    Args:
        include_top: whether the model ends with a classifier.
        weights: None for random weights, or the path of a file of weights.
        input_tensor: a KerasTensor to take as the image.
        input_shape: the shape of an image.
        pooling: without a classifier, "avg" or "max" for pooling over the image.
        classes: the count of classes.
        classifier_activation: the activation of the classifier; None for logits.
        name: the name of the model.

    Returns:
        A functional model whose layers have the names that they have in Keras.
    """
        return function

    return decorate
