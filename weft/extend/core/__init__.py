"""Jaxprs and primitives under the names of `jax.extend.core`."""

from weft.base.publish import publish as _publish
from weft.extend.core import primitives

__all__ = ["primitives"]

_publish(__name__)
