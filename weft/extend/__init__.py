"""What programs that extend Weft use, under the names of `jax.extend`."""

from weft.base.publish import publish as _publish
from weft.extend import backend, core, ifrt_programs, linear_util, random, source_info_util

__all__ = ["backend", "core", "ifrt_programs", "linear_util", "random", "source_info_util"]

_publish(__name__)
