"""Rematerialisation: `checkpoint`, names for policies, and what reverse mode keeps."""

from weft import checkpoint_policies
from weft.api.remat import (
    Offloadable,
    Recompute,
    Saveable,
    checkpoint,
    checkpoint_name,
    print_saved_residuals,
    remat,
    saved_residuals,
)
from weft.base.publish import publish as _publish

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
    "saved_residuals",
]

_publish(__name__)
