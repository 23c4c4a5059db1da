"""`pjit`, the older name of `jit` with shardings."""

from __future__ import annotations

from weft.api.jit import jit as _jit
from weft.base.publish import publish as _publish

pjit = _jit

_publish(__name__)
