"""What normalization layers share: gamma and beta."""

from __future__ import annotations

from typing import Any

from weft.keras.layers.arguments import ConfiguredLayer, check_axes
from weft.keras.numerics.shapes import Shape


class NormalizationLayer(ConfiguredLayer):
    """A layer whose result has the shape of its input, with a scale `gamma` and an offset `beta` along an axis."""

    gamma: Any = None
    beta: Any = None
    axis: Any

    def _add_scale_and_offset(
        self, shape: tuple[int, ...], scale: bool | None = None, center: bool | None = None
    ) -> None:
        """Make gamma and beta, where `scale` and `center` (by default the layer's) say so; they stay in their dtype."""
        scale, center = self.scale if scale is None else scale, self.center if center is None else center
        for name, wanted in (("gamma", scale), ("beta", center)):
            variable = None
            if wanted:
                variable = self.add_weight(
                    name=name,
                    shape=shape,
                    initializer=getattr(self, f"{name}_initializer"),
                    regularizer=getattr(self, f"{name}_regularizer"),
                    constraint=getattr(self, f"{name}_constraint"),
                    trainable=True,
                    autocast=False,
                )
            setattr(self, name, variable)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the input shape unchanged."""
        check_axes(self.axis, input_shape, self)
        return tuple(input_shape)


def value_or_none(variable: Any) -> Any:
    """Return the value of a variable, or None if it is absent."""
    return None if variable is None else variable.value
