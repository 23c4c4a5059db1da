"""Stages of a jitted function."""

from weft.api.stages import (
    ArgInfo as ArgInfo,
    Compiled as Compiled,
    CompilerOptions as CompilerOptions,
    Lowered as Lowered,
    Stage as Stage,
    Traced as Traced,
    Wrapped as Wrapped,
)
from weft.base.publish import publish as _publish

_publish(__name__)
