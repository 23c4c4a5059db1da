"""Looking at values while a program runs: print, callback, breakpoint."""

from weft.api.callbacks import breakpoint
from weft.api.callbacks import debug_callback as callback
from weft.api.callbacks import debug_print as print

__all__ = ["breakpoint", "callback", "print"]
