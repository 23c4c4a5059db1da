"""The stages of a jitted function."""

from weft.api.stages import ArgInfo, Compiled, Lowered, Traced
from weft.base.publish import publish as _publish

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced"]

_publish(__name__)
