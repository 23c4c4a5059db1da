"""Numbers of elements of arrays, as expressions over sizes that C++ and JavaScript understand."""

from __future__ import annotations

import math
import re

from weft.export.libraries.signature import Tensor

_SIMPLE = re.compile(r"[\w\s()*+-]+", re.ASCII)


def count_text(tensor: Tensor, empty: str = "0") -> str | None:
    """Return the number of elements as a text, such as `b * 3`; None where a size is no polynomial."""
    numbers = [size for size in tensor.shape if isinstance(size, int)]
    texts = [size for size in tensor.shape if isinstance(size, str)]
    if not all(_SIMPLE.fullmatch(text) and "**" not in text and "(" not in text for text in texts):
        return None
    return " * ".join([*(f"({text})" for text in texts), str(math.prod(numbers))]) or empty
