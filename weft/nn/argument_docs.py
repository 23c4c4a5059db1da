"""What arguments mean that many functions of `weft.nn` take: see `weft/base/docstrings.py`."""

from weft.base.docstrings import Documenter

document = Documenter(
    {
        "axis": "an axis or several.",
        "batch_axis": "axes that count as neither.",
        "dtype": "the dtype, unless the call names one; float32 by default.",
        "in_axis": "the axis or axes of inputs, in the shape.",
        "out_axis": "the axis or axes of outputs.",
        "where": "booleans that broadcast with the array.",
        "x": "an array or a number; integers are converted to floats.",
    },
    {
        "wnp.": "import weft.numpy as wnp",
        "nn.": "from weft import nn",
    },
)
