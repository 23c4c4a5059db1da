"""Geometry of space."""

from weft.base.publish import publish as _publish
from weft.scipy.spatial import transform as transform

_publish(__name__)
