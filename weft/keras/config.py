"""Settings of `weft.keras`."""

from weft.errors import publish as _publish
from weft.keras.core.config import (
    backend,
    disable_flash_attention,
    disable_interactive_logging,
    disable_traceback_filtering,
    enable_flash_attention,
    enable_interactive_logging,
    enable_traceback_filtering,
    enable_unsafe_deserialization,
    epsilon,
    floatx,
    image_data_format,
    is_flash_attention_enabled,
    is_interactive_logging_enabled,
    is_nnx_enabled,
    is_traceback_filtering_enabled,
    max_epochs,
    max_steps_per_epoch,
    set_backend,
    set_epsilon,
    set_floatx,
    set_image_data_format,
    set_max_epochs,
    set_max_steps_per_epoch,
)
from weft.keras.core.policy import (
    dtype_policy,
    set_dtype_policy,
)

__all__ = [
    "backend",
    "disable_flash_attention",
    "disable_interactive_logging",
    "disable_traceback_filtering",
    "dtype_policy",
    "enable_flash_attention",
    "enable_interactive_logging",
    "enable_traceback_filtering",
    "enable_unsafe_deserialization",
    "epsilon",
    "floatx",
    "image_data_format",
    "is_flash_attention_enabled",
    "is_interactive_logging_enabled",
    "is_nnx_enabled",
    "is_traceback_filtering_enabled",
    "max_epochs",
    "max_steps_per_epoch",
    "set_backend",
    "set_dtype_policy",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "set_max_epochs",
    "set_max_steps_per_epoch",
]

_publish(__name__)
