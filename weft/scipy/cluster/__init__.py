"""Clusters of observations."""

from weft.base.publish import publish as _publish
from weft.scipy.cluster import vq as vq

_publish(__name__)
