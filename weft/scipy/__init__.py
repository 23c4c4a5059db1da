"""SciPy on arrays that can be traced, differentiated and vectorised."""

from weft.base.publish import publish as _publish
from weft.scipy import linalg

_publish(__name__)
