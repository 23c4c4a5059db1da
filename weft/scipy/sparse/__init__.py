"""Operators that are known by what they do to vectors."""

from weft.base.publish import publish as _publish
from weft.scipy.sparse import linalg as linalg

_publish(__name__)
