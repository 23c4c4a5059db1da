"""`pjit`, the older name of `jit` with shardings."""

from __future__ import annotations

from weft.api.jit import jit as pjit
from weft.base.publish import publish as _publish

__all__ = ["pjit"]

_publish(__name__)
