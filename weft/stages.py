"""The stages of a jitted function."""

from weft.api.stages import ArgInfo, Compiled, CompilerOptions, Lowered, Stage, Traced, Wrapped
from weft.base.publish import publish as _publish

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Stage", "Traced", "Wrapped"]

_publish(__name__)
