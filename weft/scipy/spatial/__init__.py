"""Geometry of space."""

from weft.base.publish import publish as _publish
from weft.scipy.spatial import transform

__all__ = ["transform"]

_publish(__name__)
