"""Looking at values while a program runs: print, callback, breakpoint."""

from weft.api.callbacks import breakpoint, debug_callback as callback, debug_print as print

__all__ = ["breakpoint", "callback", "print"]
