"""A layer that contracts its inputs with a kernel, as an equation says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import activations, constraints, initializers, regularizers
from weft.keras.core.spec import InputSpec
from weft.keras.core.variable import Variable
from weft.keras.layers.core.lora import LINEAR, LowRankLayer


class EinsumDense(LowRankLayer):
    """`activation(einsum(equation, inputs, kernel) + bias)`.

    Args:
        equation: of an einsum of the inputs and the kernel, such as "abc,cd->abd" or "...x,xy->...y".
        output_shape: the shape of the result, without the batch and the axes that "..." is for; None is taken from the
            inputs.
        activation: a function, or its name; none where None.
        bias_axes: the letters of the result's axes that the bias has; None for no bias.
        kernel_initializer: of the kernel.
        bias_initializer: of the bias.
        kernel_regularizer: a function of the kernel that is added to the loss.
        bias_regularizer: likewise of the bias.
        kernel_constraint: a function that is applied to the kernel after an update.
        bias_constraint: likewise to the bias.
        lora_rank: where not None, the kernel is frozen and a product of this rank is trained.
        lora_alpha: the scale of the product is `lora_alpha / lora_rank`.
        gptq_unpacked_column_size: None; layers of Weft are not quantized.
        quantization_config: None; likewise.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`.

    Example:
        >>> from weft import keras
        >>> layer = keras.layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d")
        >>> layer(keras.ops.ones((2, 5, 4))).shape
        (2, 5, 6)
    """

    def __init__(
        self,
        equation: str,
        output_shape: int | Sequence[int | None],
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        gptq_unpacked_column_size: int | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.equation = equation
        self.partial_output_shape = (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
        self.bias_axes = bias_axes
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.gptq_unpacked_column_size = None
        self._set_low_rank(lora_rank, lora_alpha, quantization_config or gptq_unpacked_column_size)
        self.bias: Variable | None = None

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the kernel and the bias.

        Args:
            input_shape: the shape of the inputs.
        """
        shapes = EinsumShapes(self.equation, self.bias_axes, input_shape, self.partial_output_shape)
        self.input_spec = InputSpec(ndim=len(input_shape))
        initializer = self.kernel_initializer
        if getattr(initializer, "input_axes", 0) is None or getattr(initializer, "output_axes", 0) is None:
            # Fans are those of the equation; the seed stays that of the initializer.
            config = {**initializer.get_config(), "seed": initializer.seed}
            axes = {"input_axes": shapes.input_axes, "output_axes": shapes.output_axes}
            initializer = type(initializer).from_config({**config, **axes})
        self._kernel = self.add_weight(
            name="kernel",
            shape=shapes.kernel,
            initializer=initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if shapes.bias is not None:
            self.bias = self.add_weight(
                name="bias",
                shape=shapes.bias,
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self._build_low_rank()

    @property
    def kernel(self) -> Any:
        """The second operand: a variable, or with a low-rank update its value."""
        return self._full_kernel() if self.lora_enabled else self._kernel

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Apply the layer to the inputs."""
        outputs = wnp.einsum(self.equation, inputs, self._full_kernel())
        if self.bias is not None:
            outputs = outputs + self.bias.value
        return outputs if self.activation in (None, LINEAR) else self.activation(outputs)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the output shape for an input shape."""
        return EinsumShapes(self.equation, self.bias_axes, input_shape, self.partial_output_shape).output


class EinsumShapes:
    """Shapes of the kernel, the bias and the result, from an equation."""

    def __init__(
        self,
        equation: str,
        bias_axes: str | None,
        input_shape: Sequence[int | None],
        output_shape: Sequence[int | None],
    ) -> None:
        found = re.fullmatch(r"(\.\.\.)?([a-zA-Z]+)(\.\.\.)?,([a-zA-Z]+)->(\.\.\.)?([a-zA-Z]+)(\.\.\.)?", equation)
        dots = found and (bool(found[1]), bool(found[3]), bool(found[5]), bool(found[7]))
        if found is None or dots not in ((False,) * 4, (True, False, True, False), (False, True, False, True)):
            raise ArgumentError(
                "The equation must have the form `ab,bc->ac`, `...b,bc->...c` or `ab...,bc->ac...`.",
                received=f"equation={equation!r}",
            )
        inputs, kernel, outputs = found[2], found[4], found[6]
        left = bool(found[1])
        elided = len(input_shape) - len(inputs)
        if elided < 0 or (elided and not (left or found[3])):
            raise ArgumentError(
                f"The inputs of the equation {equation} must have {len(inputs)} axes.",
                received=f"shape {tuple(input_shape)}",
            )
        self.output = self._output_shape(tuple(input_shape), tuple(output_shape), elided, left, len(outputs))
        start = elided if left else 0
        self.sizes_in = {letter: input_shape[start + i] for i, letter in enumerate(inputs)}
        self.sizes_out = {letter: self.output[start + i] for i, letter in enumerate(outputs)}
        for i, letter in enumerate(outputs):
            if self.sizes_out[letter] is None and letter in self.sizes_in:
                self.sizes_out[letter] = self.sizes_in[letter]
                at = start + i
                self.output = (*self.output[:at], self.sizes_in[letter], *self.output[at + 1 :])
        for letter, size in self.sizes_in.items():
            if self.sizes_out.get(letter) not in (None, size):
                raise ArgumentError(
                    f"The axis {letter} of {equation} must have size {size}, as in the inputs.",
                    received=f"output_shape={tuple(output_shape)}, with {self.sizes_out[letter]} there",
                )
        unknown = [letter for letter in outputs if letter not in inputs and letter not in kernel]
        unknown += [letter for letter in kernel if letter not in inputs and letter not in outputs]
        unknown += [letter for letter in bias_axes or "" if letter not in outputs]
        if unknown:
            raise ArgumentError(
                f"The letters {', '.join(unknown)} of {equation} (bias {bias_axes!r}) have no size: an axis of the "
                "result comes from the inputs or the kernel, one of the kernel from the inputs or the result, one of "
                "the bias from the result."
            )
        self.output_axes = [i for i, letter in enumerate(kernel) if letter in self.sizes_out]
        self.input_axes = [i for i, letter in enumerate(kernel) if letter not in self.sizes_out]
        self.kernel = tuple(self._size(letter, equation) for letter in kernel)
        self.bias = self._bias_shape(outputs, bias_axes, 0 if left else elided, equation)

    @staticmethod
    def _output_shape(
        inputs: tuple[int | None, ...], partial: tuple[int | None, ...], elided: int, left: bool, letters: int
    ) -> tuple[int | None, ...]:
        if left:
            found = (*inputs[: max(elided, 1)], *partial)
        else:
            found = (inputs[0], *partial, *inputs[len(inputs) - elided :])
        if len(found) != letters + elided:
            raise ArgumentError(
                f"The result must have {letters + elided} axes, including the batch.",
                received=f"output_shape={partial}",
            )
        return found

    def _size(self, letter: str, equation: str) -> int:
        size = self.sizes_out[letter] if letter in self.sizes_out else self.sizes_in[letter]
        if size is None:
            raise ArgumentError(f"The size of the axis {letter} of the kernel in {equation} is not known.")
        return size

    def _bias_shape(self, outputs: str, axes: str | None, after: int, equation: str) -> tuple[int, ...] | None:
        if axes is None:
            return None
        letters = outputs[min(outputs.index(letter) for letter in axes) :]
        return (*(self._size(letter, equation) if letter in axes else 1 for letter in letters), *(1,) * after)
