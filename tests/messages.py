"""Messages of errors, as tests compare them."""

from __future__ import annotations

import re


def without_source(error: BaseException) -> str:
    """The text of an error, with file and line but without what is written there: where a row of a table has a call
    and the words of its error in one line, any words would be found."""
    return re.sub(r"^(  at +\S+:\d+):.*$", r"\1", str(error), flags=re.MULTILINE)
