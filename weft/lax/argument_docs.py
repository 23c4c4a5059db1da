"""What arguments mean that many functions of `weft.lax` take: see `weft/base/docstrings.py`."""

from weft.base.docstrings import Documenter

document = Documenter(
    {
        "accuracy": "accepted for compatibility.",
        "allow_negative_indices": "whether negative indices count from the end; False saves work if there are none.",
        "axis": "the axis.",
        "axis_index_groups": "lists of positions along the axis, which are reduced apart.",
        "axis_name": "the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.",
        "dtype": "the dtype.",
        "operand": "an array.",
        "out_sharding": "the sharding of the result; by default it follows from the operands.",
        "shape": "the sizes.",
        "x": "an array or a number.",
        "y": "an array or a number of the same dtype and shape (a scalar broadcasts).",
    },
    {
        "wnp.": "import weft.numpy as wnp",
        "lax.": "from weft import lax",
    },
)
