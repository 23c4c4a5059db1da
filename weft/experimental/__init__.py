"""Modules that JAX has under `jax.experimental`."""

from weft.base.publish import publish as _publish
from weft.experimental import multihost_utils

__all__ = ["multihost_utils"]

_publish(__name__)
