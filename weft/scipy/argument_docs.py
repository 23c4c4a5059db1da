"""What arguments mean that many functions of `weft.scipy` take: see `weft/base/docstrings.py`."""

from weft.base.docstrings import Documenter

document = Documenter(
    {
        "a": "square matrices of shape (..., n, n).",
        "b": "right-hand sides, of shape (n,) or (..., n, k).",
        "check_finite": "accepted for compatibility; what is not finite stays so.",
        "lower": "whether the lower triangle is used; the upper one by default.",
        "overwrite_a": "accepted for compatibility; arrays do not change.",
        "overwrite_b": "accepted for compatibility; arrays do not change.",
        "x": "an array or a number; real.",
    },
    {
        "wnp.": "import weft.numpy as wnp",
        "special.": "from weft.scipy import special",
    },
)
