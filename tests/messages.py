"""Messages of errors, as tests compare them."""

from __future__ import annotations

import re


def without_source(error: BaseException) -> str:
    """Return the text of an error without the source line in it: rows of tables have a call and the words of its error
    in one line, in which any words would be found."""
    return re.sub(r"^(  at +\S+:\d+):.*$", r"\1", str(error), flags=re.MULTILINE)
