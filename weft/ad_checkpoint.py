"""Rematerialisation: `checkpoint`, names for policies, and what reverse mode keeps."""

from weft import checkpoint_policies as checkpoint_policies
from weft.api.remat import (
    Offloadable as Offloadable,
    Recompute as Recompute,
    Saveable as Saveable,
    checkpoint as checkpoint,
    checkpoint_name as checkpoint_name,
    print_saved_residuals as print_saved_residuals,
    remat as remat,
    saved_residuals as saved_residuals,
)
from weft.base.publish import publish as _publish

_publish(__name__)
