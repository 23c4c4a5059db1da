"""What arguments mean that many functions of `weft.numpy` take: see `weft/base/docstrings.py`."""

from weft.base.docstrings import Documenter

document = Documenter(
    {
        "a": "an array.",
        "a1": "coefficients, the highest power first.",
        "a2": "coefficients, the highest power first.",
        "arr": "an array.",
        "ary": "an array.",
        "axes": "the axes; all, or the last ones if `s` is given, by default.",
        "axis": "an axis or several; None for all.",
        "b": "an array or a number.",
        "copy": "accepted for compatibility; arrays do not change, so it makes no difference.",
        "device": "a device or sharding to put the result on; by default where its operands are.",
        "dtype": "the dtype to compute in and of the result.",
        "fill_value": "the value of elements beyond the last distinct one.",
        "indices_are_sorted": "a promise that the indices come in ascending order.",
        "indices_or_sections": "the number of equal parts, or the positions where parts begin.",
        "initial": (
            "the value that the reduction begins with; needed for empty axes if the reduction has no identity."
        ),
        "k": "which diagonal: 0 is the main one, positive ones are above it.",
        "keepdims": "whether to keep the reduced axes, with size 1.",
        "mode": (
            'what an index out of bounds means: "drop" or "fill" ignores it, "clip" takes the nearest element, '
            '"promise_in_bounds" checks nothing. By default a known one raises.'
        ),
        "n": "the size along the axis before the transform; the array is cut or padded with zeros.",
        "norm": (
            '"backward" (the default) scales the inverse by 1/n, "forward" the transform, "ortho" both by 1/sqrt(n).'
        ),
        "order": '"C" if the last axis varies fastest, "F" if the first one does.',
        "out": "must be None: arrays do not change, so nothing can be written into one.",
        "out_sharding": "the sharding of the result; by default it follows from the operands.",
        "overwrite_input": "must be False: arrays do not change.",
        "precision": "how exact products are where hardware has shorter formats, see `weft.lax.Precision`.",
        "preferred_element_type": (
            "the dtype to accumulate in and of the result; by default promoted from the operands, "
            "with sums of short floats in float32."
        ),
        "s": "the sizes along the axes before the transform.",
        "shape": "the sizes of the axes; an integer for one axis.",
        "size": "the number of elements to return; needed under `jit`.",
        "tup": "a sequence of arrays.",
        "unique_indices": "a promise that no element is selected twice.",
        "values": (
            "numbers or an array that broadcasts to the selected elements; fractions written into integers raise."
        ),
        "weights": 'a weight for each element, with method "inverted_cdf".',
        "where": "booleans that broadcast with the array; elements where they are false are ignored.",
        "wrap_negative_indices": "whether negative indices count from the end.",
        "x": "an array or a number.",
        "x1": "an array or a number.",
        "x2": "an array or a number that broadcasts with `x1`.",
        "y": "an array or a number that broadcasts with `x`.",
    },
    {
        "wnp.": "import weft.numpy as wnp",
    },
)
