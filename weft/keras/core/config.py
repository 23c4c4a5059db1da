"""Settings of `weft.keras`: the default dtype, epsilon, the order of image axes, and what interaction looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError

DATA_FORMATS = ("channels_last", "channels_first")
_FLOATS = ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_DTYPES = frozenset((*_FLOATS, *_INTEGERS, "bool", "string", "complex64", "complex128", "int4", "uint4"))
_PYTHON_TYPES = {bool: "bool", int: "int32", str: "string"}


@dataclass
class Settings:
    """The present settings."""

    floatx: str = "float32"
    epsilon: float = 1e-7
    image_data_format: str = "channels_last"
    interactive_logging: bool = True
    traceback_filtering: bool = True
    flash_attention: bool | None = None
    max_epochs: int | None = None
    max_steps_per_epoch: int | None = None
    safe_mode: bool = True


settings = Settings()


def floatx() -> str:
    """Return the default float dtype, "float32" unless `set_floatx` was called.

    Returns:
        The name of the dtype.

    Example:
        >>> from weft import keras
        >>> keras.backend.floatx()
        'float32'
    """
    return settings.floatx


def set_floatx(value: str) -> None:
    """Set the default dtype of floats: "bfloat16", "float16", "float32" or "float64"."""
    if value not in ("bfloat16", "float16", "float32", "float64"):
        raise ArgumentError(
            "floatx must be one of 'bfloat16', 'float16', 'float32' and 'float64'.", received=f"value={value!r}"
        )
    settings.floatx = value


def epsilon() -> float:
    """Return the small value that keeps logarithms and divisions finite, 1e-7 unless `set_epsilon` was called.

    Example:
        >>> from weft import keras
        >>> keras.backend.epsilon()
        1e-07
    """
    return settings.epsilon


def set_epsilon(value: float) -> None:
    """Set the small value that keeps logarithms and divisions finite."""
    settings.epsilon = float(value)


def image_data_format() -> str:
    """Return the default position of image channels: "channels_last" or "channels_first".

    Example:
        >>> from weft import keras
        >>> keras.backend.image_data_format()
        'channels_last'
    """
    return settings.image_data_format


def set_image_data_format(data_format: str) -> None:
    """Set where the channels of images are: "channels_last" (rows, columns, channels) or "channels_first".

    Example:
        >>> from weft import keras
        >>> keras.backend.set_image_data_format("channels_last")
    """
    settings.image_data_format = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """Return `data_format` in lower case, or the setting if it is None."""
    if data_format is None:
        return settings.image_data_format
    lowered = str(data_format).lower()
    if lowered not in DATA_FORMATS:
        raise ArgumentError(f"data_format must be one of {DATA_FORMATS}.", received=f"data_format={data_format!r}")
    return lowered


def backend() -> str:
    """Return the name of the backend, "weft", which is one for all devices.

    Example:
        >>> from weft import keras
        >>> keras.backend.backend()
        'weft'
    """
    return "weft"


def set_backend(backend: str) -> None:
    """Accept "weft" only: the devices of an array determine where it is computed."""
    if backend != "weft":
        raise ArgumentError("The backend must be 'weft': weft.keras has no other.", received=f"backend={backend!r}")


def version() -> str:
    """Return the version of Keras whose names, files and numbers this package follows.

    Example:
        >>> from weft import keras
        >>> keras.version()
        '3.15.1'
    """
    return "3.15.1"


def standardize_dtype(dtype: Any) -> str:
    """Return the name of a dtype, from a name, a NumPy or Weft dtype, a Python type, or None for `floatx()`.

    Args:
        dtype: what names or is a dtype.

    Returns:
        A name, such as "float32", "int32" or "bool".

    Example:
        >>> from weft import keras
        >>> import numpy as np
        >>> keras.backend.standardize_dtype(np.int8), keras.backend.standardize_dtype(None)
        ('int8', 'float32')
    """
    if dtype is None:
        return settings.floatx
    if isinstance(dtype, str) and dtype in _DTYPES:
        return dtype
    # A dtype of NumPy equals its other names too: that of float64 equals "float".
    if dtype is float or (isinstance(dtype, str) and dtype == "float"):
        return settings.floatx
    if isinstance(dtype, str) and dtype == "int":
        return "int32"
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    # A dtype of torch or TensorFlow prints with the name of its library.
    text = str(dtype).rpartition(".")[2] if hasattr(dtype, "__class__") and "." in str(dtype) else None
    if text in _DTYPES:
        return text
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = getattr(dtype, "name", "")
    if name not in _DTYPES:
        raise ArgumentError("This is not a dtype that arrays of Weft have.", received=f"dtype={dtype!r}")
    return name


def is_float_dtype(dtype: Any) -> bool:
    """Return whether a dtype is a floating-point dtype, including those of 16 and 8 bits."""
    return standardize_dtype(dtype) in _FLOATS


def is_int_dtype(dtype: Any) -> bool:
    """Return whether a dtype is an integer dtype, signed or unsigned."""
    return standardize_dtype(dtype) in _INTEGERS


def result_type(*dtypes: Any) -> str:
    """Return the result dtype of an operation on operands of these dtypes.

    Args:
        *dtypes: dtypes; the Python types `int` and `float` are weak: they take the dtype of the other operand where it
            is of their kind.

    Returns:
        The name of the dtype.

    Example:
        >>> from weft import keras
        >>> keras.backend.result_type("int32", "float16"), keras.backend.result_type("int8", int)
        ('float16', 'int8')
    """
    if not dtypes:
        return settings.floatx
    operands: list[Any] = []
    for dtype in dtypes:
        if dtype is int or dtype is float:
            operands.append(dtype(0))
        else:
            name = standardize_dtype(dtype)
            operands.append(getattr(ml_dtypes, name, None) or np.dtype(name))
    return standardize_dtype(wnp.result_type(*operands))


def enable_interactive_logging() -> None:
    """Print progress to the terminal (the default)."""
    settings.interactive_logging = True


def disable_interactive_logging() -> None:
    """Log progress by `logging` instead of printing it to the terminal."""
    settings.interactive_logging = False


def is_interactive_logging_enabled() -> bool:
    """Return whether progress is printed to the terminal."""
    return settings.interactive_logging


def enable_traceback_filtering() -> None:
    """Leave the frames of Weft out of tracebacks (the default)."""
    settings.traceback_filtering = True


def disable_traceback_filtering() -> None:
    """Show the frames of Weft in tracebacks."""
    settings.traceback_filtering = False


def is_traceback_filtering_enabled() -> bool:
    """Return whether the frames of Weft are hidden in tracebacks."""
    return settings.traceback_filtering


def enable_flash_attention() -> None:
    """Ask for the fused form of attention."""
    settings.flash_attention = True


def disable_flash_attention() -> None:
    """Do not use the fused form of attention."""
    settings.flash_attention = False


def is_flash_attention_enabled() -> bool | None:
    """Return whether the fused form of attention is enabled; None if it was never set."""
    return settings.flash_attention


def max_epochs() -> int | None:
    """Return the maximum number of epochs that `fit` runs; None is no limit."""
    return settings.max_epochs


def set_max_epochs(max_epochs: int | None) -> None:
    """Limit the epochs of every `fit`."""
    settings.max_epochs = max_epochs


def max_steps_per_epoch() -> int | None:
    """Return the maximum number of steps that an epoch of `fit`, `evaluate` and `predict` runs; None is no limit."""
    return settings.max_steps_per_epoch


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limit the steps of every epoch."""
    settings.max_steps_per_epoch = max_steps_per_epoch


def is_nnx_enabled() -> bool:
    """Return False: layers are not modules of Flax."""
    return False


def enable_unsafe_deserialization() -> None:
    """Accept files that contain Python code (lambdas). Only for files whose author you trust."""
    settings.safe_mode = False
