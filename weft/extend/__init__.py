"""Interfaces for programs that extend Weft, under the names of `jax.extend`."""

from weft.base.publish import publish as _publish
from weft.extend import (
    backend as backend,
    core as core,
    ifrt_programs as ifrt_programs,
    linear_util as linear_util,
    random as random,
    source_info_util as source_info_util,
)

_publish(__name__)
