"""Initializers that draw nothing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import registry
from weft.keras.core.config import standardize_dtype
from weft.keras.initializers.base import Initializer


class Constant(Initializer):
    """One value everywhere, or a given array.

    Args:
        value: a scalar, or an array that broadcasts to the shape of the variable.

    Example:
        >>> from weft import keras
        >>> print(keras.initializers.Constant(3.0)((2,)))
        [3. 3.]
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Broadcast the value to the shape."""
        dtype = standardize_dtype(dtype)
        return wnp.broadcast_to(wnp.asarray(self.value, dtype), tuple(shape))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"value": registry.serialize_keras_object(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constant:
        """Construct an initializer from a config of `get_config`."""
        return cls(registry.deserialize_keras_object(config["value"]))


class Zeros(Initializer):
    """Zeros.

    Example:
        >>> from weft import keras
        >>> print(keras.initializers.Zeros()((2,)))
        [0. 0.]
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Create an array of zeros."""
        return wnp.zeros(tuple(shape), standardize_dtype(dtype))


class Ones(Initializer):
    """Ones.

    Example:
        >>> from weft import keras
        >>> print(keras.initializers.Ones()((2,)))
        [1. 1.]
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Create an array of ones."""
        return wnp.ones(tuple(shape), standardize_dtype(dtype))


class Identity(Initializer):
    """The identity matrix.

    Args:
        gain: the value on the diagonal.

    Example:
        >>> from weft import keras
        >>> print(keras.initializers.Identity()((2, 2)))
        [[1. 0.]
         [0. 1.]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Create an identity matrix times `gain`."""
        if len(shape) != 2:
            raise ArgumentError("The identity is for matrices only.", received=f"shape={tuple(shape)}")
        rows, columns = shape
        return wnp.eye(rows, columns, dtype=standardize_dtype(dtype)) * self.gain

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"gain": self.gain}


class STFT(Initializer):
    """Waves for a convolution that computes a short-time Fourier transform: kernels of shape (window, 1, frequencies).

    Args:
        side: "real" (cosines) or "imag" (sines).
        window: "hann", "hamming", another window of SciPy by its name (or a tuple of name and parameters), an array, or
            None for all ones.
        scaling: "density", "spectrum" or None.
        periodic: whether the window is that of a period, and not symmetric.
    """

    def __init__(
        self, side: str = "real", window: Any = "hann", scaling: str | None = "density", periodic: bool = False
    ) -> None:
        if side not in ("real", "imag"):
            raise ArgumentError("`side` must be 'real' or 'imag'.", received=f"side={side!r}")
        if scaling not in ("density", "spectrum", None):
            raise ArgumentError("`scaling` must be 'density', 'spectrum' or None.", received=f"scaling={scaling!r}")
        self.side = side
        self.window = window
        self.scaling = scaling
        self.periodic = periodic

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Compute the kernel of a Fourier transform, of shape (window, 1, frequencies)."""
        if len(shape) != 3:
            raise ArgumentError(
                "The kernel of a Fourier transform must have the shape (window, channels, frequencies).",
                received=f"shape={tuple(shape)}",
            )
        length, _, frequencies = shape
        period = max(2 * (frequencies - 1), 1)
        angles = 2 * np.pi * np.outer(np.arange(length), np.arange(frequencies)) / period
        waves = np.cos(angles) if self.side == "real" else -np.sin(angles)
        if self.window is not None:
            factors = self._factors(length)
            if self.scaling == "density":
                factors = factors / np.sqrt(np.sum(factors**2))
            elif self.scaling == "spectrum":
                factors = factors / np.sqrt(np.sum(factors) ** 2)
            waves = waves * factors[:, None]
        return wnp.asarray(np.broadcast_to(waves[:, None, :], shape), standardize_dtype(dtype))

    def _factors(self, length: int) -> np.ndarray:
        if self.window not in ("hann", "hamming") if isinstance(self.window, str) else _has_parameters(self.window):
            return _scipy_window(self.window, length, self.periodic)
        if not isinstance(self.window, str):
            return np.asarray(self.window, np.float64)
        base, amplitude = (0.5, 0.5) if self.window == "hann" else (0.54, 0.46)
        period = max(length if self.periodic else length - 1, 1)
        return base - amplitude * np.cos(2 * np.pi * np.arange(length) / period)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"side": self.side, "window": self.window, "scaling": self.scaling, "periodic": self.periodic}


def _has_parameters(window: Any) -> bool:
    """Return whether a window is a name with parameters, such as `("kaiser", 4.0)`."""
    return isinstance(window, (tuple, list)) and bool(window) and isinstance(window[0], str)


def _scipy_window(window: Any, length: int, periodic: bool) -> np.ndarray:
    try:
        signal = importlib.import_module("scipy.signal")  # only for these windows
    except ImportError as error:
        raise NotSupportedError(
            "Windows other than 'hann' and 'hamming' need SciPy.",
            received=f"window={window!r}",
            fix="pip install scipy",
        ) from error
    try:
        return signal.get_window(tuple(window) if isinstance(window, list) else window, length, periodic)
    except ValueError as error:
        raise ArgumentError(
            f"`window` must be the name of a window of SciPy, an array or None: {error}.", received=f"window={window!r}"
        ) from None
