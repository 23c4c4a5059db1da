"""What arguments mean that many functions of `weft.random` take: see `weft/base/docstrings.py`."""

from weft.base.docstrings import Documenter

document = Documenter(
    {
        "dtype": "a floating-point dtype; float32 by default.",
        "key": "a random key. Use each key once: `split` makes new ones.",
        "shape": "the shape of the result.",
    },
    {
        "random.": "from weft import random",
    },
)
