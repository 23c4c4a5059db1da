"""Types for annotations: what functions take as an array, and as a dtype."""

from weft.base.publish import suggest as _suggest
from weft.trace.annotations import ArrayLike as ArrayLike, DTypeLike as DTypeLike, Shape as Shape

_suggest(__name__)
