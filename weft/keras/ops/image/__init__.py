"""Operations on images."""

from weft.errors import publish as _publish

__all__ = []

_publish(__name__)
