"""Looking at values while a program runs: print, callback, breakpoint."""

from weft.api.callbacks import breakpoint
from weft.api.callbacks import debug_callback as callback
from weft.api.callbacks import debug_print as print
from weft.base.publish import publish as _publish

__all__ = ["breakpoint", "callback", "print"]

_publish(__name__)
