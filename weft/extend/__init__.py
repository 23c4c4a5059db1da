"""What programs that extend Weft use, under the names of `jax.extend`."""

from weft.base.publish import publish as _publish
from weft.extend import core

__all__ = ["core"]

_publish(__name__)
