"""Numbers of elements of arrays, as expressions over sizes that C++ and JavaScript understand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from weft.export.libraries.signature import Tensor

_SIMPLE = re.compile(r"[\w\s()*+-]+", re.ASCII)


def count_text(tensor: Tensor, names: Mapping[str, str] | None = None) -> str | None:
    """Return the number of elements as a text, such as `b * 3`; None where a size is no polynomial. `names` has the
    names that sizes have there."""
    numbers = [size for size in tensor.shape if isinstance(size, int)]
    texts = [size for size in tensor.shape if isinstance(size, str)]
    if not all(_SIMPLE.fullmatch(text) and "**" not in text and "(" not in text for text in texts):
        return None
    for old, new in (names or {}).items():
        texts = [re.sub(rf"\b{old}\b", new, text) for text in texts]
    return " * ".join([*(f"({text})" for text in texts), str(math.prod(numbers))])
